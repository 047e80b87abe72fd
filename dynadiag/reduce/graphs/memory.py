"""How tensors lie in one memory, and how they could lie in a smaller one such that what met there meets again. No torch here.

An address is written in the strides that occur, as a number is in its digits: each tensor covers a range of each digit. Ranges are made
shorter under two conditions: their ends stay in their order, and those that overlapped overlap.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]
Range = tuple[int, int]


@dataclass(frozen=True)
class View:
    """A tensor in its memory; strides and offset in elements."""

    shape: Shape
    stride: Shape
    offset: int = 0

    @property
    def end(self) -> int:
        """How many elements the memory must have; one of no element needs none."""
        return (
            0 if 0 in self.shape else self.offset + 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        )


def overlaps_itself(shape: Shape, stride: Shape) -> bool:
    """Whether two elements may lie at one place; seldom also of one where none do (strides that are no multiples of each other)."""
    reach = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size > 1):
        if step < reach:
            return 0 not in shape
        reach += step * (size - 1)
    return False


def shrunk(views: Sequence[View], shapes: Sequence[Shape]) -> tuple[View, ...] | None:
    """The views with smaller shapes in a memory as small as possible; None when their ranges cannot keep their order."""
    steps = sorted(
        {step for view in views for size, step in zip(view.shape, view.stride, strict=True) if size > 1 and step} | {1}, reverse=True
    )
    digits = [_digits(view.offset, steps) for view in views]
    new: dict[int, int] = {0: 0}
    offsets = [0] * len(views)
    below: list[tuple[int, int]] = [(1, 1)] * len(views)  # how far each view reaches in the smaller steps, before and afterwards
    for step in reversed(steps):
        old = [(digit[step], digit[step] + _length(view.shape, view.stride, step)) for view, digit in zip(views, digits, strict=True)]
        lengths = [_length(shape, view.stride, step) for view, shape in zip(views, shapes, strict=True)]
        ranges = _shorter(old, lengths)
        if ranges is None:
            return None
        new[step] = _step(step, old, below, new)
        for position, (start, end) in enumerate(ranges):
            offsets[position] += start * new[step]
            reach = below[position]
            below[position] = reach[0] + (old[position][1] - 1) * step, reach[1] + (end - 1) * new[step]
    return tuple(View(shape, _strides(shape, view.stride, new), offset) for view, shape, offset in zip(views, shapes, offsets, strict=True))


def _digits(offset: int, steps: Sequence[int]) -> dict[int, int]:
    digits = {}
    for step in steps:
        digits[step], offset = divmod(offset, step)
    return digits


def _length(shape: Shape, stride: Shape, step: int) -> int:
    return 1 + sum(size - 1 for size, own in zip(shape, stride, strict=True) if own == step and size > 1)


def _shorter(ranges: Sequence[Range], lengths: Sequence[int]) -> list[Range] | None:
    """The ranges with these lengths: their ends different where they were, else at least in their order."""
    ends = sorted({end for range_ in ranges for end in range_})
    for apart in (1, 0):
        bounds = [(left, right, apart) for left, right in itertools.pairwise(ends)]
        bounds += [(start, end, length) for (start, end), length in zip(ranges, lengths, strict=True)]
        bounds += [(end, start, -length) for (start, end), length in zip(ranges, lengths, strict=True)]
        bounds += [(pair[0], other[1], 1) for pair, other in itertools.permutations(ranges, 2) if other[0] <= pair[0] < other[1]]
        found = _least(ends, bounds)
        if found is not None:
            return [(found[start], found[end]) for start, end in ranges]
    return None


def _least(points: Sequence[int], bounds: Sequence[tuple[int, int, int]]) -> dict[int, int] | None:
    """The smallest numbers with `number[right] >= number[left] + distance` for all bounds; None when there are none (Bellman and Ford)."""
    numbers = dict.fromkeys(points, 0)
    for _ in range(len(points) + 1):
        changed = False
        for left, right, distance in bounds:
            if numbers[right] < numbers[left] + distance:
                numbers[right] = numbers[left] + distance
                changed = True
        if not changed:
            return numbers
    return None


def _step(step: int, old: Sequence[Range], below: Sequence[tuple[int, int]], new: Mapping[int, int]) -> int:
    """What becomes of a stride: behind all that lies in the smaller steps, unless it overlapped that."""
    users = [reach for (start, end), reach in zip(old, below, strict=True) if end - start > 1] or list(below)
    before, after = (max(reach[which] for reach in users) for which in (0, 1))
    if step >= before:
        return after
    smaller = max(number for number in new if number < step)
    return max(1, new[smaller] * max(1, min(step // max(smaller, 1), -(-after // max(new[smaller], 1)) - 1)))


def _strides(shape: Shape, stride: Shape, new: Mapping[int, int]) -> Shape:
    """The strides of the sizes that are left; those of one element are as in a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for size, old in zip(reversed(shape), reversed(stride), strict=True):
        strides.insert(0, new[old] if size > 1 else step)
        step = strides[0] * max(size, 1)
    return tuple(strides)
