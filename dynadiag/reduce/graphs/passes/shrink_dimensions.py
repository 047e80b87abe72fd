"""Sizes shrink: everywhere where a number occurs at once (inputs and arguments of operators), with its multiples, or in one place alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from operator import getitem
from typing import Any, Literal

import torch
from torch.fx import Graph, Node

from dynadiag.reduce.graphs.candidate import Candidate, graphs_in, leaves
from dynadiag.reduce.graphs.inputs import Input, TensorInput
from dynadiag.reduce.graphs.memory import Shape, View, overlaps_itself, shrunk
from dynadiag.reduce.graphs.passes.editing import call_positions, change_numbers, edited, node_at, with_calls, with_inputs

_TARGETS = (1, 2, 3, 4)
_LARGE = 4
Change = Callable[[int], int]


def shrink_dimensions(candidate: Candidate) -> Iterator[Candidate]:
    """All sizes at once, one number at a time (the largest first), sizes of parts, single dimensions of single inputs, leading ones."""
    tensors = [input_ for call in candidate.calls for input_ in call.inputs if isinstance(input_, TensorInput)]
    sizes = sorted({size for tensor in tensors for size in tensor.shape if size > 1}, reverse=True)
    for target in _TARGETS[:2] + _TARGETS[3:] if sizes else ():
        yield from _everywhere(candidate, lambda size, target=target: min(size, target))  # type: ignore[misc]
    for size in [*sizes, *_factors(candidate, sizes)]:
        for target in _targets(size):
            yield from _everywhere(candidate, lambda other, size=size, target=target: target if other == size else other)  # type: ignore[misc]
            yield from _everywhere(candidate, lambda other, size=size, target=target: _scaled(other, size, target))  # type: ignore[misc]
    yield from _equal_parts(candidate)
    yield from _single_dimensions(candidate)
    yield from _two_dimensions(candidate)
    yield from _fewer_dimensions(candidate)


def _targets(size: int) -> list[int]:
    """Smaller sizes worth a try: the smallest, the half, one less."""
    return sorted({target for target in (*_TARGETS, size // 2, size - 1) if 0 < target < size})


def _scaled(other: int, size: int, target: int) -> int:
    return other // size * target if other and other % size == 0 else other


def _factors(candidate: Candidate, sizes: Sequence[int]) -> list[int]:
    """Numbers in the graph that divide a size that is still large: `view(4, 7)` of 28."""
    graphs = [graph.graph for graph in graphs_in(candidate.module)]
    numbers = {
        leaf for graph in graphs for node in graph.nodes for leaf in leaves((node.args, node.kwargs)) if type(leaf) is int and leaf > 1
    }
    return sorted(
        {number for number in numbers if any(size > max(_LARGE, number) and size % number == 0 for size in sizes)} - {*sizes}, reverse=True
    )


def _equal_parts(candidate: Candidate) -> Iterator[Candidate]:
    """Sizes that add up to that of an input (`split([10, 22, 8])` of 40) become 1 or 2, those behind the last part that is read go."""
    sizes = {size for call in candidate.calls for input_ in call.inputs if isinstance(input_, TensorInput) for size in input_.shape}
    for position in call_positions(candidate):
        node = node_at(candidate.module.graph, position)
        given: list[Any] = [*node.args, *node.kwargs.values()]
        for parts in (value for value in given if _adds_up(value, sizes)):
            for count in sorted({_read_parts(node, len(parts)), max(2, _read_parts(node, len(parts))), len(parts)}):
                for size in (1, 2):
                    yield _in_parts(candidate, position, parts, [size] * count)


def _adds_up(value: Any, sizes: set[int]) -> bool:
    return (
        isinstance(value, list | tuple) and len(value) > 1 and all(type(item) is int and item > 0 for item in value) and sum(value) in sizes
    )


def _read_parts(node: Node, count: int) -> int:
    """How many of the first parts are enough: those that operators take, at least one."""
    takers = [user for user in node.users if user.op != "output"]
    read = [user.args[1] for user in takers if user.target is getitem]
    numbers = [sequence for sequence in read if isinstance(sequence, int) and 0 <= sequence < count]
    return max(numbers, default=0) + 1 if len(numbers) == len(takers) else count


def _in_parts(candidate: Candidate, position: int, parts: Sequence[int], new: Sequence[int]) -> Candidate:
    def change(size: int) -> int:
        return sum(new) if size == sum(parts) else new[0] if size in parts else size

    def edit(graph: Graph) -> None:
        node = node_at(graph, position)
        node.args = tuple(list(new) if value == parts else value for value in node.args)
        node.kwargs = {name: list(new) if value == parts else value for name, value in node.kwargs.items()}
        change_numbers(graph, change, but=node)

    return edited(candidate, edit, [next(resized(call.inputs, _changed(call.inputs, change))) for call in candidate.calls])


def _everywhere(candidate: Candidate, change: Change) -> Iterator[Candidate]:
    """The change in inputs and arguments, then in inputs alone."""

    def edit(graph: Graph) -> None:
        change_numbers(graph, change)

    ways = [list(resized(call.inputs, _changed(call.inputs, change))) for call in candidate.calls]
    for number in range(max(map(len, ways))):
        calls = [way[min(number, len(way) - 1)] for way in ways]
        yield edited(candidate, edit, calls)
        yield with_calls(candidate, calls)


def _changed(inputs: Sequence[Input], change: Change) -> dict[int, Shape]:
    """The shapes of the inputs that change, by their positions."""
    old = {position: tensor_input.shape for position, tensor_input in enumerate(inputs) if isinstance(tensor_input, TensorInput)}
    new = {position: tuple(change(size) if size > 1 else size for size in shape) for position, shape in old.items()}
    return {position: shape for position, shape in new.items() if shape != old[position]}


def _single_dimensions(candidate: Candidate) -> Iterator[Candidate]:
    for number, call in reversed(list(enumerate(candidate.calls))):
        for position, tensor_input in enumerate(call.inputs):
            for dim, size in enumerate(tensor_input.shape if isinstance(tensor_input, TensorInput) else ()):
                for target in _targets(size):
                    assert isinstance(tensor_input, TensorInput)
                    calls: list[Sequence[Input]] = [other.inputs for other in candidate.calls]
                    for inputs in resized(call.inputs, {position: (*tensor_input.shape[:dim], target, *tensor_input.shape[dim + 1 :])}):
                        calls[number] = inputs
                        yield with_calls(candidate, calls)


def _two_dimensions(candidate: Candidate) -> Iterator[Candidate]:
    """One that is still large and another one by the same factor: channels of a grouped convolution and those of its weight."""
    inputs = candidate.inputs
    places = [
        (at, dim, size)
        for at, tensor_input in enumerate(inputs)
        if isinstance(tensor_input, TensorInput)
        for dim, size in enumerate(tensor_input.shape)
    ]
    for at, dim, size in places:
        for factor in [size // target for target in _TARGETS if size > _LARGE and size % target == 0]:
            for other in places:
                if other[:2] != (at, dim) and other[2] >= factor and other[2] % factor == 0:
                    shapes = {place: inputs[place].shape for place in (at, other[0])}  # type: ignore[union-attr]
                    for place, which, old in ((at, dim, size), other):
                        shape = shapes[place]
                        shapes[place] = (*shape[:which], old // factor, *shape[which + 1 :])
                    for made in resized(inputs, shapes):
                        yield with_inputs(candidate, made)


def _fewer_dimensions(candidate: Candidate) -> Iterator[Candidate]:
    """The first dimension of all inputs of the highest rank goes, when it is one."""
    tensors = [input_ for call in candidate.calls for input_ in call.inputs if isinstance(input_, TensorInput)]
    rank = max((len(tensor.shape) for tensor in tensors), default=0)
    if not rank or any(tensor_input.shape[0] != 1 for tensor_input in tensors if len(tensor_input.shape) == rank):
        return

    def shorter(item: Input) -> Input:
        return _without_first(item) if isinstance(item, TensorInput) and len(item.shape) == rank else item

    yield with_calls(candidate, [[shorter(element) for element in call.inputs] for call in candidate.calls])


def _without_first(tensor_input: TensorInput) -> TensorInput:
    if tensor_input.fill == "data" and tensor_input.data is not None:
        return tensor_input.with_data(tensor_input.data[0], f"{tensor_input.token}[0]")
    return replace(tensor_input, shape=tensor_input.shape[1:], stride=tensor_input.stride[1:])


# The inputs of a call with smaller shapes: what shares memory, or overlaps itself, shares and overlaps as before where that can be.

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
