"""Example inputs for a rebuilt graph: what each one is (`InputSpec`), and tensors made to that measure, sharing storage where known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.fx import GraphModule

from dynadiag.errors import NotRebuildableError, shorten
from dynadiag.fx.source_text import SymbolNote, TensorNote, parse_annotation
from dynadiag.fx.spelling import device_text
from dynadiag.trace import sizes

_FIRST_SIZE = 8
_ANY_FLOAT = 1.5
_PLAIN_CLASSES = (None, "Parameter", "Buffer")


# How values that nobody recorded are given to symbolic sizes: 8, 16, 24...; all 8; or ..., 24, 16, 8.
SizeFactors = Literal["rising", "equal", "falling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input or attribute. A tensor has `shape`, `stride` and `dtype`; a number has `value`; an RNG state is that of this process.

    `storage` is equal for inputs that share memory, None when not known; `requires_grad` None when not known;
    `subclass` names the class of which a plain tensor takes the place.
    """

    name: str
    kind: str
    source: str | None = None
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    offset: int = 0
    storage: int | None = None
    storage_bytes: int | None = None
    requires_grad: bool | None = None
    leaf: bool = True
    value: int | float | bool | None = None
    static: str | None = None
    subclass: str | None = None
    basis: str = "annotation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """How made-up values look: floats from a normal distribution or between 0 and 1; integers all `integer`."""

    name: str
    positive: bool = False
    integer: int = 0
    boolean: bool = True


FILLINGS = (
    Filling(name="normal"),
    Filling(name="positive", positive=True, integer=1),
    Filling(name="positive with zeros", positive=True, integer=0, boolean=False),
    # The middle of a 3x3 window, for the offsets that a max pooling saves for its backward.
    Filling(name="fours", integer=4),
)


def spec_from_annotation(name: str, annotation: str | None, symbols: Mapping[str, sizes.Number], *, any_class: bool = False) -> InputSpec:
    """What the printed annotation says of an input, with symbolic sizes replaced. Raises NotRebuildableError when it says too little.

    With `any_class`, a plain tensor of the same sizes stands for a subclass.
    """
    note = parse_annotation(annotation)
    if isinstance(note, SymbolNote):
        return InputSpec(name=name, kind="symbol", value=sizes.evaluate(note.expression, symbols))
    if note is None:
        raise NotRebuildableError(_nothing_known(name, annotation))
    if note.wrapper not in _PLAIN_CLASSES and not any_class:
        raise subclass_refused(name, note.wrapper or "")
    return replace(_tensor_spec(name, note, symbols), subclass=None if note.wrapper in _PLAIN_CLASSES else note.wrapper)


def subclass_refused(name: str, kind: str) -> NotRebuildableError:
    """The error for an input of a tensor class that only the recorded process can make."""
    return NotRebuildableError(f"the input `{shorten(name, 80)}` is a {shorten(kind, 40)}, which cannot be created from its annotation")


def _nothing_known(name: str, annotation: str | None) -> str:
    if annotation is None:
        return f"the input `{shorten(name, 80)}` has no annotation, so its type is not known"
    return f"the input `{shorten(name, 80)}` is annotated `{shorten(annotation, 80)}`, which does not give its type"


def _tensor_spec(name: str, note: TensorNote, symbols: Mapping[str, sizes.Number]) -> InputSpec:
    shape = tuple(sizes.whole(size, symbols) for size in note.shape)
    stride = None if note.stride is None else tuple(sizes.whole(size, symbols) for size in note.stride)
    if stride is not None and len(stride) != len(shape):
        raise NotRebuildableError(f"the input `{shorten(name, 80)}` has {len(shape)} sizes but {len(stride)} strides")
    return InputSpec(name=name, kind="tensor", shape=shape, stride=stride, dtype=note.dtype, device=note.device)


def choose_symbols(
    annotations: Sequence[str | None], *, known: Mapping[str, sizes.Number], factors: SizeFactors
) -> dict[str, sizes.Number]:
    """A value for every symbol in the annotations: the known ones as they are, the others multiples of 8 as `factors` says."""
    chosen: dict[str, sizes.Number] = dict(known)
    unknown = [symbol for symbol in _symbols(annotations) if symbol not in known]
    for position, symbol in enumerate(unknown):
        factor = {"rising": position + 1, "equal": 1, "falling": len(unknown) - position}[factors]
        chosen[symbol] = _ANY_FLOAT if symbol.startswith("z") else _FIRST_SIZE * factor
    return chosen


def _symbols(annotations: Sequence[str | None]) -> list[str]:
    found: dict[str, None] = {}
    for annotation in annotations:
        note = parse_annotation(annotation)
        texts: tuple[str, ...] = ()
        if isinstance(note, SymbolNote):
            texts = (note.expression,)
        elif note is not None:
            texts = (*note.shape, *(note.stride or ()))
        for text in texts:
            found.update(dict.fromkeys(sizes.symbols_of(text)))
    return list(found)


def elements(spec: InputSpec) -> int:
    """How many elements of storage the tensor reaches over, from its first to its last."""
    assert spec.shape is not None
    if 0 in spec.shape:
        return 0
    stride = spec.stride if spec.stride is not None else contiguous_stride(spec.shape)
    return 1 + sum((size - 1) * step for size, step in zip(spec.shape, stride, strict=True))


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor of this shape."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def total_bytes(specs: Sequence[InputSpec]) -> int:
    """Memory that making all these inputs needs; storages that inputs share count once."""
    shared: dict[int, int] = {}
    total = 0
    for spec in specs:
        if spec.kind != "tensor":
            continue
        own = (elements(spec) + spec.offset) * torch_dtype(spec).itemsize
        if spec.storage is None:
            total += own
        else:
            shared[spec.storage] = max(shared.get(spec.storage, 0), own)
    return total + sum(shared.values())


def torch_dtype(spec: InputSpec) -> torch.dtype:
    """The dtype object. Raises NotRebuildableError when this torch has none of that name."""
    found = vars(torch).get(spec.dtype or "")
    if not isinstance(found, torch.dtype):
        raise NotRebuildableError(
            f"the input `{shorten(spec.name, 80)}` has the dtype {shorten(str(spec.dtype), 40)}, which this torch does not have"
        )
    return found


def make_inputs(specs: Sequence[InputSpec], filling: Filling, *, seed: int = 0) -> list[Any]:
    """Inputs to these specs, the same for the same seed. Inputs with one `storage` are views of one storage."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        owners = _shared_storages(specs, filling)
        made = [_make(spec, filling, owners) for spec in specs]
    return [_with_grad(value, spec) for value, spec in zip(made, specs, strict=True)]


def _shared_storages(specs: Sequence[InputSpec], filling: Filling) -> dict[int, torch.Tensor]:
    """One byte buffer for each storage that more than one input uses."""
    groups: dict[int, list[InputSpec]] = {}
    for spec in specs:
        if spec.kind == "tensor" and spec.storage is not None:
            groups.setdefault(spec.storage, []).append(spec)
    owners: dict[int, torch.Tensor] = {}
    for storage, members in groups.items():
        if len(members) > 1:
            size = max((elements(spec) + spec.offset) * torch_dtype(spec).itemsize for spec in members)
            dtype = torch_dtype(members[0])
            flat = _values((-(-size // dtype.itemsize),), dtype, _device(members[0]), filling)
            owners[storage] = flat
    return owners


def _make(spec: InputSpec, filling: Filling, owners: Mapping[int, torch.Tensor]) -> Any:
    if spec.kind == "rng_state":
        return torch.get_rng_state()
    if spec.kind != "tensor":
        return spec.value
    assert spec.shape is not None
    dtype, stride = torch_dtype(spec), spec.stride if spec.stride is not None else contiguous_stride(spec.shape)
    shared = owners.get(spec.storage) if spec.storage is not None else None
    flat = shared if shared is not None else _values((elements(spec) + spec.offset,), dtype, _device(spec), filling)
    # No `as_strided`: autograd forbids writes with grad to a view that was made under no_grad, as this is.
    return torch.empty(0, dtype=dtype, device=_device(spec)).set_(flat.untyped_storage(), spec.offset, spec.shape, stride)


def _device(spec: InputSpec) -> str:
    device_text(spec.device or "cpu")
    return spec.device or "cpu"


def _values(shape: tuple[int, ...], dtype: torch.dtype, device: str, filling: Filling) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.full(shape, filling.boolean, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex and dtype != torch.complex128 else dtype
        if dtype.itemsize == 1 or dtype in (torch.float16, torch.bfloat16):
            wide = torch.float32
        if dtype == getattr(torch, "float4_e2m1fn_x2", None):
            return torch.zeros(shape, dtype=torch.uint8, device=device).view(dtype)
        made = torch.rand(shape, dtype=wide, device=device) if filling.positive else torch.randn(shape, dtype=wide, device=device)
        return made.to(dtype)
    return torch.full(shape, filling.integer, dtype=dtype, device=device)


def _with_grad(value: Any, spec: InputSpec) -> Any:
    if not isinstance(value, torch.Tensor) or not spec.requires_grad or not (value.is_floating_point() or value.is_complex()):
        return value
    return value.detach().requires_grad_() if spec.leaf else computed(value)


class _NotALeaf(torch.autograd.Function):
    """Gives the tensor itself, as if it had been computed: no leaf, so that it may be written in place; its memory stays shared."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(value)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[None, torch.Tensor]:
        return None, gradients[0].sum()


def computed(value: torch.Tensor) -> Any:
    """The value as a tensor that requires grad and is no leaf, in the same memory."""
    own = torch.empty(0, dtype=value.dtype, device=value.device)
    own.set_(value.untyped_storage(), int(value.storage_offset()), value.shape, value.stride())
    return _NotALeaf.apply(own, torch.zeros((), dtype=value.dtype, device=value.device, requires_grad=True))


def on_device(spec: InputSpec, device: str | None) -> InputSpec:
    """The spec with its accelerator replaced by `device`, when one is asked for."""
    if device is None or spec.kind != "tensor" or (spec.device or "cpu") in ("cpu", "meta"):
        return spec
    return replace(spec, device=device)


_READ_VALUES = frozenset({"item", "_local_scalar_dense", "tolist", "bool", "int", "float", "__bool__", "__int__", "__float__", "__index__"})


def reads_values(module: GraphModule) -> bool:
    """Whether a graph or a sub graph turns a tensor into a Python number."""
    graphs = (part.graph for part in module.modules() if isinstance(part, GraphModule))
    names = (
        node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "") for graph in graphs for node in graph.nodes
    )
    return any(name.partition(".")[0] in _READ_VALUES for name in names)


def fake_from_spec(spec: InputSpec, *, with_value: bool = False) -> Any:
    """The input as a fake tensor (call it under a fake mode); numbers as they are.

    `with_value` gives a scalar tensor a value that a fake mode keeps, at some cost, so that `.item()` of it is a number.
    """
    if spec.kind == "rng_state":
        return torch.get_rng_state()
    if spec.kind != "tensor" or spec.shape is None:
        return spec.value
    stride = spec.stride if spec.stride is not None else contiguous_stride(spec.shape)
    if with_value and not spec.shape and not spec.requires_grad and not spec.offset:
        return torch.tensor(1, dtype=torch_dtype(spec), device=spec.device)
    made = strided(spec.shape, stride, spec.offset, torch_dtype(spec), spec.device or "cpu")
    if spec.requires_grad and (made.is_floating_point() or made.is_complex()):
        made.requires_grad_()
        if not spec.leaf:
            made = made.clone(memory_format=torch.preserve_format)
    return made


def strided(shape: Sequence[int], stride: Sequence[int], offset: int, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """A tensor of this layout; its values are whatever the memory held."""
    if not offset:
        return torch.empty_strided(shape, stride, dtype=dtype, device=device)
    reach = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    with torch.no_grad():
        made = torch.empty(0, dtype=dtype, device=device)
        return made.set_(torch.empty(reach + offset, dtype=dtype, device=device).untyped_storage(), offset, shape, stride)


def aliases_of(specs: Sequence[InputSpec], index: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the inputs on the same storage as input `index`, and of those of them whose bytes overlap its bytes."""
    own = specs[index]
    if own.storage is None or own.kind != "tensor":
        return (), ()
    same = [spec for i, spec in enumerate(specs) if i != index and spec.kind == "tensor" and spec.storage == own.storage]
    first, last = _bytes(own)
    overlapping = [spec.name for spec in same if _bytes(spec)[0] < last and first < _bytes(spec)[1]]
    return tuple(spec.name for spec in same), tuple(overlapping)


def _bytes(spec: InputSpec) -> tuple[int, int]:
    size = torch_dtype(spec).itemsize
    return spec.offset * size, (spec.offset + elements(spec)) * size
