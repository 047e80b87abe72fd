"""Sizes shrink: everywhere where a number occurs at once (inputs and arguments of operators), with its multiples, or in one place alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from torch.fx import Graph

from dynadiag.reduce.candidate import CALLS, Candidate
from dynadiag.reduce.inputs import Input, TensorInput
from dynadiag.reduce.memory import Shape
from dynadiag.reduce.passes.editing import edited, map_constants, with_calls
from dynadiag.reduce.resizing import resized

_TARGETS = (1, 2, 3, 4)
Change = Callable[[int], int]


def shrink_dimensions(candidate: Candidate) -> Iterator[Candidate]:
    """All sizes at once, then one number at a time (the largest first), then single dimensions of single inputs, then leading ones away."""
    tensors = [one for call in candidate.calls for one in call.inputs if isinstance(one, TensorInput)]
    sizes = sorted({size for one in tensors for size in one.shape if size > 1}, reverse=True)
    for target in _TARGETS[:2] + _TARGETS[3:] if sizes else ():
        yield from _everywhere(candidate, lambda size, target=target: min(size, target))  # type: ignore[misc]
    for size in sizes:
        for target in _targets(size):
            yield from _everywhere(candidate, lambda other, size=size, target=target: target if other == size else other)  # type: ignore[misc]
            yield from _everywhere(candidate, lambda other, size=size, target=target: _scaled(other, size, target))  # type: ignore[misc]
    yield from _single_dimensions(candidate)
    yield from _fewer_dimensions(candidate)


def _targets(size: int) -> list[int]:
    """Smaller sizes worth a try: the smallest, the half, one less."""
    return sorted({target for target in (*_TARGETS, size // 2, size - 1) if 0 < target < size})


def _scaled(other: int, size: int, target: int) -> int:
    return other // size * target if other and other % size == 0 else other


def _everywhere(candidate: Candidate, change: Change) -> Iterator[Candidate]:
    """The change in inputs and arguments, then in inputs alone."""

    def edit(graph: Graph) -> None:
        for node in graph.nodes:
            if node.op in CALLS:
                map_constants(node, lambda value: change(value) if type(value) is int and value > 1 else value)

    ways = [list(resized(call.inputs, _changed(call.inputs, change))) for call in candidate.calls]
    for number in range(max(map(len, ways))):
        calls = [way[min(number, len(way) - 1)] for way in ways]
        yield edited(candidate, edit, calls)
        yield with_calls(candidate, calls)


def _changed(inputs: Sequence[Input], change: Change) -> dict[int, Shape]:
    """The shapes of the inputs that change, by their positions."""
    old = {position: one.shape for position, one in enumerate(inputs) if isinstance(one, TensorInput)}
    new = {position: tuple(change(size) if size > 1 else size for size in shape) for position, shape in old.items()}
    return {position: shape for position, shape in new.items() if shape != old[position]}


def _single_dimensions(candidate: Candidate) -> Iterator[Candidate]:
    for number, call in reversed(list(enumerate(candidate.calls))):
        for position, one in enumerate(call.inputs):
            for dim, size in enumerate(one.shape if isinstance(one, TensorInput) else ()):
                for target in _targets(size):
                    assert isinstance(one, TensorInput)
                    calls: list[Sequence[Input]] = [other.inputs for other in candidate.calls]
                    for inputs in resized(call.inputs, {position: (*one.shape[:dim], target, *one.shape[dim + 1 :])}):
                        calls[number] = inputs
                        yield with_calls(candidate, calls)


def _fewer_dimensions(candidate: Candidate) -> Iterator[Candidate]:
    """The first dimension of all inputs of the highest rank goes, when it is one."""
    tensors = [one for call in candidate.calls for one in call.inputs if isinstance(one, TensorInput)]
    rank = max((len(one.shape) for one in tensors), default=0)
    if not rank or any(one.shape[0] != 1 for one in tensors if len(one.shape) == rank):
        return

    def shorter(one: Input) -> Input:
        return _without_first(one) if isinstance(one, TensorInput) and len(one.shape) == rank else one

    yield with_calls(candidate, [[shorter(one) for one in call.inputs] for call in candidate.calls])


def _without_first(one: TensorInput) -> TensorInput:
    if one.fill == "data" and one.data is not None:
        return one.with_data(one.data[0], f"{one.token}[0]")
    return replace(one, shape=one.shape[1:], stride=one.stride[1:])
