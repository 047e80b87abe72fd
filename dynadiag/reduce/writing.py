"""The reproducer: one Python file that needs torch alone, short enough to read, ending in the failure itself or in an assertion."""

from __future__ import annotations

import base64
import contextlib
import textwrap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from dynadiag.fx.collectives import group_sizes
from dynadiag.fx.script import module_source
from dynadiag.fx.script_parts import GROUPS
from dynadiag.reduce import comparing
from dynadiag.reduce.candidate import Call, Candidate, own_copy
from dynadiag.reduce.failure import Failure
from dynadiag.reduce.inputs import DRAWN, PlainInput, TensorInput, from_value
from dynadiag.reduce.observing import calls_of
from dynadiag.reduce.setting import Setting
from dynadiag.torch_compat.reduce_backend import OptionFunction
from dynadiag.torch_compat.reduce_compile import config_path
from dynadiag.torch_compat.reduce_inner import inner_options

_INLINE_ELEMENTS = 64
_WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Header:
    """What the first lines say."""

    failure: Failure
    made_by: str
    versions: str
    story: str


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Memory of several inputs: the line that makes it, and how each input, by its position, lies in it."""

    source: str
    views: Mapping[int, str]


def reproducer(candidate: Candidate, setting: Setting, header: Header, *, expect_failure: bool = True) -> str:
    """The source of the file. Raises NotRebuildableError for a function or a value that has no spelling."""
    classes, imports = module_source(_without_notes(own_copy(candidate.module)), "Repro")
    with _default_dtype(setting.default_dtype):
        making = _inputs_function(candidate, setting)
    body = [*_groups(candidate, setting), *_surroundings(setting), *making, "", "", *_backend(setting), *_inner(setting)]
    body += _main(candidate, setting, header.failure, expect_failure=expect_failure)
    if "view_of(" in "\n".join(making):
        body = [*SHARING.splitlines(), "", "", *body]
    if "decoded(" in "\n".join(making):
        body = [*_DECODER.splitlines(), "", "", *body]
        imports = imports | {"import base64", "import zlib"}
    if header.failure.kind == "hang" and expect_failure:
        imports = imports | {"import faulthandler"}
    if setting.memory_limit_mib is not None:
        imports = imports | {"import resource"}
    functions = [value for _, value in candidate.configs if isinstance(value, OptionFunction)]
    configs = [line for one in functions if one.source is not None for line in (*one.source.rstrip().splitlines(), "", "")]
    configs += [f"{config_path(name)} = {value!r}" for name, value in candidate.configs]
    needed = imports | {"import torch"} | {f"import {config_path(name).split('.config.')[0]}.config" for name, _ in candidate.configs}
    needed |= {"import torch._inductor.compile_fx"} if setting.inner else set()
    needed |= {f"import {one.module}" for one in functions if one.module is not None}
    opening = _docstring(header, expect_failure=expect_failure)
    parts = [*opening, "", *sorted(needed), "", *configs, *([""] if configs else []), "", *classes, "", "", *body, ""]
    return "\n".join(parts)


def _docstring(header: Header, *, expect_failure: bool) -> list[str]:
    title = header.failure.title() if expect_failure else "This neighbour of the reproducer does not fail."
    kind = f"{header.failure.kind.replace('_', ' ')} in phase {header.failure.phase}"
    lines = [title, "", f"Failure: {kind}." if expect_failure else f"The reproducer: {header.failure.title()}"]
    lines += [header.story, f"{header.made_by}; {header.versions}."]
    wrapped = [piece for line in lines for piece in (textwrap.wrap(_plain(line), _WIDTH) or [""])]
    return ['"""' + wrapped[0], *wrapped[1:], '"""']


def _plain(line: str) -> str:
    """Text that cannot end a docstring."""
    return line.replace("\\", "/").replace('"', "'")


def _without_notes(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Without the user's file names, which mean nothing elsewhere; with the name of each function."""
    from dynadiag.fx.building import TARGET
    from dynadiag.reduce.candidate import graphs_in
    from dynadiag.torch_compat.reduce_names import printed_target

    for graph in graphs_in(module):
        for node in graph.graph.nodes:
            node.meta = {TARGET: node.meta[TARGET]} if TARGET in node.meta else {}
            if node.op == "call_function" and TARGET not in node.meta:
                name = printed_target(node.target)
                node.meta = {} if name is None else {TARGET: name}
    return module


# -- inputs


def _inputs_function(candidate: Candidate, setting: Setting) -> list[str]:
    """`make_inputs`; it takes the number of the call where there are several."""
    calls = calls_of(candidate, setting)
    if len(calls) == 1:
        return ["def make_inputs():", "    torch.manual_seed(0)", *_one_call(calls[0])]
    numbers: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        numbers.setdefault("\n".join(_one_call(call)), []).append(number)
    lines = ["def make_inputs(call):", "    torch.manual_seed(call)"]
    *others, (last, _) = sorted(numbers.items(), key=lambda one: one[1][-1])
    for text, which in others:
        lines += [
            f"    if call {f'== {which[0]}' if len(which) == 1 else f'in {tuple(which)}'}:",
            *textwrap.indent(text, "    ").splitlines(),
        ]
    return [*lines, *last.splitlines()]


def _one_call(call: Call) -> list[str]:
    shared = shared_memory(call.inputs)
    views = {position: text for one in shared for position, text in one.views.items()}
    inputs = [_input(one, views.get(position)) for position, one in enumerate(call.inputs)]
    memories = [f"    {one.source}" for one in shared]
    if len(inputs) == 1 and len(inputs[0]) < _WIDTH:
        return [*memories, f"    return [{inputs[0]}]"]
    return [*memories, "    return [", *(f"        {one}," for one in inputs), "    ]"]


def shared_memory(inputs: Sequence[TensorInput | PlainInput]) -> list[Shared]:
    """Memory that several inputs lie in, as `inputs.make_values` makes it."""
    groups: dict[int, list[int]] = {}
    for position, one in enumerate(inputs):
        if isinstance(one, TensorInput) and one.fill == "data" and one.data is not None and one.data.numel():
            groups.setdefault(one.data.untyped_storage().data_ptr(), []).append(position)
    several = [group for group in groups.values() if len(group) > 1]
    return [_shared(f"memory_{number}", {position: inputs[position] for position in group}) for number, group in enumerate(several)]  # type: ignore[misc]


_ALIGNED = 16
"""Bytes: no element is larger (complex128)."""


def _shared(name: str, sharing: Mapping[int, TensorInput]) -> Shared:
    """One tensor of their dtype, or bytes where they have several, on their device; and a view of it for each."""
    tensors = {position: one.data.detach() for position, one in sharing.items() if one.data is not None}
    dtypes = {tensor.dtype for tensor in tensors.values()}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.uint8
    first, last = min(_bytes(tensor)[0] for tensor in tensors.values()), max(_bytes(tensor)[1] for tensor in tensors.values())
    first -= first % (dtype.itemsize if dtype != torch.uint8 else _ALIGNED)
    storage = next(iter(tensors.values())).untyped_storage().cpu()  # type: ignore[no-untyped-call]
    count = (last - first) // dtype.itemsize
    whole = torch.empty(0, dtype=dtype).set_(storage, first // dtype.itemsize, (count,), (1,))
    home = next(iter(sharing.values())).device
    texts = {position: _view(name, tensor, first, dtype) for position, tensor in tensors.items()}
    text = _data(from_value(whole, name), indent=4)  # type: ignore[arg-type]
    return Shared(source=f"{name} = {text}{'' if home == 'cpu' else f'.to({home!r})'}", views=texts)


def _bytes(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor begins and ends in its memory."""
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() * tensor.itemsize), int((tensor.storage_offset() + reach + 1) * tensor.itemsize)


def _view(name: str, tensor: torch.Tensor, first: int, dtype: torch.dtype) -> str:
    offset = tensor.storage_offset() - first // tensor.itemsize
    other = "" if tensor.dtype == dtype else f", {tensor.dtype}"
    return f"view_of({name}, {tuple(tensor.shape)}, {tuple(tensor.stride())}, {offset}{other})"


def _input(one: TensorInput | PlainInput, view: str | None) -> str:
    if isinstance(one, PlainInput):
        return repr(one.value)
    text = view or (_data(one) if one.fill == "data" else _made(one))
    if one.device != "cpu" and view is None:
        text += f".to({one.device!r})"
    if not one.requires_grad:
        return text
    return f"{text}.requires_grad_()" if one.leaf else f"{text}.requires_grad_().clone()"


@contextlib.contextmanager
def _default_dtype(name: str) -> Iterator[None]:
    """The default dtype that the file sets: what is of another one has to name it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _named(dtype: torch.dtype) -> str:
    return "" if dtype == torch.get_default_dtype() else f", dtype={dtype}"


def _made(one: TensorInput) -> str:
    """As `inputs.generate` makes it: the same calls on the RNG."""
    dtype = _named(one.dtype)
    if one.fill in ("zeros", "ones"):
        text = f"torch.{one.fill}({_shape(one.shape)}{dtype})"
    elif one.dtype == torch.bool:
        text = f"torch.randint(2, {tuple(one.shape)}).bool()"
    elif one.dtype.is_floating_point or one.dtype.is_complex:
        text = f"torch.randn({_shape(one.shape)}{dtype})" if one.dtype in DRAWN else _converted(one)
    else:
        text = f"torch.randint({one.high}, {tuple(one.shape)}{dtype})"
    return text if one.contiguous else _strided(one, text)


def _converted(one: TensorInput) -> str:
    return f"torch.randn({_shape(one.shape)}{_named(torch.float32)}).to({one.dtype})"


def _shape(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape)) if shape else "()"


def _strided(one: TensorInput, text: str) -> str:
    if 0 in one.stride:
        return f"{text}.as_strided({one.shape}, {one.stride})"
    return f"torch.empty_strided({one.shape}, {one.stride}{_named(one.dtype)}).copy_({text})"


def _data(one: TensorInput, *, indent: int = 8) -> str:
    """Real values: a literal when there are few, compressed bytes otherwise."""
    assert one.data is not None
    data = one.data.detach().cpu()
    if data.numel() <= _INLINE_ELEMENTS and one.dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool):
        dtype = "" if one.dtype in (torch.int64, torch.bool) and data.numel() else _named(one.dtype)
        text = f"torch.tensor({_literal(data)}{dtype})"
        return text if one.contiguous else _strided(one, text)
    flat = torch.empty(data.shape, dtype=data.dtype).copy_(data).reshape(-1).view(torch.uint8)
    packed = base64.b85encode(zlib.compress(bytes(flat.tolist()), 9)).decode()
    margin = "\n" + " " * (indent + 4)
    pieces = margin.join(repr(packed[start : start + _WIDTH]) for start in range(0, len(packed), _WIDTH))
    text = f"decoded({margin}{pieces},{margin}{one.dtype},{margin}{tuple(data.shape)},{margin[:-4]})"
    return text if one.contiguous else _strided(one, text)


def _literal(data: torch.Tensor) -> str:
    return repr(data.tolist()).replace("nan", "float('nan')").replace("inf", "float('inf')")


_DECODER = '''def decoded(text, dtype, shape):
    """A tensor from its compressed bytes."""
    return torch.frombuffer(bytearray(zlib.decompress(base64.b85decode(text))), dtype=dtype).reshape(shape)'''


SHARING = '''def view_of(memory, shape, stride, offset, dtype=None):
    """A tensor in the memory of another."""
    empty = torch.empty(0, dtype=dtype or memory.dtype, device=memory.device)
    return empty.set_(memory.untyped_storage(), offset, shape, stride)'''


# -- what surrounds the call


def _groups(candidate: Candidate, setting: Setting) -> list[str]:
    """The process groups that are left in the graph."""
    sizes = {name: setting.groups[name] for name in group_sizes(candidate.module) if name in setting.groups}
    return [*GROUPS.strip().replace("SIZES", repr(sizes)).splitlines(), "", "", "make_process_groups()", "", ""] if sizes else []


def _surroundings(setting: Setting) -> list[str]:
    lines = []
    if setting.default_dtype != "float32":
        lines.append(f"torch.set_default_dtype(torch.{setting.default_dtype})")
    if setting.matmul_precision != "highest":
        lines.append(f"torch.set_float32_matmul_precision({setting.matmul_precision!r})")
    if setting.deterministic:
        lines.append("torch.use_deterministic_algorithms(True)")
    if not setting.grad and not setting.inference:
        lines.append("torch.set_grad_enabled(False)")
    return [*lines, "", ""] if lines else []


def _backend(setting: Setting) -> list[str]:
    lines = (setting.backend_source or "").strip().splitlines()
    while lines and lines[0].strip() in ("", "import torch"):
        lines.pop(0)
    return [*lines, "", ""] if lines else []


def _inner(setting: Setting) -> list[str]:
    """How inductor's inner compiler is called without `torch.compile`, which would take the graph through AOTAutograd again."""
    options = inner_options(setting.mode, setting.options) if setting.inner else {}
    if not setting.inner:
        return []
    lines = ["def compile_inner(model):", "    def call(*inputs):", "        graph = torch.fx.symbolic_trace(model)"]
    lines += [f"        with torch._inductor.config.patch({options!r}):"] if options else []
    made = "compiled = torch._inductor.compile_fx.compile_fx_inner(graph, list(inputs))"
    return [*lines, f"        {'    ' if options else ''}{made}", "        return compiled(list(inputs))", "", "    return call", "", ""]


def _compile_call(setting: Setting) -> str:
    if setting.inner:
        return "compile_inner(model)"
    backend = setting.backend if isinstance(setting.backend, str) else None
    parts = [f"backend={backend!r}" if backend is not None else f"backend={setting.backend.__name__}"]
    if setting.mode is not None:
        parts.append(f"mode={setting.mode!r}")
    if setting.options:
        parts.append(f"options={dict(setting.options)!r}")
    if setting.dynamic is not None:
        parts.append(f"dynamic={setting.dynamic}")
    return f"torch.compile(model, {', '.join(parts)})"


def _contexts(setting: Setting) -> list[str]:
    contexts = []
    if setting.autocast is not None:
        contexts.append(f"torch.autocast({setting.autocast[0]!r}, dtype=torch.{setting.autocast[1]})")
    if setting.inference:
        contexts.append("torch.inference_mode()")
    return contexts


def _main(candidate: Candidate, setting: Setting, failure: Failure, *, expect_failure: bool) -> list[str]:
    """The call without the compiler, the call with it, and what shows the failure."""
    compares = setting.check != "raises"
    call = _synchronised(_CALL_BACKWARD if setting.backward else _CALL_INPUTS if setting.check == "mutation" else _CALL, candidate)
    calls = calls_of(candidate, setting)
    if len(calls) > 1:
        call = call.replace("def run(function):", "def run_once(function, call):").replace("make_inputs()", "make_inputs(call)")
        modes = [setting.grad if one.grad is None else one.grad for one in calls]
        call += _CALLS.format(len(calls)) if len(set(modes)) == 1 else _CALLS_IN_MODES.format(tuple(modes))
    lines = [*(_CHECK_HELPERS.splitlines() if compares else []), *call.splitlines(), "", ""]
    main = ["model = Repro()", f"compiled = {_compile_call(setting)}"]
    if failure.kind == "hang" and expect_failure:
        main = ["faulthandler.dump_traceback_later(30, exit=True)  # it hangs: show where, and end", *main]
    if setting.memory_limit_mib is not None:
        main += _memory_limit(setting.memory_limit_mib)
    main.append("expected = run(model)  # passes")
    main.append("actual = run(compiled)" + ("" if compares else "  # fails" if expect_failure else "  # passes too"))
    if compares:
        main += _comparison(candidate)
    contexts = _contexts(setting)
    if contexts:
        main = [f"with {', '.join(contexts)}:", *(f"    {line}" if line else line for line in main)]
    return [*lines, *main]


def _memory_limit(limit_mib: int) -> list[str]:
    return [
        'pages = int(open("/proc/self/statm").read().split()[0])',
        f"limit = pages * resource.getpagesize() + ({limit_mib} << 20)  # {limit_mib} MiB besides what the process has now",
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))",
    ]


def _synchronised(call: str, candidate: Candidate) -> str:
    """The call with a wait for the GPU, which tells of its errors only then."""
    if "cuda" not in candidate.text:
        return call
    head, _, result = call.rpartition("\n    return ")
    waiting = f"{head}\n    results = {result}\n    torch.cuda.synchronize()"
    return f"{waiting}\n    return results"


def _comparison(candidate: Candidate) -> list[str]:
    dtypes = [one.dtype for one in candidate.inputs if isinstance(one, TensorInput) and one.dtype.is_floating_point]
    tolerance = max((comparing.TOLERANCE.get(dtype, comparing.DEFAULT_TOLERANCE) for dtype in dtypes), default=comparing.DEFAULT_TOLERANCE)
    return ["for position, (right, got) in enumerate(zip(expected, actual)):", f"    check(position, right, got, {tolerance})"]


_CALLS = """


def run(function):
    return [value for call in range({}) for value in run_once(function, call)]"""
_CALLS_IN_MODES = """


def run(function):
    values = []
    for call, grad in enumerate({}):
        with torch.set_grad_enabled(grad):
            values += run_once(function, call)
    return values"""
_CALL = """def run(function):
    torch.manual_seed(0)
    return list(function(*make_inputs()))"""

_CALL_INPUTS = '''def run(function):
    """The results, and the inputs as the call left them."""
    inputs = make_inputs()
    torch.manual_seed(0)
    return list(function(*inputs)) + inputs'''

_CALL_BACKWARD = '''def run(function):
    """The results and the gradients of the inputs."""
    inputs = make_inputs()
    torch.manual_seed(0)
    results = list(function(*inputs))
    loss = 0
    for result in results:
        if isinstance(result, torch.Tensor) and result.requires_grad:
            weight = 1 + 0.5 * torch.cos(torch.arange(result.numel(), device=result.device, dtype=torch.float64))
            loss = loss + (result.double() * weight.reshape(result.shape)).sum()
    wanted = [one for one in inputs if isinstance(one, torch.Tensor) and one.requires_grad]
    if not isinstance(loss, torch.Tensor):
        wanted = []
    return results + list(torch.autograd.grad(loss, wanted, allow_unused=True) if wanted else [])'''

_CHECK_HELPERS = '''def check(position, right, got, tolerance):
    """Fail when the compiled result is further from the uncompiled one than rounding explains."""
    if not isinstance(right, torch.Tensor):
        assert right == got, f"wrong result {position}: {got} instead of {right}"
        return
    assert right.shape == got.shape and right.dtype == got.dtype, f"wrong result {position}: another shape or dtype"
    finite = torch.isfinite(right)
    assert torch.isfinite(got)[finite].all(), f"wrong result {position}: NaN or infinite where the uncompiled run is finite"
    wide = torch.complex128 if right.is_complex() else torch.float64
    right, got = right.detach().to(wide)[finite], got.detach().to(wide)[finite]
    error, size = ((got - right).abs().square().mean().sqrt(), right.abs().square().mean().sqrt()) if right.numel() else (0, 0)
    assert error <= tolerance * size + 1e-12, f"wrong result {position}: error {float(error):.3g} at size {float(size):.3g}"


'''
