"""The part of the reproducer that makes its inputs."""

from __future__ import annotations

import base64
import contextlib
import textwrap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from dynadiag.reduce.graphs.candidate import Call
from dynadiag.reduce.graphs.inputs import DRAWN, PlainInput, TensorInput, from_value

WIDTH = 100
"""Characters of a line of data or text."""
_INLINE_ELEMENTS = 64


@dataclass(frozen=True, kw_only=True)
class _Shared:
    """Memory of several inputs: the line that makes it, and how each input, by its position, lies in it."""

    source: str
    views: Mapping[int, str]


def inputs_function(calls: Sequence[Call], default_dtype: str) -> list[str]:
    """The lines of `make_inputs` in a file that sets this default dtype; it takes the number of the call where there are several."""
    with _default_dtype(default_dtype):
        return _make_inputs(calls)


def helpers(making: Sequence[str]) -> tuple[list[str], set[str]]:
    """The functions that these lines of `make_inputs` call, and what those import."""
    text = "\n".join(making)
    lines = [*_DECODER.splitlines(), "", ""] if "decoded(" in text else []
    lines += [*_SHARING.splitlines(), "", ""] if "view_of(" in text else []
    return lines, {"import base64", "import zlib"} if "decoded(" in text else set()


def _make_inputs(calls: Sequence[Call]) -> list[str]:
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
    shared = _shared_memory(call.inputs)
    views = {position: text for one in shared for position, text in one.views.items()}
    inputs = [_input(one, views.get(position)) for position, one in enumerate(call.inputs)]
    memories = [f"    {one.source}" for one in shared]
    if len(inputs) == 1 and len(inputs[0]) < WIDTH:
        return [*memories, f"    return [{inputs[0]}]"]
    return [*memories, "    return [", *(f"        {one}," for one in inputs), "    ]"]


def _shared_memory(inputs: Sequence[TensorInput | PlainInput]) -> list[_Shared]:
    """Memory that several inputs lie in, as `inputs.make_values` makes it."""
    groups: dict[int, list[int]] = {}
    for position, one in enumerate(inputs):
        if isinstance(one, TensorInput) and one.fill == "data" and one.data is not None and one.data.numel():
            groups.setdefault(one.data.untyped_storage().data_ptr(), []).append(position)
    several = [group for group in groups.values() if len(group) > 1]
    return [_shared(f"memory_{number}", {position: inputs[position] for position in group}) for number, group in enumerate(several)]  # type: ignore[misc]


_ALIGNED = 16
"""Bytes: no element is larger (complex128)."""


def _shared(name: str, sharing: Mapping[int, TensorInput]) -> _Shared:
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
    return _Shared(source=f"{name} = {text}{'' if home == 'cpu' else f'.to({home!r})'}", views=texts)


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
    if one.overlaps_itself:
        return f"{_made(one.memory())}.as_strided({one.shape}, {one.stride})"
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
    return f"torch.empty_strided({one.shape}, {one.stride}{_named(one.dtype)}).copy_({text})"


def _data(one: TensorInput, *, indent: int = 8) -> str:
    """Real values: a literal when there are few, compressed bytes otherwise."""
    assert one.data is not None
    if one.overlaps_itself:
        return f"{_data(one.memory(), indent=indent)}.as_strided({one.shape}, {one.stride})"
    data = one.data.detach().cpu()
    if data.numel() <= _INLINE_ELEMENTS and one.dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool):
        dtype = "" if one.dtype in (torch.int64, torch.bool) and data.numel() else _named(one.dtype)
        text = f"torch.tensor({_literal(data)}{dtype})"
        return text if one.contiguous else _strided(one, text)
    flat = torch.empty(data.shape, dtype=data.dtype).copy_(data).reshape(-1).view(torch.uint8)
    packed = base64.b85encode(zlib.compress(bytes(flat.tolist()), 9)).decode()
    margin = "\n" + " " * (indent + 4)
    pieces = margin.join(repr(packed[start : start + WIDTH]) for start in range(0, len(packed), WIDTH))
    text = f"decoded({margin}{pieces},{margin}{one.dtype},{margin}{tuple(data.shape)},{margin[:-4]})"
    return text if one.contiguous else _strided(one, text)


def _literal(data: torch.Tensor) -> str:
    return repr(data.tolist()).replace("nan", "float('nan')").replace("inf", "float('inf')")


_DECODER = '''def decoded(text, dtype, shape):
    """A tensor from its compressed bytes."""
    return torch.frombuffer(bytearray(zlib.decompress(base64.b85decode(text))), dtype=dtype).reshape(shape)'''


_SHARING = '''def view_of(memory, shape, stride, offset, dtype=None):
    """A tensor in the memory of another."""
    empty = torch.empty(0, dtype=dtype or memory.dtype, device=memory.device)
    return empty.set_(memory.untyped_storage(), offset, shape, stride)'''
