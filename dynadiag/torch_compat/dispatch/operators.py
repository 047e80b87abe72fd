"""Registered operators by the name under which FX prints them (`torch.ops.aten.add.Tensor`), and as Python source spells them."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx.node import _get_qualified_name

from dynadiag.torch_compat.dispatch.functions import words

if TYPE_CHECKING:  # torch 2.6: an OpOverload is not subscriptable
    Operator = OpOverload[..., Any] | OpOverloadPacket[..., Any] | HigherOrderOperator

_NAMESPACES = words(
    "aten prims inductor inductor_prims _c10d_functional _c10d_functional_autograd c10d_functional rngprims fsdp quantized"
    " quantized_decomposed torchvision mkldnn mkl onednn sparse export profiler _dtensor symm_mem"
)
# Namespaces whose operators appear when this module is imported.
_REGISTERED_BY = {"torchvision": "torchvision", "quantized_decomposed": "torch.ao.quantization.fx._decomposed"}
# Operators with a text argument of another name are refused: `aten::from_file(filename)`, `aten::save(t, filename)`,
# `debugprims::load_tensor(name)`, `image::read_file(path)` read or write files (list of all schemas of 2.11 and 2.15).
_TEXT_ARGUMENTS = words(
    "a activation algorithm api_name approximate args assert_msg attr b binary_attr binary_post_op device_type dim dims driver"
    " equation group_name indexing interpolation mode msg names norm op_list ord p pad_mode padding padding_side post_op_algorithm"
    " post_op_name red_op reduce reduce_op rounding_mode self side tag_name unary_algorithm unary_attr unary_post_op"
    " unary_post_op_algorithm UPLO"
)
_FILE_ARGUMENTS = frozenset({"filename", "path", "file", "name"})
_NAMED_RECORDS = frozenset({"_record_function_enter_new", "_record_function_exit", "_record_function_enter"})
# Operators that run a graph or do arithmetic. Left out: the ones that run Python objects, machine code or compiled files.
_HIGHER_ORDER = words(
    "cond switch while_loop while_loop_stack_output scan associative_scan map map_impl flex_attention flex_attention_backward wrap"
    " wrap_with_set_grad_enabled wrap_with_autocast wrap_activation_checkpoint tag_activation_checkpoint invoke_subgraph"
    " autograd_function_apply auto_functionalized auto_functionalized_v2 with_effects out_dtype strict_mode run_with_rng_state"
    " run_and_save_rng_state graphsafe_run_with_rng_state hints_wrapper foreach_map run_const_graph invoke_quant invoke_quant_packed"
    " local_map_hop"
)
_WHY_NOT_HIGHER_ORDER = {
    "triton_kernel_wrapper_mutation": "its kernels exist only in the process that created the graph",
    "triton_kernel_wrapper_functional": "its kernels exist only in the process that created the graph",
    "call_torchbind": "its object exists only in the process that created the graph",
    "invoke_leaf_function": "its function exists only in the process that created the graph",
    "inductor_compiled_code": "its compiled code exists only in the process that created the graph",
    "inline_asm_elementwise": "machine code from a log is never run",
}


@functools.cache
def load_higher_order_operators() -> None:
    """Import the modules that register higher order operators (they are not all imported with torch)."""
    for name in ("torch._higher_order_ops", "torch._higher_order_ops.map", "torch._prims.rng_prims", "torch._inductor.inductor_prims"):
        importlib.import_module(name)
    from torch._prims.rng_prims import register_rng_prims

    if not hasattr(torch.ops.rngprims, "philox_rand"):
        register_rng_prims()  # type: ignore[no-untyped-call]


# Operators of ATen whose names look like Python's own (native_functions.yaml, 2.11 and 2.15).
_DUNDER = frozenset({f"__{prefix}{name}__" for prefix in ("", "i") for name in ("and", "or", "xor", "lshift", "rshift")})


def is_private_operator(printed: str) -> bool:
    """Whether "torch.ops.<namespace>.<name>..." is an operator of a namespace that is not torch's own."""
    parts = printed.split(".")
    return parts[:2] == ["torch", "ops"] and 4 <= len(parts) <= 5 and parts[2] not in _NAMESPACES and parts[2] != "higher_order"


def find_operator(parts: tuple[str, ...], *, extra_namespaces: frozenset[str] = frozenset()) -> Operator | str:
    """The operator named by what follows `torch.ops`, or a sentence saying why a graph may not call it."""
    if not 2 <= len(parts) <= 3 or not all(part.isidentifier() and (not part.startswith("__") or part in _DUNDER) for part in parts):
        return "is not an operator name"
    namespace, name = parts[0], parts[1]
    printed = "::".join(parts[:2])
    if namespace == "higher_order":
        return _higher_order(name) if len(parts) == 2 else "is not a higher order operator"
    if namespace not in _NAMESPACES and namespace not in extra_namespaces:
        return f"is a private operator ({printed}): its code is not part of the log"
    if namespace in ("prims", "inductor", "inductor_prims", "rngprims"):
        load_higher_order_operators()
    if namespace in _REGISTERED_BY:
        _try_import(_REGISTERED_BY[namespace])
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if not isinstance(packet, OpOverloadPacket):
        return f"is an operator ({printed}) that this torch does not have"
    return _checked(packet, parts[2] if len(parts) == 3 else None, printed)


def _try_import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError:
        return


def _checked(packet: OpOverloadPacket[..., Any], overload: str | None, printed: str) -> Operator | str:
    if overload is not None and overload not in _overloads(packet):
        return f"is an overload ({printed}.{overload}) that this torch does not have"
    chosen: Operator = packet if overload is None else getattr(packet, overload)
    for schema in _schemas(chosen):
        for argument in schema.arguments:
            if "str" in str(argument.type) and argument.name not in _TEXT_ARGUMENTS and schema.name.split("::")[1] not in _NAMED_RECORDS:
                return f"is an operator ({printed}) that takes a text `{argument.name}`, which a graph from a log may not pass"
    return chosen


def _overloads(packet: OpOverloadPacket[..., Any]) -> list[str]:
    return list(packet.overloads())  # type: ignore[no-untyped-call]


def _schemas(chosen: Operator) -> Iterator[Any]:
    if isinstance(chosen, OpOverload):
        yield chosen._schema
    elif isinstance(chosen, OpOverloadPacket):
        for name in _overloads(chosen):
            schema = getattr(chosen, name)._schema
            # TorchScript's overloads on text alone ("a" + "b") have no tensor and are not reached with one; those that name a file stay.
            with_tensor = any("Tensor" in str(argument.type) for argument in schema.arguments)
            if with_tensor or not {argument.name for argument in schema.arguments}.isdisjoint(_FILE_ARGUMENTS):
                yield schema


def _higher_order(name: str) -> Operator | str:
    load_higher_order_operators()
    if name not in _HIGHER_ORDER:
        return f"is a higher order operator ({name}) that cannot be rebuilt: {_WHY_NOT_HIGHER_ORDER.get(name, 'not in the allow-list')}"
    found = getattr(torch.ops.higher_order, name, None)
    if not isinstance(found, HigherOrderOperator):
        return f"is a higher order operator ({name}) that this torch does not have"
    return found


def printed_name(value: object) -> str | None:
    """The dotted name of an operator ("torch.ops.aten.add.Tensor"), None for anything else."""
    if isinstance(value, HigherOrderOperator):
        return f"torch.ops.higher_order.{value.name()}"  # type: ignore[no-untyped-call]
    return f"torch.ops.{value}" if isinstance(value, (OpOverload, OpOverloadPacket)) else None


def printed_target(target: Any) -> str | None:
    """The dotted name under which a script finds the function, None when there is none (a lambda, a function of `__main__`)."""
    known = printed_name(target)
    if known is not None:
        return known
    name = getattr(target, "__name__", "")
    if getattr(operator, name, None) is target or target is getattr:
        return None  # written as an operator
    try:
        qualified = str(_get_qualified_name(target))
    except (AttributeError, RuntimeError):
        return None
    return qualified if _found(qualified) is target else None


def _found(qualified: str) -> Any:
    module, _, name = qualified.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError):
        return None
