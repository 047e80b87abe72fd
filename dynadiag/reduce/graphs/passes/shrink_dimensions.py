"""Sizes shrink: everywhere where a number occurs at once (inputs and arguments of operators), with its multiples, or in one place alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import getitem
from typing import Any

from torch.fx import Graph, Node

from dynadiag.reduce.graphs.candidate import Candidate, graphs_in, leaves
from dynadiag.reduce.graphs.inputs import Input, TensorInput
from dynadiag.reduce.graphs.memory import Shape
from dynadiag.reduce.graphs.passes.editing import call_positions, change_numbers, edited, node_at, with_calls, with_inputs
from dynadiag.reduce.graphs.resizing import resized

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
