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
    *others, (last, _) = sorted(numbers.items(), key=lambda pair: pair[1][-1])
    for text, which in others:
        lines += [
            f"    if call {f'== {which[0]}' if len(which) == 1 else f'in {tuple(which)}'}:",
            *textwrap.indent(text, "    ").splitlines(),
        ]
    return [*lines, *last.splitlines()]


def _one_call(call: Call) -> list[str]:
    shared = _shared_memory(call.inputs)
    views = {position: text for item in shared for position, text in item.views.items()}
    inputs = [_input(tensor_input, views.get(position)) for position, tensor_input in enumerate(call.inputs)]
    memories = [f"    {element.source}" for element in shared]
    if len(inputs) == 1 and len(inputs[0]) < WIDTH:
        return [*memories, f"    return [{inputs[0]}]"]
    return [*memories, "    return [", *(f"        {input_}," for input_ in inputs), "    ]"]


def _shared_memory(inputs: Sequence[TensorInput | PlainInput]) -> list[_Shared]:
    """Memory that several inputs lie in, as `inputs.make_values` makes it."""
    groups: dict[int, list[int]] = {}
    for position, tensor_input in enumerate(inputs):
        if (
            isinstance(tensor_input, TensorInput)
            and tensor_input.fill == "data"
            and tensor_input.data is not None
            and tensor_input.data.numel()
        ):
            groups.setdefault(tensor_input.data.untyped_storage().data_ptr(), []).append(position)
    several = [group for group in groups.values() if len(group) > 1]
    return [_shared(f"memory_{number}", {position: inputs[position] for position in group}) for number, group in enumerate(several)]  # type: ignore[misc]


_ALIGNED = 16
"""Bytes: no element is larger (complex128)."""


def _shared(name: str, sharing: Mapping[int, TensorInput]) -> _Shared:
    """One tensor of their dtype, or bytes where they have several, on their device; and a view of it for each."""
    tensors = {position: tensor_input.data.detach() for position, tensor_input in sharing.items() if tensor_input.data is not None}
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


def _input(tensor_input: TensorInput | PlainInput, view: str | None) -> str:
    if isinstance(tensor_input, PlainInput):
        return repr(tensor_input.value)
    text = view or (_data(tensor_input) if tensor_input.fill == "data" else _made(tensor_input))
    if tensor_input.device != "cpu" and view is None:
        text += f".to({tensor_input.device!r})"
    if not tensor_input.requires_grad:
        return text
    return f"{text}.requires_grad_()" if tensor_input.leaf else f"{text}.requires_grad_().clone()"


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


def _made(tensor_input: TensorInput) -> str:
    """As `inputs.generate` makes it: the same calls on the RNG."""
    if tensor_input.overlaps_itself:
        return f"{_made(tensor_input.memory())}.as_strided({tensor_input.shape}, {tensor_input.stride})"
    dtype = _named(tensor_input.dtype)
    if tensor_input.fill in ("zeros", "ones"):
        text = f"torch.{tensor_input.fill}({_shape(tensor_input.shape)}{dtype})"
    elif tensor_input.dtype == torch.bool:
        text = f"torch.randint(2, {tuple(tensor_input.shape)}).bool()"
    elif tensor_input.dtype.is_floating_point or tensor_input.dtype.is_complex:
        text = f"torch.randn({_shape(tensor_input.shape)}{dtype})" if tensor_input.dtype in DRAWN else _converted(tensor_input)
    else:
        text = f"torch.randint({tensor_input.high}, {tuple(tensor_input.shape)}{dtype})"
    return text if tensor_input.contiguous else _strided(tensor_input, text)


def _converted(tensor_input: TensorInput) -> str:
    return f"torch.randn({_shape(tensor_input.shape)}{_named(torch.float32)}).to({tensor_input.dtype})"


def _shape(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape)) if shape else "()"


def _strided(tensor_input: TensorInput, text: str) -> str:
    return f"torch.empty_strided({tensor_input.shape}, {tensor_input.stride}{_named(tensor_input.dtype)}).copy_({text})"


def _data(tensor_input: TensorInput, *, indent: int = 8) -> str:
    """Real values: a literal when there are few, compressed bytes otherwise."""
    assert tensor_input.data is not None
    if tensor_input.overlaps_itself:
        return f"{_data(tensor_input.memory(), indent=indent)}.as_strided({tensor_input.shape}, {tensor_input.stride})"
    data = tensor_input.data.detach().cpu()
    if data.numel() <= _INLINE_ELEMENTS and tensor_input.dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool):
        dtype = "" if tensor_input.dtype in (torch.int64, torch.bool) and data.numel() else _named(tensor_input.dtype)
        text = f"torch.tensor({_literal(data)}{dtype})"
        return text if tensor_input.contiguous else _strided(tensor_input, text)
    flat = torch.empty(data.shape, dtype=data.dtype).copy_(data).reshape(-1).view(torch.uint8)
    packed = base64.b85encode(zlib.compress(bytes(flat.tolist()), 9)).decode()
    margin = "\n" + " " * (indent + 4)
    pieces = margin.join(repr(packed[start : start + WIDTH]) for start in range(0, len(packed), WIDTH))
    text = f"decoded({margin}{pieces},{margin}{tensor_input.dtype},{margin}{tuple(data.shape)},{margin[:-4]})"
    return text if tensor_input.contiguous else _strided(tensor_input, text)


def _literal(data: torch.Tensor) -> str:
    return repr(data.tolist()).replace("nan", "float('nan')").replace("inf", "float('inf')")


_DECODER = '''def decoded(text, dtype, shape):
    """A tensor from its compressed bytes."""
    return torch.frombuffer(bytearray(zlib.decompress(base64.b85decode(text))), dtype=dtype).reshape(shape)'''


_SHARING = '''def view_of(memory, shape, stride, offset, dtype=None):
    """A tensor in the memory of another."""
    empty = torch.empty(0, dtype=dtype or memory.dtype, device=memory.device)
    return empty.set_(memory.untyped_storage(), offset, shape, stride)'''
