"""Which changes are kept: each is proven on top of those before it, in the findings' order; what cures nothing in the end goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dynadiag.fix.candidates import Candidate
from dynadiag.fix.edits import EditError
from dynadiag.fix.proof import Prover, Verdict, fingerprints
from dynadiag.model.report import Report

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A change and what came of it: `kept`, or why not."""

    candidate: Candidate
    kept: bool
    why: str | None
    verdict: Verdict | None = None


@dataclass(kw_only=True)
class Search:
    """`until` is the time (of `time.monotonic`) after which nothing more is tried."""

    prover: Prover
    until: float
    say: Say
    kept: list[Candidate] = field(default_factory=list)
    tried: dict[str, Tried] = field(default_factory=dict)

    def run(self, candidates: Sequence[Candidate]) -> None:
        """Try all; those that another change hid or stood in the way of are tried once more when something was kept since."""
        assert self.prover.compiled.report is not None
        now = self.prover.compiled.report
        left, first = list(candidates), True
        while left:
            kept = len(self.kept)
            for number, one in enumerate(left, start=1):
                self.say(f"proving change {number} of {len(left)}: {one.slug}")
                now = self._try(one, now)
            # What left a finding, or brought one, may not do so beside what was kept later.
            left = [one for one in left if (found := self.tried[one.id].verdict) is not None and found.by_findings]
            if not first or len(self.kept) == kept:
                break
            first = False
        self._drop_idle()

    def _try(self, one: Candidate, now: Report) -> Report:
        if time.monotonic() > self.until:
            self.tried[one.id] = Tried(candidate=one, kept=False, why="not tried: the time limit was reached")
            return now
        if not set(one.cures) & fingerprints(now):
            known = fingerprints(self.prover.compiled.report) if self.prover.compiled.report is not None else set()
            gone = bool(set(one.cures) & known)
            why = "another change has cured it already" if gone else f"the finding does not show with backend {self.prover.backend}"
            self.tried[one.id] = Tried(candidate=one, kept=False, why=why)
            return now
        try:
            verdict = self.prover.prove([*self.kept, one], one, now)
        except EditError as error:
            self.tried[one.id] = Tried(candidate=one, kept=False, why=error.message)
            return now
        self.tried[one.id] = Tried(candidate=one, kept=verdict.proven, why=verdict.why, verdict=verdict)
        if verdict.proven and verdict.outcome is not None and verdict.outcome.report is not None:
            self.kept.append(one)
            return verdict.outcome.report
        return now

    def _drop_idle(self) -> None:
        """Leave out each kept change but the last in turn: where its findings stay away without it, it is not needed."""
        first = self.prover.compiled.report
        assert first is not None
        for one in list(self.kept[:-1]):
            if time.monotonic() > self.until:
                return
            others = [each for each in self.kept if each is not one]
            self.say(f"is {one.slug} still needed?")
            if not set(one.cures) & self._findings(others) and self.prover.prove(others, others[-1], first).proven:
                self.kept.remove(one)
                self.tried[one.id] = Tried(candidate=one, kept=False, why="not needed: the other changes cure it too")

    def _findings(self, changes: Sequence[Candidate]) -> set[str]:
        report = self.prover.recorded(changes).report
        return fingerprints(report or self.prover.compiled.report)  # type: ignore[arg-type]
