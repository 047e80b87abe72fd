"""A search with cheap questions; where its result does not show the failure in a whole run too, a thorough one after it."""

from __future__ import annotations

import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dynadiag.reduce.core import search
from dynadiag.reduce.core.journal import Journal
from dynadiag.reduce.core.reducer import Phase, Progress, Reducer, Stopped
from dynadiag.reduce.core.verdict import Verdict
from dynadiag.reduce.scripts.oracle import ScriptOracle
from dynadiag.reduce.scripts.passes import ALL_PASSES, ScriptPass
from dynadiag.reduce.scripts.program import Program
from dynadiag.reduce.scripts.slicing import Slicer

_FRUITLESS_LIMIT = 400


@dataclass(kw_only=True)
class Rounds:
    """What the search has found. `complete` is False when it was stopped before its end."""

    best: Program
    almost: Program | None = None
    complete: bool = False
    queries: Counter[str] = field(default_factory=Counter)
    other_failures: Counter[str] = field(default_factory=Counter)
    broken_passes: dict[str, str] = field(default_factory=dict)


def reduce_in_rounds(
    program: Program,
    oracle: ScriptOracle,
    journal: Journal,
    first: Sequence[ScriptPass],
    on_query: Callable[[Progress], None] | None = None,
) -> Rounds:
    """Reduce with the oracle that stops compiling once it has seen the failure, then, if need be, with one that does not.

    What comes after the failure runs uncompiled in a cheap question, so a program may have been adopted that fails there when it is
    compiled (an error of the compiler's own): then the last program that passes whole is reduced by whole runs.
    """
    found = Rounds(best=program)
    search = _search(program, oracle, journal, on_query)
    found.complete = search.reduce(first=first)
    _take(found, search)
    thorough = oracle.thorough()
    if thorough is oracle:
        return found
    whole = _last_whole(search.adopted, thorough, cast(Journal, _Apart(journal)), found)
    if whole is program and len(search.adopted) > 1 and thorough.judge(program)[0] is not Verdict.INTERESTING:
        # The script itself shows it for some random numbers only: so may the result.
        thorough.seeds = ()
        whole = _last_whole(search.adopted, thorough, Journal(), found)
    oracle.add(thorough)
    if whole is not found.best:
        found.best, found.almost = whole, None
        if found.complete:
            again = _search(whole, thorough, cast(Journal, _Apart(journal)), on_query)
            found.complete = again.reduce(first=())
            _take(found, again)
            oracle.add(thorough)
    return found


def _search(program: Program, oracle: ScriptOracle, journal: Journal, on_query: Callable[[Progress], None] | None) -> ScriptReducer:
    if journal.get(program.key) is None:
        journal.put(program.key, Verdict.INTERESTING)
    return ScriptReducer(program, oracle, journal=journal, on_query=on_query)


def _take(found: Rounds, search: ScriptReducer) -> None:
    found.best, found.almost = search.best, search.almost
    found.queries += search.progress.queries
    found.other_failures += search.other_failures
    found.broken_passes |= search.broken_passes


def _last_whole(adopted: Sequence[Program], oracle: ScriptOracle, journal: Journal, found: Rounds) -> Program:
    """The smallest of the adopted programs that shows the failure in a whole run; the first one was confirmed so."""
    for program in reversed(adopted[1:]):
        known = journal.get(program.key)
        if known is None:
            known = oracle.judge(program)
            journal.put(program.key, *known)
            found.queries["minimal"] += 1
        if known[0] is Verdict.INTERESTING:
            return program
    return adopted[0]


class _Apart:
    """The journal with keys of its own for whole runs."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def get(self, key: str) -> Any:
        return self._journal.get(f"{key}-whole")

    def put(self, key: str, verdict: Verdict, remark: str = "") -> None:
        self._journal.put(f"{key}-whole", verdict, remark)


class ScriptReducer(Reducer[Program]):
    """The reducer of scripts, which knows each best program so far."""

    def __init__(self, program: Program, oracle: ScriptOracle, *, journal: Journal, on_query: Callable[[Progress], None] | None) -> None:
        super().__init__(program, oracle, journal=journal, on_query=on_query)
        self.adopted = [program]
        """Each best program so far, the original first."""

    def reduce(self, passes: Sequence[ScriptPass] = ALL_PASSES, *, first: Sequence[ScriptPass] = ()) -> bool:
        """Make the best program as simple as can be, `first` with passes that make each question cheaper; False when the search was
        stopped before its end.
        """
        try:
            self.confirm()
            for function in first:
                self._run_pass(function, "cut")
            self._delete("cut", search.cut)
            self._delete("minimal", _one_minimal)
            while self._simplified(passes):
                self._delete("minimal", _one_minimal)
        except Stopped:
            return False
        return True

    def _simplified(self, passes: Sequence[ScriptPass]) -> bool:
        """One round of all passes; whether anything was adopted."""
        adopted = [self._run_pass(pass_, "simplify") for pass_ in passes]
        return any(adopted)

    def _delete(self, phase: Phase, method: Callable[..., Any]) -> None:
        slicer = Slicer(self.best, whole_functions=phase == "cut")
        method(slicer.items, lambda kept: self._still_fails(slicer.build(kept), phase), blocks=slicer.block_of)

    def _still_fails(self, program: Program, phase: Phase) -> bool:
        return program.key == self.best.key or self._offer(program, phase)

    def _offer(self, program: Program, phase: Phase) -> bool:
        taken = self.offer(program, phase)
        self.adopted += [program] if taken else []
        return taken

    def _run_pass(self, reduction: ScriptPass, phase: Phase) -> bool:
        """Offer what a pass proposes; after each adoption it goes on at the same place of the new best.

        What came before that place was refused for a program that hardly differs; the next round asks again.
        """
        before, asked, again = self.best.key, 0, True
        while again:
            again = False
            for proposal in itertools.islice(self._proposals(reduction), asked, asked + _FRUITLESS_LIMIT):
                if self._offer(proposal, phase):
                    again = True
                    break
                asked += 1
        return self.best.key != before

    def _proposals(self, reduction: ScriptPass) -> Iterator[Program]:
        try:
            yield from reduction(self.best)
        except Exception:  # noqa: BLE001 - the border around one pass
            self.broken_passes[reduction.__name__] = traceback.format_exc()


def _one_minimal(items: Sequence[int], fails: search.Fails, *, blocks: object) -> tuple[int, ...]:
    return search.one_minimal(items, fails)
