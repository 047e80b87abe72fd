"""The order of things: cut, one-minimal, then simplification passes until none of them helps any more."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Iterator, Sequence

from dynadiag.reduce import search
from dynadiag.reduce.candidate import Candidate
from dynadiag.reduce.cutting import Cutter
from dynadiag.reduce.passes import ALL_PASSES, ReductionPass
from dynadiag.reduce.reducer import Phase, Reducer, Stopped

_FRUITLESS_LIMIT = 400


def reduce_fully(reducer: Reducer, *, simplify: bool = True, passes: Sequence[ReductionPass] = ALL_PASSES) -> bool:
    """Make the reducer's best candidate as simple as can be; False when the search was stopped before its end."""
    try:
        _cut(reducer)
        _one_minimal(reducer)
        while simplify and _simplify(reducer, passes):
            _one_minimal(reducer)
    except Stopped:
        return False
    return True


def _cut(reducer: Reducer) -> None:
    cutter = Cutter(reducer.best, reducer.values())
    search.cut(cutter.items, lambda kept: _still_fails(reducer, cutter, kept, "cut"), blocks=cutter.block_of)


def _one_minimal(reducer: Reducer) -> None:
    cutter = Cutter(reducer.best, reducer.values())
    search.one_minimal(cutter.items, lambda kept: _still_fails(reducer, cutter, kept, "minimal"))


def _still_fails(reducer: Reducer, cutter: Cutter, kept: frozenset[int], phase: Phase) -> bool:
    # A cut runs wherever the original ran: its inputs are the values that the original had there.
    candidate = cutter.build(kept)
    return candidate.key == reducer.best.key or reducer.offer(candidate, phase, checked=True)


def _simplify(reducer: Reducer, passes: Sequence[ReductionPass]) -> bool:
    """One round of all passes; whether anything was adopted."""
    adopted = [_run_pass(reducer, one) for one in passes]
    return any(adopted)


def _run_pass(reducer: Reducer, reduction: ReductionPass) -> bool:
    """Offer what a pass proposes; after each adoption it proposes anew, from the new best."""
    adopted, again = False, True
    while again:
        again = False
        for proposal in itertools.islice(_proposals(reducer, reduction), _FRUITLESS_LIMIT):
            if reducer.offer(proposal, "simplify"):
                adopted = again = True
                break
    return adopted


def _proposals(reducer: Reducer, reduction: ReductionPass) -> Iterator[Candidate]:
    """What a pass proposes; one that breaks is noted and proposes nothing more."""
    try:
        yield from reduction(reducer.best)
    except Exception:  # noqa: BLE001 - the border around one pass
        reducer.broken_passes[getattr(reduction, "__name__", repr(reduction))] = traceback.format_exc()
