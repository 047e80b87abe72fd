"""Whether changes are proven: the finding is gone, nothing else came, and the program does what the original does in eager.

All runs are of the whole script. Beside its own data each is made with other data (`VARIATIONS`: the tensors that compiled callables are
given are changed by a rule, in the original and in the changed program alike), and a branch that was rewritten is forced to the sides
that no run took.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dynadiag.changes.change import Candidate
from dynadiag.changes.library_messages import WARN_SLUG
from dynadiag.children.answer_cache import digest
from dynadiag.fix import texts
from dynadiag.fix.runs import Outcome, Runner
from dynadiag.fix.standing import Standing, why_not_better
from dynadiag.model import codes
from dynadiag.model.report import Report

LEAST_CALLS = 3
VARIATIONS = (1, 2)
_NOISE_SEEDS = (1, 2)
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_ANY_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
_ROUNDING = 1e-4
STDOUT_DIFFERS = "stdout differs"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a proof came to. `why` says which part failed; `calls` how many calls were compared, `runs` of what kind.

    `standing` is how the program stands with the changes; `by_findings`: it failed by the findings of the compiled run alone, or
    that run failed: beside others it may do better.
    """

    proven: bool
    why: str | None = None
    calls: int = 0
    compared: tuple[str, ...] = ()
    standing: Standing | None = None
    by_findings: bool = False

    def to_json(self) -> dict[str, Any]:
        """For `verdict_of`."""
        return asdict(self)


def verdict_of(told: Mapping[str, Any]) -> Verdict:
    """The verdict that `to_json` told, for instance in the journal of a search."""
    standing = told["standing"]
    return Verdict(**{**told, "compared": tuple(told["compared"]), "standing": None if standing is None else Standing(**standing)})


class NotProvableError(Exception):
    """Nothing can be proven of this program, for this reason."""


@dataclass(kw_only=True)
class Prover:
    """Proves changes of one program, which ended with `recorded_status` when it was recorded.

    `backend` is that of the search: "eager" instead where the script compiles with nothing else, and None (the script's own) where the
    changes are about the back end itself. `edited`: what is compared is anybody's edit. It may cure a program that fails when
    compiled, and is seen in more than its calls. `fails_compiled`: a compilation of the original failed and ended it.
    """

    runner: Runner
    originals: Mapping[str, str]
    backend: str | None
    recorded_status: int | None = None
    edited: bool = False
    plain: Outcome = field(init=False)
    again: Outcome = field(init=False)
    compiled: Outcome = field(init=False)
    fails_compiled: bool = field(init=False, default=False)
    varied: dict[int, Outcome] = field(default_factory=dict)
    sides: dict[str, set[bool]] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)
    gradients: bool = False
    noisy: frozenset[int] = frozenset()
    _with_noise: dict[tuple[Path, bool], list[Outcome]] = field(default_factory=dict)
    _with_sides: dict[frozenset[tuple[str, bool]], Outcome] = field(default_factory=dict)
    _recorded: dict[str, Outcome] = field(default_factory=dict)

    def refer(self, candidates: Sequence[Candidate]) -> None:
        """Run the original: eagerly twice, on other data, and compiled. Raises NotProvableError where that tells nothing."""
        try:
            self._refer(candidates)
        except NotProvableError as error:
            if not self.plain.read_stdin:
                raise
            raise NotProvableError(f"it reads stdin, which is empty in the runs of a proof ({error})") from None

    def _refer(self, candidates: Sequence[Candidate]) -> None:
        self.plain = self.runner.run_program()
        if self.plain.ended and self.recorded_status == 0 and self.plain.exit_status != 0:
            said = self.plain.said or _ended(self.plain)
            raise NotProvableError(f"run once more, in eager, it does not end as it did when it was recorded: {said}")
        if not self.plain.ended or self.plain.values is None:
            raise NotProvableError(f"the script does not run in eager: {self.plain.why or 'it uses no torch'}")
        if self.plain.full:
            limit = self.runner.compare_fewer_calls(LEAST_CALLS)
            self.plain = self.runner.run_program()
            if self.plain.full:
                raise NotProvableError(f"what {LEAST_CALLS} calls of its compiled callables read and write takes more than {limit}")
        marked = texts.with_conditions(self.originals, candidates)
        self.again = self.runner.run_program(texts=marked)
        self._note_sides(self.again)
        if set(self.plain.backends) == {"eager"}:
            self.backend = "eager"
        if any(candidate.of_backend for candidate in candidates):
            self.backend = None
        self.noisy = noisy_lines(self.plain.stdout, self.again.stdout)
        differs, self.calls = self._differs(self.plain, self.again)
        if differs is not None:
            known = differs.endswith("cannot be compared")
            raise NotProvableError(differs if known else f"its results in eager differ from run to run: {differs}")
        if not self.calls:
            raise NotProvableError("no call of a compiled callable was seen in the script's own process")
        self.gradients = self.runner.gradients(self.plain)
        for vary in VARIATIONS:
            outcome = self.runner.run_program(texts=marked, vary=vary)
            if outcome.ended and outcome.values is not None and outcome.exit_status == self.plain.exit_status and not outcome.full:
                self.varied[vary] = outcome
                self._note_sides(outcome)
        self.compiled = self.runner.run_program(recorded=True, eager=False, backend=self.backend)
        if not self.edited:
            self._check_compiled()

    def _check_compiled(self) -> None:
        """Raise NotProvableError where the original does something else when it is compiled, or too little to compare."""
        if not self.compiled.ended or self.compiled.report is None:
            raise NotProvableError(f"the script does not run with {self.backend_words}: {self.compiled.why}")
        failed = any(finding.code == codes.COMPILATION_FAILED for finding in self.compiled.report.findings)
        self.fails_compiled = failed and self.compiled.exit_status != 0 and self.plain.exit_status == 0
        if not self.fails_compiled and (self.compiled.exit_status, self.compiled.raised) != (self.plain.exit_status, self.plain.raised):
            said = f"with {self.backend_words} it ends with {_ended(self.compiled)}, and in eager with {_ended(self.plain)}"
            raise NotProvableError(f"the script does not do the same: {said}")
        if min(self.calls.values()) * (1 + len(self.varied)) < LEAST_CALLS:
            raise NotProvableError(f"too few calls of its compiled callables: at least {LEAST_CALLS} have to be compared")

    def prove(self, changes: Sequence[Candidate], new: Sequence[Candidate], before: Standing, *, own_data: bool = False) -> Verdict:
        """Whether `new` are proven on top of the other `changes` (which hold them), where `before` is how the program stood without.

        `own_data`: only compiled, on the script's own data.
        """
        for candidate in new:
            if candidate.gradients_why is not None and self.gradients:
                return Verdict(proven=False, why=f"gradients flow here, and {candidate.gradients_why}")
        outcome = self.recorded(changes)
        why = self.why_other(self.plain, outcome, self.again, rounds=self.backend is None) or why_not_warned(self.plain, outcome, changes)
        if why is not None or outcome.report is None:
            failed = (outcome.exit_status, outcome.raised) != (self.plain.exit_status, self.plain.raised)
            return Verdict(proven=False, why=why or "nothing was recorded", by_findings=failed)
        now = Standing.of(outcome.report)
        # One that a failed compilation has ended shows too little to be compared with: that it now ends as in eager is what was wanted.
        longer = self.fails_compiled and before == self.first
        why = (
            None
            if longer and now.compiled
            else next(
                (why for item in new if (why := why_not_better(self.first, before, now, item.cures, moved=item.moves_region)) is not None),
                None,
            )
        )
        if why is not None:
            return Verdict(proven=False, why=why, by_findings=True)
        compared = ["the script's own data, compiled"]
        for part in () if own_data else (self._on_other_data, self._on_both_sides):
            why = part(changes, new, compared)
            if why is not None:
                return Verdict(proven=False, why=why)
        return Verdict(proven=True, calls=sum(self.calls.values()) * len(compared), compared=tuple(compared), standing=now)

    @property
    def backend_words(self) -> str:
        """The back end of the search, for people."""
        return "its own back end" if self.backend is None else f"backend {self.backend}"

    @property
    def first(self) -> Standing:
        """How the original program stands with the back end of the search."""
        assert self.compiled.report is not None
        return Standing.of(self.compiled.report)

    def recorded(self, changes: Sequence[Candidate]) -> Outcome:
        """The program with these changes, compiled on its own data and recorded; run once."""
        new = texts.changed(self.originals, changes, observed=True)
        known = digest("recorded", sorted(new.items()))
        if known not in self._recorded:
            self._recorded[known] = self._run(changes, new, recorded=True, eager=False, backend=self.backend)
        return self._recorded[known]

    def report_with(self, changes: Sequence[Candidate]) -> Report | None:
        """The report on the program with these changes, whose lines are those of the new texts as the user gets them.

        The run of the proof serves where what is watched there stands on the same lines.
        """
        new, seen = (texts.changed(self.originals, changes, observed=observed) for observed in (False, True))
        if all(new[file].count("\n") == seen[file].count("\n") for file in new):
            return self.recorded(changes).report
        return self._run(changes, new, recorded=True, eager=False, backend=self.backend).report

    def note_sides(self, candidates: Sequence[Candidate]) -> None:
        """See which way the branches go that these candidates rewrite, where any does."""
        if marked := texts.with_conditions(self.originals, candidates):
            self._note_sides(self.runner.run_program(texts=marked))

    def _run(self, changes: Sequence[Candidate], new: Mapping[str, str], **options: Any) -> Outcome:
        return replace(self.runner.run_program(texts=new, **options), free=free(changes), settings=settings_of(changes))

    def _on_other_data(self, changes: Sequence[Candidate], new: Sequence[Candidate], compared: list[str]) -> str | None:
        """Once compiled, and the changed lines once more in eager."""
        for vary, reference in self.varied.items():
            eager = vary != VARIATIONS[0]
            if eager and all(candidate.is_option for candidate in new):
                continue
            backend = None if eager else self.backend
            outcome = self._run(changes, texts.changed(self.originals, changes, observed=True), vary=vary, eager=eager, backend=backend)
            why = self.why_other(reference, outcome, rounds=not eager and backend is None)
            if why is not None:
                return f"on other data {why}"
            compared.append(f"other data ({vary}), {'eager' if eager else 'compiled'}")
        return None

    def _on_both_sides(self, changes: Sequence[Candidate], new: Sequence[Candidate], compared: list[str]) -> str | None:
        """Each side of a rewritten branch that no run took is forced, in the original and in the changed program.

        All at once, if the original then runs each of these branches, else one branch after another.
        """
        for side in (False, True):
            missing = [item for item in new if item.branch and side not in self.sides.get(item.id, set())]
            for candidate in missing:
                if texts.changed(self.originals, [candidate], marked=True) == texts.changed(self.originals, [candidate]):
                    return f"the branch is never taken when its condition is {side}, and the new lines have no condition to force"
            groups = [missing] if missing and self._forced(missing, side)[1] is None else [[element] for element in missing]
            for group in groups:
                reference, why = self._forced(group, side)
                if why is not None:
                    return why
                marked = texts.changed(self.originals, changes, observed=True, marked=True)
                why = self.why_other(reference, self._run(changes, marked, force=reference.changes["force"]))
                if why is not None:
                    return f"with the condition forced to be {side} {why}"
            if missing:
                compared.append(f"condition forced to be {side}, eager")
        return None

    def _forced(self, ones: Sequence[Candidate], side: bool) -> tuple[Outcome, str | None]:
        """The original with the conditions of these branches forced, run once, and why that shows nothing."""
        force = {candidate.id: side for candidate in ones}
        key = frozenset(force.items())
        if key not in self._with_sides:
            self._with_sides[key] = self.runner.run_program(texts=texts.with_conditions(self.originals, ones), force=force)
        reference = self._with_sides[key]
        if not reference.ended or reference.values is None or not set(force) <= set(reference.sides):
            return reference, f"the branch never ran, or not when its condition is forced to be {side}"
        if reference.exit_status != self.plain.exit_status:
            why = f"the original fails when the condition is forced to be {side} ({reference.raised}), which no data here does"
            return reference, why
        return reference, None

    def _note_sides(self, outcome: Outcome) -> None:
        for name, found in outcome.sides.items():
            self.sides.setdefault(name, set()).update(found)

    def _differs(self, outcome: Outcome, other: Outcome) -> tuple[str | None, Mapping[str, int]]:
        if not other.ended or other.values is None:
            return other.why or "it did not end", {}
        ends = (outcome.exit_status, outcome.raised), (other.exit_status, other.raised)
        if ends[0] != ends[1]:
            return f"it ended with {_ended(outcome)}, then with {_ended(other)}", {}
        differs, calls = self.runner.difference(outcome, other)
        return differs or different_output(outcome.stdout, other.stdout, self.noisy), calls

    def why_other(self, reference: Outcome, outcome: Outcome, again: Outcome | None = None, *, rounds: bool = False) -> str | None:
        """How a run behaves differently from the original: its end, its values, its output (that of the original in eager or compiled).

        `rounds`: a back end computed it that may round each value in another place than eager, as Inductor does within a kernel.
        """
        if not outcome.ended or outcome.values is None:
            return f"the changed program did not finish: {outcome.why}"
        if (reference.exit_status, reference.raised) != (outcome.exit_status, outcome.raised):
            return f"the program ended with {_ended(reference)}, now with {_ended(outcome)}"
        differs, _ = self.runner.difference(reference, outcome, again)
        if differs is not None:
            differs, _ = self.runner.difference(reference, outcome, again, self._noisy_runs(reference, rounds=rounds), rounds=rounds)
        if differs is not None:
            return f"values differ: {differs}"
        said = [reference.stdout, *([self.compiled.stdout] if reference is self.plain else [])]
        found = [different_output(name, outcome.stdout, self.noisy) for name in said]
        return None if None in found else f"{STDOUT_DIFFERS}: {found[0]}"

    def _noisy_runs(self, reference: Outcome, *, rounds: bool) -> Sequence[Outcome]:
        """The reference again with sums that are off by rounding: they show where an optimizer makes that large (a key bias of attention,
        whose gradient is rounding alone, moves by Adam's whole step). With `rounds` every value is, as far as its dtype rounds.
        """
        assert reference.values is not None
        key = (reference.values, rounds)
        if key not in self._with_noise:
            runs = (self.runner.run_program(**{**reference.changes, "noise": seed, "rounds": rounds}) for seed in _NOISE_SEEDS)
            self._with_noise[key] = [run for run in runs if run.ended and run.values is not None]
        return self._with_noise[key]


def why_other_at_last(prover: Prover, last: Outcome, original: Callable[[], Outcome]) -> str | None:
    """How a run with the script's own back end behaves differently; where only stdout differs, beside the original run likewise.

    The search runs with one thread, and a checksum that is printed shows another order of adding.
    """
    why = prover.why_other(prover.plain, last, prover.again, rounds=True)
    if why is not None and why.startswith(STDOUT_DIFFERS) and different_output(original().stdout, last.stdout, prover.noisy) is None:
        return None
    return why


def free(changes: Sequence[Candidate]) -> tuple[str, ...]:
    """The attributes that these changes may bind to other tensors than before."""
    return tuple(dict.fromkeys(name for change in changes for name in change.attributes))


def settings_of(changes: Sequence[Candidate]) -> tuple[str, ...]:
    """The attributes that these changes themselves set otherwise."""
    return tuple(dict.fromkeys(name for change in changes for name in change.settings))


def why_not_warned(reference: Outcome, outcome: Outcome, changes: Sequence[Candidate]) -> str | None:
    """The first warning of a changed file that the program shows in eager, and now does not, or less often where it is not once."""
    files = {edit.file for change in changes if change.slug == WARN_SLUG for edit in change.edits}
    for row, was in reference.warned.items():
        now = outcome.warned.get(row, 0)
        if os.path.realpath(row.partition(":")[0]) in files and now < was and (was > 1 or not now):
            return f"a warning was shown {was} times, now {now}: {row}"
    return None


def _ended(outcome: Outcome) -> str:
    return f"exit status {outcome.exit_status}" + (f" ({outcome.raised})" if outcome.raised else "")


def different_output(name: str, other: str, noisy: Collection[int] = ()) -> str | None:
    """The first line in which two outputs differ by more than the rounding of numbers with a decimal point; None where none does.

    Of the lines in `noisy` (from 1) the numbers are not compared: a time that is printed is another one in each run.
    """
    rows = name.splitlines(), other.splitlines()
    for number, (was, now) in enumerate(zip(*rows, strict=False), start=1):
        same = was == now or _same_but_rounding(was, now) or (number in noisy and _without_numbers(was) == _without_numbers(now))
        if not same:
            return f"line {number} was {was[:80]!r}, now {now[:80]!r}"
    if len(rows[0]) != len(rows[1]):
        return f"it had {len(rows[0])} lines, now {len(rows[1])}"
    return None


def noisy_lines(name: str, other: str) -> frozenset[int]:
    """The lines (from 1) of two outputs of one program that differ in numbers alone, by more than rounding."""
    pairs = enumerate(zip(name.splitlines(), other.splitlines(), strict=False), start=1)
    differ = ((number, was, now) for number, (was, now) in pairs if was != now and not _same_but_rounding(was, now))
    return frozenset(number for number, was, now in differ if _without_numbers(was) == _without_numbers(now))


def _without_numbers(row: str) -> str:
    return _ANY_NUMBER.sub("#", row)


def _same_but_rounding(was: str, now: str) -> bool:
    if _NUMBER.sub("#", was) != _NUMBER.sub("#", now):
        return False
    pairs = [(float(item), float(two)) for item, two in zip(_NUMBER.findall(was), _NUMBER.findall(now), strict=True)]
    return all(abs(number - two) <= _ROUNDING * max(abs(number), abs(two)) + 1e-6 for number, two in pairs)
