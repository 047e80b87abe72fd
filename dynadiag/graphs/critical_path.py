"""The longest chain of calls of a graph: what has to happen one after the other, however much runs side by side.

The calls come in an order in which each reads earlier ones only, so one pass over them tells; importing networkx for it takes 0.5 s of CPU
time, and every picture has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """`calls` are the positions of the longest chain, in order; `most_bytes` is the largest sum of bytes that a chain makes.

    `most_bytes` is None where the size of a call's tensor is not known.
    """

    calls: tuple[int, ...]
    most_bytes: int | None


def critical_path(reads: Sequence[Sequence[int]], sizes: Sequence[int | None]) -> CriticalPath:
    """The longest chain by calls and by bytes: `reads` has the earlier calls that each call reads, `sizes` the bytes that it makes."""
    lengths: list[int] = []
    before: list[int | None] = []
    largest: list[int] = []
    for read, size in zip(reads, sizes, strict=True):
        longest = max(read, key=lengths.__getitem__, default=None)
        before.append(longest)
        lengths.append(1 if longest is None else 1 + lengths[longest])
        largest.append((size or 0) + max((largest[at] for at in read), default=0))
    chain: list[int] = []
    at = max(range(len(lengths)), key=lengths.__getitem__, default=None)
    while at is not None:
        chain.append(at)
        at = before[at]
    return CriticalPath(tuple(reversed(chain)), None if None in sizes else max(largest, default=0))
