"""Which changes are kept: each is proven alone and on top of those before it, in the order of the findings; what is not needed goes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dynadiag.fix import texts
from dynadiag.fix.change import Candidate
from dynadiag.fix.edits import EditError
from dynadiag.fix.proof import Prover, Verdict, verdict_of
from dynadiag.fix.standing import Standing
from dynadiag.reduce.core.answer_cache import digest, remembered

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
    """`until` is the time (of `time.monotonic`) after which nothing more is tried.

    Verdicts are remembered (`reduce.core.answer_cache`): a search that is begun again asks the same questions in the same order.
    """

    prover: Prover
    until: float
    say: Say
    kept: list[Candidate] = field(default_factory=list)
    tried: dict[str, Tried] = field(default_factory=dict)

    def run(self, candidates: Sequence[Candidate]) -> None:
        """Try all; those whose findings another change hid or stood in the way of are tried once more when something was kept since."""
        first = now = self.prover.first
        for number, one in enumerate(candidates, start=1):
            self.say(f"proving change {number} of {len(candidates)}: {one.slug}")
            now = self._try(one, now, first)
        left = [one for one in candidates if (found := self.tried[one.id].verdict) is not None and found.by_findings]
        for number, one in enumerate(left if self.kept else (), start=1):
            self.say(f"proving change {number} of {len(left)} beside the others: {one.slug}")
            now = self._try(one, now, None)
        self._drop_idle(first)
        self._prove_together(first)

    def _try(self, one: Candidate, now: Standing, first: Standing | None) -> Standing:
        """How the program stands afterwards. `first`: how it stood at first, where the change is to be proven alone as well."""
        if time.monotonic() > self.until:
            return self._left(one, "not tried: the time limit was reached", now)
        if not now.shows(one.cures):
            known = bool(self.prover.first.shows(one.cures))
            why = "another change has cured it already" if known else f"the finding does not show with backend {self.prover.backend}"
            return self._left(one, why, now)
        try:
            verdict = self._ask([*self.kept, one] if first is None else [one], [one], first or now)
            if verdict.proven and first is not None and self.kept:
                beside = self._ask([*self.kept, one], [one], now, own_data=True)
                verdict = replace(verdict, standing=beside.standing) if beside.proven else beside
        except EditError as error:
            return self._left(one, error.message, now)
        self.tried[one.id] = Tried(candidate=one, kept=verdict.proven, why=verdict.why, verdict=verdict)
        if not verdict.proven or verdict.standing is None:
            return now
        self.kept.append(one)
        return verdict.standing

    def _left(self, one: Candidate, why: str, now: Standing) -> Standing:
        self.tried[one.id] = Tried(candidate=one, kept=False, why=why)
        return now

    def _ask(self, changes: Sequence[Candidate], new: Sequence[Candidate], before: Standing, *, own_data: bool = False) -> Verdict:
        """The proof, or what an earlier run of this search found."""
        after = texts.changed(self.prover.originals, changes)
        question = json.dumps([sorted(after.items()), [one.cures for one in new], before.to_json(), own_data])

        def ask() -> dict[str, object]:
            return self.prover.prove(changes, new, before, own_data=own_data).to_json()

        return verdict_of(remembered(digest("prove", question), ask))

    def _drop_idle(self, first: Standing) -> None:
        """Leave out each kept change but the last in turn: where its findings stay away without it, it is not needed."""
        for one in list(self.kept[:-1]):
            if time.monotonic() > self.until:
                return
            others = [each for each in self.kept if each is not one]
            self.say(f"is {one.slug} still needed?")
            without = self._ask(others, others, first, own_data=True)
            if without.standing is not None and not without.standing.shows(one.cures):
                self.kept.remove(one)
                self._left(one, "not needed: the other changes cure it too", first)

    def _prove_together(self, first: Standing) -> None:
        """All that is kept, once with everything that a proof has; where that fails the last one goes."""
        while len(self.kept) > 1:
            self.say(f"proving {len(self.kept)} changes together")
            verdict = self._ask(self.kept, self.kept, first)
            if verdict.proven:
                return
            self._left(self.kept.pop(), f"together with the other changes: {verdict.why}", first)
