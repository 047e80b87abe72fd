"""A search with cheap questions; where its result does not show the failure in a whole run too, a thorough one after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dynadiag.reduce.core.journal import Journal
from dynadiag.reduce.core.reducer import Progress
from dynadiag.reduce.core.verdict import Verdict
from dynadiag.reduce.scripts.oracle import ScriptOracle
from dynadiag.reduce.scripts.passes import ScriptPass
from dynadiag.reduce.scripts.program import Program
from dynadiag.reduce.scripts.strategy import ScriptReducer


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
