"""Which changes are kept: each is tried alone, what passes is proven together, and only if that fails one after another."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dynadiag.changes.change import Candidate
from dynadiag.children.answer_cache import digest, remembered
from dynadiag.errors import EditError
from dynadiag.fix import texts
from dynadiag.fix.proof import Prover, Verdict, verdict_of
from dynadiag.fix.standing import Standing
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
    """`until` is the time (of `time.monotonic`) after which nothing more is tried; what was kept by then is still proven together.

    `uncovered` gives options for what only the report of a changed program shows: a recompile behind a break that was cured.
    `base` is what was kept in the layers before, with which the program stands as `first`.

    Verdicts are remembered (`children.answer_cache`): a search that is begun again asks the same questions in the same order.
    """

    prover: Prover
    until: float
    say: Say
    uncovered: Callable[[Report, Collection[str]], Sequence[Candidate]] | None = None
    base: Sequence[Candidate] = ()
    first: Standing | None = None
    kept: list[Candidate] = field(default_factory=list)
    tried: dict[str, Tried] = field(default_factory=dict)
    _alone: dict[str, Standing] = field(default_factory=dict)

    def try_all(self, candidates: Sequence[Candidate]) -> None:
        """Try all; those whose findings another change hid or stood in the way of are tried once more when something was kept since."""
        first = self.first or self.prover.first
        for number, candidate in enumerate(candidates, start=1):
            self.say(f"trying change {number} of {len(candidates)}: {candidate.slug}")
            if candidate.id in self.tried:
                continue
            if candidate.leaves_rewrites:
                self._try_with_rewrites(candidate, candidates, first)
            else:
                self._try_alone(candidate, first)
        self._drop_idle(first)
        now = self._prove_kept(first)
        left = [element for element in candidates if self._may_do_better(element)]
        before = list(self.kept)
        for number, item in enumerate(left if before else (), start=1):
            self.say(f"proving change {number} of {len(left)} beside the others: {item.slug}")
            now = self._try(item, now, None)
        self._try_at_once([entry for entry in candidates if self._may_do_better(entry)], now)
        if self.kept != before:
            self._drop_idle(first)
            self._prove_together(first)

    def _may_do_better(self, candidate: Candidate) -> bool:
        """Whether a change failed by the findings alone, which others may change."""
        verdict = self.tried[candidate.id].verdict
        return verdict is not None and verdict.by_findings and candidate not in self.kept

    def _try_at_once(self, left: Sequence[Candidate], now: Standing) -> None:
        """Try together what fails one by one, options first: of three numbers that are read, each alone leaves the others' recompiles."""
        options = [candidate for candidate in left if candidate.is_option]
        first = _first_of_each(left)
        for chosen in (options, first) if options != first else (first,):
            if len(chosen) < 2 or time.monotonic() > self.until:
                continue
            self.say(f"proving {len(chosen)} changes at once that fail one by one")
            try:
                verdict = self._ask([*self.kept, *chosen], chosen, now)
            except EditError:
                continue
            if verdict.proven:
                self.kept += chosen
                for item in chosen:
                    self.tried[item.id] = Tried(candidate=item, kept=True, why=None, verdict=verdict)
                return

    def _try_alone(self, candidate: Candidate, first: Standing) -> None:
        """Keep what is right alone on the script's own data, where no change before it cures the same."""
        if self._is_out(candidate, set(first.findings) - self._gone(first)):
            return
        try:
            texts.changed(self.prover.originals, [*self.base, *self.kept, candidate])
            verdict = self._ask([candidate], [candidate], first, own_data=True)
        except EditError as error:
            self._leave(candidate, error.message)
            return
        if verdict.by_findings and (wider := self._with_options(candidate, first)) is not None:
            with suppress(EditError):
                beside = self._ask([wider], [wider], first, own_data=True)
                candidate, verdict = (wider, beside) if beside.proven else (candidate, verdict)
        self.tried[candidate.id] = Tried(candidate=candidate, kept=verdict.proven, why=verdict.why, verdict=verdict)
        if verdict.proven and verdict.standing is not None:
            self.kept.append(candidate)
            self._alone[candidate.id] = verdict.standing

    def _try_with_rewrites(self, candidate: Candidate, candidates: Sequence[Candidate], first: Standing) -> None:
        """Keep a change with those that rewrite the lines which it leaves broken, where they are right together."""
        if self._is_out(candidate, set(first.findings) - self._gone(first)):
            return
        lines = [item for item in candidates if not item.moves_region and not item.is_option and item.id not in self.tried]
        chosen = [candidate, *_first_of_each([item for item in lines if not set(candidate.cures).isdisjoint(item.cures)])]
        try:
            verdict = self._ask([*self.kept, *chosen], chosen, first, own_data=True)
        except EditError as error:
            self._leave(candidate, error.message)
            return
        self.tried[candidate.id] = Tried(candidate=candidate, kept=verdict.proven, why=verdict.why, verdict=verdict)
        if verdict.proven and verdict.standing is not None:
            self.kept += chosen
            self._alone |= {item.id: verdict.standing for item in chosen}
            self._note(verdict)

    def _gone(self, first: Standing) -> set[str]:
        """The findings that what is kept has cured by itself."""
        return {name for each in self.kept for name in set(first.findings) - set(self._alone[each.id].findings)}

    def _with_options(self, candidate: Candidate, first: Standing) -> Candidate | None:
        """The change with the options that cure what it uncovers; None where there are none, or no time is left."""
        if self.uncovered is None or time.monotonic() > self.until:
            return None
        report = self.prover.recorded([*self.base, candidate]).report
        options = () if report is None else self.uncovered(report, first.findings)
        if not options:
            return None
        self.say(f"trying {candidate.slug} with {', '.join(option.slug for option in options)}, for what it uncovers")
        return replace(
            candidate,
            text=" ".join(filter(None, (candidate.text, *(option.text for option in options)))),
            edits=(*candidate.edits, *(edit for option in options for edit in option.edits)),
            spans=(*candidate.spans, *(span for option in options for span in option.spans)),
        )

    def _is_out(self, candidate: Candidate, showing: set[str]) -> bool:
        """Whether there is no time for a change, or nothing left for it to cure; that is noted."""
        if time.monotonic() > self.until:
            self._leave(candidate, "not tried: the time limit was reached")
        elif not showing & set(candidate.cures):
            known = bool((self.first or self.prover.first).shows(candidate.cures))
            why = "another change has cured it already" if known else f"the finding does not show with {self.prover.backend_words}"
            self._leave(candidate, why)
        else:
            return False
        return True

    def _prove_kept(self, first: Standing) -> Standing:
        """How the program stands with what is proven of the kept: all at once, else one after another."""
        if not self.kept:
            return first
        self.say(f"proving {len(self.kept)} changes together" if len(self.kept) > 1 else f"proving the change: {self.kept[0].slug}")
        verdict = self._ask(self.kept, self.kept, first)
        if verdict.proven and verdict.standing is not None:
            self._note(verdict)
            return verdict.standing
        now, changes = first, list(self.kept)
        self.kept.clear()
        for number, candidate in enumerate(changes, start=1):
            self.say(f"proving change {number} of {len(changes)}: {candidate.slug}")
            now = self._try(candidate, now, first)
        self._prove_together(first)
        return now

    def _note(self, verdict: Verdict) -> None:
        for candidate in self.kept:
            self.tried[candidate.id] = Tried(candidate=candidate, kept=True, why=None, verdict=verdict)

    def _try(self, candidate: Candidate, now: Standing, first: Standing | None) -> Standing:
        """How the program stands afterwards. `first`: how it stood at first, where the change is to be proven alone as well."""
        if self._is_out(candidate, set(now.findings)):
            return now
        try:
            verdict = self._ask([*self.kept, candidate] if first is None else [candidate], [candidate], first or now)
            if verdict.proven and first is not None and self.kept:
                beside = self._ask([*self.kept, candidate], [candidate], now, own_data=True)
                verdict = replace(verdict, standing=beside.standing) if beside.proven else beside
        except EditError as error:
            self._leave(candidate, error.message)
            return now
        self.tried[candidate.id] = Tried(candidate=candidate, kept=verdict.proven, why=verdict.why, verdict=verdict)
        if not verdict.proven or verdict.standing is None:
            return now
        self.kept.append(candidate)
        return verdict.standing

    def _leave(self, candidate: Candidate, why: str) -> None:
        self.tried[candidate.id] = Tried(candidate=candidate, kept=False, why=why)

    def _ask(self, changes: Sequence[Candidate], new: Sequence[Candidate], before: Standing, *, own_data: bool = False) -> Verdict:
        """The proof, or what an earlier run of this search found."""
        changes = [*self.base, *changes]
        after = texts.changed(self.prover.originals, changes)
        question = json.dumps(
            [sorted(after.items()), [candidate.cures for candidate in new], before.to_json(), own_data, self.prover.backend]
        )

        def ask() -> dict[str, object]:
            return self.prover.prove(changes, new, before, own_data=own_data).to_json()

        return verdict_of(remembered(digest("prove", question), ask))

    def _drop_idle(self, first: Standing) -> None:
        """Leave out in turn each kept change but the last whose findings another one may cure too: it goes where they stay away."""
        for candidate in [item for item in self.kept[:-1] if not item.leaves_rewrites]:
            others = [each for each in self.kept if each is not candidate]
            if time.monotonic() > self.until:
                return
            if all(each.id in self._alone and self._alone[each.id].shows(candidate.cures) for each in others):
                continue
            self.say(f"is {candidate.slug} still needed?")
            without = self._ask(others, others, first, own_data=True)
            if without.standing is not None and not without.standing.shows(candidate.cures):
                self.kept.remove(candidate)
                self._leave(candidate, "not needed: the other changes cure it too")

    def drop_needless(self, now: Standing) -> None:
        """Leave out in turn what the program stands as well without (`now`: with all), which a later layer has made needless.

        What compiles something else stays, and so does what was kept last.
        """
        last = max((candidate.layer for candidate in self.kept), default=0)
        for candidate in [item for item in self.kept if item.layer < last and not item.moves_region]:
            others = [each for each in self.kept if each is not candidate]
            own = [each for each in others if not each.layer]
            if not own or time.monotonic() > self.until:
                return
            self.say(f"is {candidate.slug} still needed?")
            with suppress(EditError):
                without = self._ask(others, own, self.prover.first)
                if without.proven and without.standing is not None and without.standing.is_as_good_as(now):
                    self.kept.remove(candidate)
                    self._leave(candidate, "not needed: the program stands as well without it")

    def _prove_together(self, first: Standing) -> None:
        """All that is kept, once with everything that a proof has; where that fails the last one goes."""
        while len(self.kept) > 1:
            self.say(f"proving {len(self.kept)} changes together")
            verdict = self._ask(self.kept, self.kept, first)
            if verdict.proven:
                return
            self._leave(self.kept.pop(), f"together with the other changes: {verdict.why}")


def _first_of_each(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first for each finding."""
    cured: set[str] = set()
    chosen: list[Candidate] = []
    for candidate in candidates:
        if cured.isdisjoint(candidate.cures):
            chosen.append(candidate)
            cured.update(candidate.cures)
    return chosen
