"""The inputs of a call with smaller shapes: what shares memory, or overlaps itself, shares and overlaps as before where that can be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Literal

import torch

from dynadiag.reduce.graphs.inputs import Input, TensorInput
from dynadiag.reduce.graphs.memory import Shape, View, overlaps_itself, shrunk

Way = Literal["from the start", "from the first", "in place"]
WAYS: tuple[Way, ...] = ("from the start", "from the first", "in place")
"""How offsets in shared memory are read: as they are, from the first tensor on; or strides, offsets and memory stay as they are."""


_MOST_MOVED = 1 << 22
"""Elements; larger tensors stay in their memory."""


def resized(inputs: Sequence[Input], shapes: Mapping[int, Shape]) -> Iterator[list[Input]]:
    """The inputs where those at some positions have these shapes; in several ways where memory is shared."""
    groups = _groups(inputs)
    apart = {position: shape for position, shape in shapes.items() if not any(position in group for group in groups)}
    touched = [group for group in groups if any(position in shapes for position in group)]
    seen = set()
    for way in WAYS if touched else WAYS[:1]:
        made = list(inputs)
        for position, shape in apart.items():
            made[position] = _reshaped(_tensor(inputs[position]), shape)
        for group in touched:
            smaller = _in_smaller_memory({position: _tensor(inputs[position]) for position in group}, shapes, way)
            made = [smaller.get(position, tensor_input) for position, tensor_input in enumerate(made)]
        keys = tuple(item.key() for item in made)
        if keys not in seen:
            seen.add(keys)
            yield made


def _tensor(tensor_input: Input) -> TensorInput:
    assert isinstance(tensor_input, TensorInput)
    return tensor_input


def _reshaped(tensor_input: TensorInput, shape: Shape) -> TensorInput:
    """The input with smaller sizes: its data cut off, its strides as dense as before and in the same order."""
    stride = _dense_stride(tensor_input, shape)
    if tensor_input.fill != "data" or tensor_input.data is None:
        return replace(tensor_input, shape=shape, stride=stride)
    cut = tensor_input.data[tuple(slice(size) for size in shape)]
    data = torch.empty_strided(shape, stride, dtype=tensor_input.dtype, device=tensor_input.data.device).copy_(cut)
    return tensor_input.with_data(data, f"{tensor_input.token}[{shape}]")


def _dense_stride(tensor_input: TensorInput, shape: Shape) -> Shape:
    order = sorted(range(len(shape)), key=lambda dim: (tensor_input.stride[dim], tensor_input.shape[dim], -dim))
    stride, step = [0] * len(shape), 1
    for dim in order:
        stride[dim] = step
        step *= max(shape[dim], 1)
    return tuple(stride)


def _groups(inputs: Sequence[Input]) -> list[list[int]]:
    """The positions of inputs that lie in one memory, and those of inputs that overlap themselves."""
    found: dict[object, list[int]] = {}
    for position, tensor_input in enumerate(inputs):
        if isinstance(tensor_input, TensorInput) and 0 not in tensor_input.shape:
            held = tensor_input.fill == "data" and tensor_input.data is not None
            found.setdefault(
                tensor_input.data.untyped_storage().data_ptr() if held and tensor_input.data is not None else -1 - position, []
            ).append(position)
    return [group for group in found.values() if len(group) > 1 or _overlaps(inputs[group[0]])]


def _overlaps(tensor_input: Input) -> bool:
    return isinstance(tensor_input, TensorInput) and overlaps_itself(tensor_input.shape, tensor_input.stride)


def _in_smaller_memory(members: Mapping[int, TensorInput], shapes: Mapping[int, Shape], way: Way) -> dict[int, TensorInput]:
    old = [
        View(member.shape, member.stride, 0 if member.data is None else int(member.data.storage_offset())) for member in members.values()
    ]
    wanted = [shapes.get(position, tensor_input.shape) for position, tensor_input in members.items()]
    first = min(view.offset for view in old) if way == "from the first" else 0
    new = None
    if way != "in place" and len({item.dtype for item in members.values()}) == 1:
        new = shrunk([replace(view, offset=view.offset - first) for view in old], wanted)
    if new is None or sum(math.prod(_distinct(*pair)) for pair in zip(old, new, strict=True)) > _MOST_MOVED:
        return {position: _cut(element, shape) for (position, element), shape in zip(members.items(), wanted, strict=True)}
    if any(entry.data is None for entry in members.values()):
        return {
            position: replace(one, shape=view.shape, stride=view.stride) for (position, one), view in zip(members.items(), new, strict=True)
        }
    return dict(zip(members, _moved(list(members.values()), old, new), strict=True))


def _cut(tensor_input: TensorInput, shape: Shape) -> TensorInput:
    if tensor_input.data is None:
        return replace(tensor_input, shape=shape)
    if shape == tensor_input.shape:
        return tensor_input
    return tensor_input.with_data(tensor_input.data[tuple(slice(size) for size in shape)], f"{tensor_input.token}[{shape} in place]")


def _moved(members: Sequence[TensorInput], old: Sequence[View], new: Sequence[View]) -> list[TensorInput]:
    """The tensors in new memory; where several would put a value at one place, the one that lay first does."""
    data = members[0].data
    assert data is not None
    bytes_of = torch.empty(0, dtype=torch.uint8, device=data.device).set_(data.untyped_storage())
    rows = bytes_of[: bytes_of.numel() // data.itemsize * data.itemsize].view(-1, data.itemsize)
    sources = torch.full((max(view.end for view in new),), len(rows))
    for before, after in zip(old, new, strict=True):
        shape = _distinct(before, after)
        sources.scatter_reduce_(0, _places(after, shape), _places(before, shape), "amin")
    memory = torch.zeros(len(sources), data.itemsize, dtype=torch.uint8, device=data.device)
    used = sources < len(rows)
    memory[used.to(data.device)] = rows[sources[used].to(data.device)]
    flat = memory.view(-1).view(data.dtype)
    name = sha256(repr([(tensor_input.token, *pair) for tensor_input, *pair in zip(members, old, new, strict=True)]).encode()).hexdigest()[
        :12
    ]
    return [
        item.with_data(flat.as_strided(view.shape, view.stride, view.offset), f"{item.token}[{name}]")
        for item, view in zip(members, new, strict=True)
    ]


def _distinct(before: View, after: View) -> Shape:
    """The shape without what is the same element again, as in an expanded tensor."""
    steps = zip(after.shape, before.stride, after.stride, strict=True)
    return tuple(1 if old == 0 and (new == 0 or size == 1) else size for size, old, new in steps)


def _places(view: View, shape: Shape) -> torch.Tensor:
    """Where the elements of the first `shape` of a view lie in its memory."""
    places = torch.tensor([view.offset])
    for size, step in zip(shape, view.stride, strict=True):
        places = (places[:, None] + torch.arange(size) * step).reshape(-1)
    return places
