"""The functions that may stand in a rebuilt graph, by the name under which FX prints them. Private names of torch live here.

The rule (docs/graphs.md says it for users): a name from a log is only ever looked up in the tables made here; no attribute of torch is
walked with a name from a log, but for `torch.ops.<namespace>.<operator>.<overload>`, where the result must be a registered operator.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch
from torch.fx.node import _get_qualified_name
from torch.overrides import get_overridable_functions

from dynadiag.dotted_names import lies_in

Function = Callable[..., Any]
_NUMPY_PREFIX = "torch__dynamo_utils_wrapped_"
_NUMPY_ATTRIBUTE = "torch__dynamo_utils_numpy_attr_wrapper"
_NUMPY_MODULES = ("torch._numpy._funcs", "torch._numpy._ufuncs", "torch._numpy._reductions", "torch._numpy.linalg", "torch._numpy.fft")
NUMPY_ATTRIBUTES = frozenset({"T", "real", "imag", "shape", "ndim", "size", "itemsize", "nbytes", "strides", "dtype"})
_LOWER_VERSION = "torch__dynamo_variables_builtin__lower_version_count_by_1"
_GRAD_MODE = "torch.autograd.grad_mode"
DATA_OF = "torch._C._autograd._get_data_attr"
"""What Dynamo writes for `x.data`; it does not trace a call of it."""


def words(text: str) -> frozenset[str]:
    """The set of the words in `text`: long lists of names stay readable so."""
    return frozenset(text.split())


# ATen's Python functions: torch.add, torch._C._nn.gelu, torch._C._linalg.linalg_inv, ... (torch/csrc/autograd/python_*_functions.cpp).
_ATEN_MODULES = ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested")
# Of those, the ones that open a file or look at memory that is not a tensor's.
_REFUSED_ATEN = frozenset({"from_file", "frombuffer", "from_numpy", "import_ir_module", "import_ir_module_from_buffer"})

# Functions that Dynamo puts into graphs although they take no tensor first (torch/_dynamo/trace_rules.py, 2.11 and 2.15).
_LISTED: Mapping[str, str] = {
    "torch": "is_tensor is_storage is_grad_enabled get_default_dtype set_grad_enabled manual_seed sym_float sym_int sym_max sym_min"
    " sym_not sym_ite sym_sum _check _check_is_size _check_index _check_value _check_tensor_all _assert _sym_sqrt _sym_log2 _sym_cos"
    " _sym_sin _sym_tan _sym_exp promote_types result_type can_cast tensor as_tensor asarray broadcast_shapes Size Generator",
    "torch._C": "_set_grad_enabled _set_fwd_grad_enabled _enter_dual_level _exit_dual_level _log_api_usage_once",
    "torch._C._autograd": "_get_data_attr _saved_tensors_hooks_disable _saved_tensors_hooks_enable _disable_view_replay"
    " _make_saved_tensor_hooks",
    "torch._C._functorch": "_add_batch_dim _remove_batch_dim _vmap_increment_nesting _vmap_decrement_nesting _grad_increment_nesting"
    " _grad_decrement_nesting _jvp_increment_nesting _jvp_decrement_nesting _wrap_for_grad _unwrap_for_grad"
    " _func_increment_nesting _func_decrement_nesting"
    " set_inplace_requires_grad_allowed get_inplace_requires_grad_allowed set_autograd_function_allowed is_batchedtensor"
    " is_gradtrackingtensor get_unwrapped maybe_get_level maybe_get_bdim",
    "torch._functorch.predispatch": "_add_batch_dim _remove_batch_dim _vmap_increment_nesting _vmap_decrement_nesting"
    " _jvp_increment_nesting _jvp_decrement_nesting _grad_increment_nesting _grad_decrement_nesting _enter_dual_level"
    " _exit_dual_level _make_dual _unpack_dual _unwrap_for_grad _wrap_for_grad lazy_load_decompositions _predispatch_unpack_dual",
    "torch._functorch.eager_transforms": "_autograd_grad _set_tensor_requires_grad _is_differentiable _any_differentiable"
    " _create_differentiable _unwrap_for_grad",
    "torch._functorch.vmap": "lazy_load_decompositions",
    "torch._functorch.utils": "unwrap_dead_wrappers",
    "torch.autograd.forward_ad": "_maybe_load_decompositions make_dual unpack_dual enter_dual_level exit_dual_level",
    "torch.autograd": "grad",
    "torch.autograd.graph": "increment_version",
    "torch.amp.autocast_mode": "_enter_autocast _exit_autocast",
    "torch.nn": "Parameter Buffer",
    "torch.nn.parameter": "Parameter Buffer",
    "torch.nn.functional": "sigmoid tanh hardsigmoid hardswish upsample upsample_bilinear upsample_nearest",
    "torch.random": "manual_seed",
    "torch.nested": "nested_tensor as_nested_tensor narrow",
    "torch.nested._internal.nested_tensor": "nested_view_from_values_offsets nested_view_from_values_offsets_lengths nested_from_padded",
    "torch.fx.experimental.symbolic_shapes": "guard_size_oblivious guard_or_true guard_or_false sym_eq sym_and sym_or"
    " size_hint constrain_range",
    "torch._utils": "_flatten_dense_tensors _unflatten_dense_tensors",
    "math": "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh degrees erf erfc exp exp2 expm1 fabs floor fmod fsum"
    " gamma gcd hypot isclose isfinite isinf isnan isqrt lcm ldexp lgamma log log10 log1p log2 nextafter pow prod radians remainder"
    " sin sinh sqrt tan tanh trunc ulp",
    "builtins": "abs bool complex divmod float int len max min pow range round sum tuple list",
    "_operator": "abs add and_ contains countOf eq floordiv ge getitem gt iadd iand ifloordiv ilshift imatmul imod imul index indexOf"
    " inv invert ior ipow irshift is_ is_not isub itruediv ixor le length_hint lshift lt matmul mod mul ne neg not_ or_ pos pow rshift"
    " setitem delitem sub truediv truth xor concat iconcat",
}
# Methods and attributes of a tensor that run a callable, leave the process, or hand out memory.
_REFUSED_METHODS = words(
    "apply_ map_ map2_ module_load numpy register_hook register_post_accumulate_grad_hook share_memory_ storage data_ptr const_data_ptr"
    " resize_as_sparse_ __reduce_ex__ __reduce__ __setstate__ __deepcopy__ __array__ __array_wrap__ __dlpack__ __format__ __repr__"
)
# Spelled with underscores, yet plain operators on a tensor, an int or a torch.Size.
_DUNDER_METHODS = words(
    "__getitem__ __setitem__ __len__ __bool__ __int__ __float__ __index__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__"
    " __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__ __neg__ __pos__ __abs__ __invert__"
    " __matmul__ __rmatmul__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __contains__"
    " __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __ipow__ __iand__ __ior__ __ixor__ __lshift__ __rshift__ __ilshift__"
    " __irshift__ __imod__"
)
# Methods of other things that stand in graphs: sizes, generators, unpacked results.
_OTHER_METHODS = words("new new_empty new_full new_ones new_tensor new_zeros stride unflatten index count numel bit_length conjugate")
_ATTRIBUTES = words(
    "H T mH mT data device dtype grad imag is_cpu is_cuda is_leaf is_meta is_nested is_quantized is_sparse is_sparse_csr is_xpu itemsize"
    " layout nbytes ndim real requires_grad shape _version values indices start stop step"
)
# FX prints a name that it does not take for torch's own as one word: "math_sqrt", "torch_Tensor_set_" (torch/fx/graph.py `add_global`).
_MANGLE = re.compile("[^0-9a-zA-Z_]+")


@functools.cache
def function_table() -> Mapping[str, Function]:
    """Every allowed function by printed name. Built once a process, from torch's list of functions on tensors and the lists above."""
    table: dict[str, Function] = {}
    for name, function in _all_functions():
        table.setdefault(name, function)
        table.setdefault(_MANGLE.sub("_", name), function)
    for name in _LISTED["builtins"].split():
        table[name] = getattr(builtins, name)
    return table


@functools.cache
def _dotted_names() -> Mapping[str, str]:
    """The dotted name for each name that FX prints as one word."""
    return {_MANGLE.sub("_", name): name for name, _ in _all_functions()}


def lower_version_count_by_1(x: torch.Tensor) -> torch.Tensor:
    """The tensor, its version one lower: what Dynamo of torch 2.11 puts after `x.data = y` (torch/_dynamo/variables/builtin.py)."""
    torch._C._autograd._unsafe_set_version_counter((x,), (max(x._version - 1, 0),))
    return x


def numpy_attribute(value: Any, name: Any) -> Any:
    """An attribute of an array that a tensor has too ("T", "shape"), as `numpy_attr_wrapper` of torch/_dynamo/utils.py gives it."""
    if name not in NUMPY_ATTRIBUTES:
        raise AttributeError(f"{str(name)[:80]!r} is not in the allow-list of array attributes")
    from torch._dynamo import utils

    return utils.numpy_attr_wrapper(value, name)


def enter_no_grad(mode: Any) -> bool:
    """Grad mode off, as in inference mode, which a graph that stops half-way would leave on for good; gives what it was."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(before and not mode)
    return before


def leave_no_grad(before: Any) -> None:
    """Grad mode as it was before `enter_no_grad`."""
    torch._C._set_grad_enabled(bool(before))


def rare_function(printed: str) -> Function | None:
    """A function that Dynamo made itself and therefore no module of torch lists: its wrappers of NumPy, and that of `x.data = y`.

    Inference mode is followed as `no_grad`.
    """
    own: dict[str, Function] = {
        _LOWER_VERSION: lower_version_count_by_1,
        _NUMPY_ATTRIBUTE: numpy_attribute,
        f"{_GRAD_MODE}._enter_inference_mode": enter_no_grad,
        f"{_GRAD_MODE}._exit_inference_mode": leave_no_grad,
    }
    return own.get(printed) or numpy_wrapper(printed)


def spelling(printed: str) -> str:
    """How Python source outside FX spells an allowed function ("math_sqrt" is "math.sqrt", after `import math`)."""
    if printed == _NUMPY_ATTRIBUTE:
        return "torch._dynamo.utils.numpy_attr_wrapper"
    if printed == _LOWER_VERSION:
        return lower_version_count_by_1.__name__
    if numpy_wrapper(printed) is not None:
        name = printed.removeprefix(_NUMPY_PREFIX)
        kind = type(numpy_wrapper(printed)).__name__
        inner = {"numpy_method_wrapper": repr(name), "numpy_operator_wrapper": f"operator.{name}"}.get(
            kind, f"torch._numpy.{_numpy_owner(name)}{name}"
        )
        return f"torch._dynamo.utils.{kind}({inner})"
    dotted = printed if "." in printed else _dotted_names().get(printed, printed)
    return dotted.removeprefix("builtins.").replace("_operator.", "operator.") if not lies_in(dotted, "torch") else dotted


@functools.cache
def _spelled_functions() -> frozenset[str]:
    return frozenset(map(spelling, function_table())) | {spelling(_NUMPY_ATTRIBUTE)}


def is_spelled_function(dotted: str) -> bool:
    """Whether the dotted name is how Python source spells an allowed function that is no operator of `torch.ops`."""
    return dotted in _spelled_functions()


def numpy_spellings(name: str) -> tuple[str, ...]:
    """How Python source spells Dynamo's wrapper of the NumPy function `name`: once, or not at all."""
    printed = f"{_NUMPY_PREFIX}{name}"
    return (spelling(printed),) if name and numpy_wrapper(printed) is not None else ()


def _all_functions() -> Iterator[tuple[str, Function]]:
    for owner, functions in get_overridable_functions().items():
        if isinstance(owner, ModuleType):
            yield from _of_module(owner, functions)
    for name in dir(torch._C._VariableFunctions):
        if not name.startswith("__") and name not in _REFUSED_ATEN and hasattr(torch, name):
            yield f"torch.{name}", getattr(torch, name)
    for module_name in _ATEN_MODULES:
        module = getattr(torch._C, module_name, None)
        for name in dir(module):
            if not name.startswith("__") and callable(getattr(module, name)):
                yield f"torch._C.{module_name}.{name}", getattr(module, name)
    for name in sorted(tensor_methods()):
        if callable(getattr(torch.Tensor, name, None)):
            yield f"torch.Tensor.{name}", getattr(torch.Tensor, name)
    yield from _listed_functions()


def _of_module(owner: ModuleType, functions: list[Function]) -> Iterator[tuple[str, Function]]:
    for function in functions:
        name = getattr(function, "__name__", "")
        if not name.isidentifier() or name.startswith("__") or name in _REFUSED_ATEN:
            continue
        if getattr(owner, name, None) is function:
            yield f"{owner.__name__}.{name}", function
        try:
            yield _get_qualified_name(function), function
        except (RuntimeError, AttributeError):
            continue


def _part(owner: Any, name: str) -> Any:
    return getattr(owner, name, None)


def _listed_functions() -> Iterator[tuple[str, Function]]:
    for module_name, names in _LISTED.items():
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            # A namespace of C, or a module that this torch does not have yet (2.6: torch._functorch.predispatch).
            module = functools.reduce(_part, module_name.split(".")[1:], torch)
        for name in names.split():
            function = getattr(module, name, None)
            if function is not None:
                yield f"{module_name}.{name}", function
    for name in _LISTED["_operator"].split():
        yield f"operator.{name}", getattr(operator, name)


@functools.cache
def tensor_methods() -> frozenset[str]:
    """Names that a call of a method in a graph may have."""
    named = {getattr(function, "__name__", "") for function in get_overridable_functions().get(torch.Tensor, [])}
    plain = {name for name in named if name.isidentifier() and not name.startswith("__")}
    return frozenset(((plain | _OTHER_METHODS) - _REFUSED_METHODS) | _DUNDER_METHODS)


def tensor_attributes() -> frozenset[str]:
    """Names of attributes of a tensor (or slice, or named result) that a graph may read."""
    return _ATTRIBUTES


def numpy_wrapper(printed: str) -> Function | None:
    """Dynamo's wrapper of a NumPy call ("torch__dynamo_utils_wrapped_add"); None for any other name.

    torch/_dynamo/utils.py: `numpy_operator_wrapper` for operators, `numpy_method_wrapper` for methods (2.11 and 2.15).
    """
    name = printed.removeprefix(_NUMPY_PREFIX)
    if name == printed:
        return None
    from torch._dynamo import utils

    if name in _DUNDER_METHODS or (name in tensor_methods() and name.endswith("_")):
        return utils.numpy_method_wrapper(name)
    if name in _LISTED["_operator"].split():
        return utils.numpy_operator_wrapper(getattr(operator, name))
    candidate = _numpy_function(name)
    return None if candidate is None else utils.numpy_to_tensor_wrapper(candidate)


def _numpy_owner(name: str) -> str:
    """Where torch has its version of the NumPy function: "linalg.", "fft." or nothing."""
    last = getattr(_numpy_function(name), "__module__", "").rpartition(".")[2]
    return f"{last}." if last in ("linalg", "fft") else ""


def _numpy_function(name: str) -> Function | None:
    """Torch's version of a NumPy function: `norm` of `numpy.linalg` too."""
    import torch._numpy as torch_numpy

    if not name.isalpha() and name not in getattr(torch_numpy, "__all__", ()):
        return None
    for owner in (torch_numpy, torch_numpy.linalg, torch_numpy.fft):
        candidate = getattr(owner, name, None)
        if callable(candidate) and (getattr(candidate, "__module__", "") or "").startswith(_NUMPY_MODULES):
            return candidate  # type: ignore[no-any-return]
    return None
