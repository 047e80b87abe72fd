"""Finds what repeats in a sequence of operators: blocks that follow one another with the same operators and the same wiring inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

REPEATS_AT_MOST = 16
_CANDIDATES = 24
_GRAM = 3
_PHASES_AT_MOST = 400
_WORK_AT_MOST = 400_000


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` blocks of `length` nodes each, the first at `start`."""

    start: int
    length: int
    count: int

    @property
    def end(self) -> int:
        """The position behind the last block."""
        return self.start + self.length * self.count


Phase = Callable[[int, int], tuple[float, ...]]
"""How good a block is that begins here and has this length: the smallest wins."""


def repeats(tokens: Sequence[Hashable], sources: Sequence[Sequence[int]], phase: Phase, *, least: int = 6) -> list[Repeat]:
    """The repeats worth folding in order, none inside another: each saves at least `least` nodes, the one that saves most is taken first;
    the longest parts without one are searched first, up to `REPEATS_AT_MOST` are found.

    Args:
        tokens: what each node does; equal tokens may be the same step of two blocks.
        sources: by node, the positions that it uses. Blocks are alike only when what they use inside themselves is.
        phase: where a block begins, when there is a choice.
        least: nodes that folding must save.
    """
    known: dict[Hashable, int] = {}
    numbers = [known.setdefault(token, len(known)) for token in tokens]
    found: list[Repeat] = []
    waiting = [(0, len(numbers))]
    while waiting and len(found) < REPEATS_AT_MOST:
        waiting.sort(key=lambda part: part[1] - part[0])
        low, high = waiting.pop()
        best = _best(numbers, low, high, sources, phase, least) if high - low > least else None
        if best is not None:
            found.append(best)
            waiting += [(low, best.start), (best.end, high)]
    return sorted(found, key=lambda repeat: repeat.start)


def _best(numbers: Sequence[int], low: int, high: int, sources: Sequence[Sequence[int]], phase: Phase, least: int) -> Repeat | None:
    """The repeat between these positions that saves most and is wired alike."""
    runs = [run for period in _candidates(numbers, low, high) for run in _runs(numbers, low, high, period)]
    runs.sort(key=lambda run: (-(run[1] - run[0] - run[2]), run[2], run[0]))
    for start, end, period in runs[:_CANDIDATES]:
        if (end - start) // period * period - period < least:
            continue
        repeat = _wired(_aligned(start, end, period, phase), sources)
        if repeat is not None and (repeat.count - 1) * repeat.length >= least:
            return repeat
    return None


def _candidates(numbers: Sequence[int], low: int, high: int) -> list[int]:
    """Distances at which the same few operators come again, the most frequent first; never 1, which is one operator many times."""
    last: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for position in range(low, high - _GRAM + 1):
        gram = tuple(numbers[position : position + _GRAM])
        if (before := last.get(gram)) is not None:
            distances[position - before] += 1
        last[gram] = position
    weighed = sorted(distances.items(), key=lambda item: (-item[1] - item[0] / 2, item[0]))
    return [distance for distance, _ in weighed if distance > 1][:_CANDIDATES]


def _runs(numbers: Sequence[int], low: int, high: int, period: int) -> Iterator[tuple[int, int, int]]:
    """The longest stretches in which each node is that of one period before: start, end, period; at least two blocks long."""
    same = map(int.__eq__, numbers[low + period : high], numbers[low : high - period])
    position = low
    for equal, members in groupby(same):
        length = sum(1 for _ in members)
        if equal and length >= period:
            yield position, position + length + period, period
        position += length


def _aligned(start: int, end: int, period: int, phase: Phase) -> Repeat:
    """Where the blocks of a stretch begin; a stretch is often longer than its blocks, since what surrounds them is alike."""
    slack = min((end - start) % period, period - 1, _PHASES_AT_MOST, max(_WORK_AT_MOST // period, 0))
    best = min(range(start, start + slack + 1), key=lambda first: (*phase(first, period), first))
    return Repeat(best, period, (end - best) // period)


def _wired(repeat: Repeat, sources: Sequence[Sequence[int]]) -> Repeat | None:
    """The longest part whose blocks use the same nodes inside themselves."""

    def inside(block: int) -> list[tuple[int, ...]]:
        first = repeat.start + block * repeat.length
        return [tuple(source - first for source in sources[first + step] if source >= first) for step in range(repeat.length)]

    shapes = [inside(block) for block in range(repeat.count)]
    best, position = Repeat(repeat.start, repeat.length, 0), 0
    for _, members in groupby(shapes):
        count = len(list(members))
        if count > best.count:
            best = Repeat(repeat.start + position * repeat.length, repeat.length, count)
        position += count
    return best if best.count > 1 else None
