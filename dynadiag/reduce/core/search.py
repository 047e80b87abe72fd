"""The search for a smallest set of operators that still fails: on numbers only, so that it can be tested without a graph.

Method: bisection from the end, which finds the last needed operator; it alone, then it with what it reads; bisection from the beginning;
then galloping deletion (the longest run that can go, found by halving) between the first and the last, first over blocks of operators of
one module, then over single operators; then one operator at a time until none can go (one-minimal, as in delta debugging: Zeller and
Hildebrandt, "Simplifying and isolating failure-inducing input", 2002). For k needed operators among n this asks about k log2 n questions.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence, Set

Fails = Callable[[frozenset[int]], bool]
_FEW = 0.5
"""What share of the items may be chosen ones for these to be asked alone: else too little is won."""


def cut(
    items: Sequence[int],
    fails: Fails,
    *,
    blocks: Callable[[int], Hashable] | None = None,
    near: Callable[[int], Set[int]] | None = None,
    between: Callable[[int, int], Set[int]] | None = None,
) -> tuple[int, ...]:
    """A subset of `items` (in their order) that fails, found by bisection and galloping; `fails` must hold for all of them.

    `blocks` names the module of an item; neighbours with one name are tried together first. `near` gives the items whose values an item
    reads, over a few others: with the last needed item they are tried alone. `between` gives the items on the ways by which a value gets
    from one item to another: once the first and the last needed item are known, all others are tried to go at once.
    """
    if len(items) <= 1:
        return tuple(items)
    shortest = _bisect(len(items), lambda length: fails(frozenset(items[:length])))
    kept = list(items[:shortest])
    if len(kept) == 1 or fails(frozenset(kept[-1:])):
        return (kept[-1],)
    if near is not None:
        kept = _within(kept, near(kept[-1]), fails)
    longest_gone = len(kept) - _bisect(len(kept), lambda length: fails(frozenset(kept[len(kept) - length :])))
    kept = kept[longest_gone:]
    if len(kept) <= 2:
        return tuple(kept)
    if fails(frozenset((kept[0], kept[-1]))):
        return kept[0], kept[-1]
    if between is not None:
        kept = _within(kept, between(kept[0], kept[-1]), fails)
    if blocks is not None:
        runs = [list(run) for _, run in itertools.groupby(kept, key=blocks)]
        if 2 < len(runs) < len(kept):
            kept = [item for run in _gallop(runs, fails) for item in run]
    return tuple(item for run in _gallop([[item] for item in kept], fails) for item in run)


def _within(kept: list[int], chosen: Set[int], fails: Fails) -> list[int]:
    """Only the chosen items, where these are few and fail alone."""
    inside = [item for item in kept if item in chosen]
    return inside if 2 <= len(inside) <= _FEW * len(kept) and fails(frozenset(inside)) else kept


def one_minimal(items: Sequence[int], fails: Fails) -> tuple[int, ...]:
    """A subset of which no single item can be left out, found by leaving them out one at a time, the last first."""
    kept = list(items)
    changed = True
    while changed and len(kept) > 1:
        changed = False
        for item in reversed(list(kept)):
            fewer = [other for other in kept if other != item]
            if fewer and fails(frozenset(fewer)):
                kept, changed = fewer, True
    return tuple(kept)


def _bisect(length: int, holds_at: Callable[[int], bool]) -> int:
    """The smallest length at which it holds, if it does at longer ones; a length at which it was seen to hold in any case."""
    below, holding = 0, length
    while holding - below > 1:
        middle = (below + holding) // 2
        if holds_at(middle):
            holding = middle
        else:
            below = middle
    return holding


def _gallop(runs: list[list[int]], fails: Fails) -> list[list[int]]:
    """From left to right: delete the longest row of runs that can go, keep the run behind it, go on. The first and the last are needed."""
    kept, position = list(runs), 1
    while position < len(kept) - 1:
        gone = _longest_deletion(kept, position, fails)
        del kept[position : position + gone]
        position += 1
    return kept


def _longest_deletion(runs: list[list[int]], position: int, fails: Fails) -> int:
    def fails_without(count: int) -> bool:
        return fails(frozenset(item for run in (*runs[:position], *runs[position + count :]) for item in run))

    most = len(runs) - 1 - position
    return most if fails_without(most) else _bisect(most, lambda count: not fails_without(count)) - 1


def foresee(procedure: Callable[[Fails], object], answers: Sequence[bool], *, chance: float) -> Iterator[frozenset[int]]:
    """The questions that `procedure` may ask after the one that follows `answers`, the likeliest first, each once.

    `procedure` asks the function that it is given, and nothing else decides what it asks next; it is run again for each guess. `chance` is
    how probable it is that an answer is yes.
    """
    found: set[frozenset[int]] = set()
    guesses: list[tuple[float, tuple[bool, ...]]] = [(-1.0, ())]
    while guesses:
        weight, guess = heapq.heappop(guesses)
        question = _next_question(procedure, [*answers, *guess])
        if question is None:
            continue
        if guess and question not in found:
            found.add(question)
            yield question
        for answer in (False, True):
            heapq.heappush(guesses, (weight * (chance if answer else 1 - chance), (*guess, answer)))


class _AskedError(Exception):
    """The first question without an answer."""


def _next_question(procedure: Callable[[Fails], object], answers: Sequence[bool]) -> frozenset[int] | None:
    left, asked = list(reversed(answers)), []

    def fails(kept: frozenset[int]) -> bool:
        if left:
            return left.pop()
        asked.append(kept)
        raise _AskedError

    try:
        procedure(fails)
    except _AskedError:
        return asked[0]
    return None
