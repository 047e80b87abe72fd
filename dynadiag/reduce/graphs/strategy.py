"""The order of things: cut, one-minimal, then simplification passes until none of them helps any more."""

from __future__ import annotations

import itertools
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from dynadiag.reduce.core import search
from dynadiag.reduce.core.reducer import Oracle, Phase, Reducer, Stopped
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.cutting import Cutter
from dynadiag.reduce.graphs.passes import ALL_PASSES, ReductionPass
from dynadiag.reduce.graphs.passes.fewer_calls import fewer_calls

_FRUITLESS_LIMIT = 400
_CHANCES: dict[Phase, float] = {"cut": 0.5, "minimal": 0.1}
"""How often a question is answered with yes: decides which questions are worth asking ahead, and nothing else."""


class GraphOracle(Oracle[Candidate], Protocol):
    """Judges graphs, and runs them without the compiler."""

    def values(self, candidate: Candidate) -> Mapping[str, Any]:
        """The value of each node in a run without the compiler. Raises what the graph raises."""
        ...


class GraphReducer(Reducer[Candidate]):
    """The reducer of graphs: it knows the values of their nodes too."""

    _oracle: GraphOracle

    def values(self) -> Mapping[str, Any]:
        """The values of the nodes of the best candidate."""
        return self._oracle.values(replace(self.best, earlier=()))

    def earlier_values(self) -> list[Mapping[str, Any]]:
        """The same in each of its earlier calls."""
        return [self._oracle.values(replace(self.best, inputs=call.inputs, earlier=())) for call in self.best.earlier]


def reduce_fully(reducer: GraphReducer, *, simplify: bool = True, passes: Sequence[ReductionPass] = ALL_PASSES) -> bool:
    """Make the reducer's best candidate as simple as can be; False when the search was stopped before its end."""
    try:
        _run_pass(reducer, fewer_calls, ())
        _cut(reducer)
        _one_minimal(reducer)
        while simplify and _simplify(reducer, passes):
            _one_minimal(reducer)
    except Stopped:
        return False
    return True


def _cut(reducer: GraphReducer) -> None:
    cutter = Cutter(reducer.best, reducer.values(), reducer.earlier_values())
    _searched(reducer, cutter, lambda fails: search.cut(cutter.items, fails, blocks=cutter.block_of), "cut")


def _one_minimal(reducer: GraphReducer) -> None:
    cutter = Cutter(reducer.best, reducer.values(), reducer.earlier_values())
    _searched(reducer, cutter, lambda fails: search.one_minimal(cutter.items, fails), "minimal")


def _searched(reducer: GraphReducer, cutter: Cutter, procedure: Callable[[search.Fails], object], phase: Phase) -> None:
    """Run the search; what it may ask next follows from its answers so far."""
    answers: list[bool] = []

    def upcoming() -> Iterator[Candidate]:
        return map(cutter.build, search.foresee(procedure, answers, chance=_CHANCES[phase]))

    def fails(kept: frozenset[int]) -> bool:
        # A cut runs wherever the original ran: its inputs are the values that the original had there.
        candidate = cutter.build(kept)
        answers.append(candidate.key == reducer.best.key or reducer.offer(candidate, phase, checked=True, upcoming=upcoming))
        return answers[-1]

    procedure(fails)


def _simplify(reducer: GraphReducer, passes: Sequence[ReductionPass]) -> bool:
    """One round of all passes; whether anything was adopted."""
    adopted = [_run_pass(reducer, function, passes[position + 1 :]) for position, function in enumerate(passes)]
    return any(adopted)


def _run_pass(reducer: GraphReducer, reduction: ReductionPass, later: Sequence[ReductionPass]) -> bool:
    """Offer what a pass proposes; after each adoption it proposes anew, from the new best."""
    adopted, again = False, True
    while again:
        again = False
        proposals = _Proposals(reduction(reducer.best))
        for proposal in itertools.islice(proposals, _FRUITLESS_LIMIT):
            if reducer.offer(proposal, "simplify", upcoming=lambda: _upcoming(reducer, reduction, later, proposals, proposal)):  # noqa: B023
                adopted = again = True
                break
        if proposals.broken is not None:
            reducer.broken_passes[getattr(reduction, "__name__", repr(reduction))] = proposals.broken
    return adopted


def _upcoming(
    reducer: GraphReducer, reduction: ReductionPass, later: Sequence[ReductionPass], proposals: _Proposals, asked: Candidate
) -> Iterator[Candidate]:
    """What comes when the one that is asked is not adopted, and what comes when it is, by turns."""
    behind = itertools.chain.from_iterable(_Proposals(function(reducer.best)).coming() for function in later)
    refused = itertools.chain(proposals.coming(), behind)
    adopted = itertools.chain.from_iterable(_Proposals(callback(asked)).coming() for callback in (reduction, *later))
    for pair in itertools.zip_longest(refused, adopted):
        yield from (candidate for candidate in pair if candidate is not None)


class _Proposals:
    """What a pass proposes, which may be looked at before its turn; one that breaks proposes nothing more: `broken` is its traceback."""

    def __init__(self, proposals: Iterator[Candidate]) -> None:
        self.broken: str | None = None
        self._left = proposals
        self._seen: deque[Candidate] = deque()
        self._error: str | None = None

    def __iter__(self) -> Iterator[Candidate]:
        while self._seen or self._look():
            yield self._seen.popleft()
        self.broken = self._error

    def coming(self) -> Iterator[Candidate]:
        """The next ones, which stay next."""
        for position in itertools.count():
            if position >= len(self._seen) and not self._look():
                return
            yield self._seen[position]

    def _look(self) -> bool:
        try:
            self._seen.append(next(self._left))
        except StopIteration:
            return False
        except Exception:  # noqa: BLE001 - the border around one pass
            self._error, self._left = traceback.format_exc(), iter(())
            return False
        return True
