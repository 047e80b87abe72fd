"""Whether changes are proven: the finding is gone, nothing else came, and the program does what the original does in eager.

All runs are of the whole script. Beside its own data each is made with other data (`VARIATIONS`: the tensors that compiled callables are
given are changed by a rule, in the original and in the changed program alike), and a branch that was rewritten is forced to the sides
that no run took.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dynadiag.fix import texts
from dynadiag.fix.candidates import Candidate
from dynadiag.fix.runs import Outcome, Runner
from dynadiag.model.report import Finding, Report

LEAST_CALLS = 3
VARIATIONS = (1, 2)
_NOISE_SEEDS = (1, 2)
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_ANY_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
_ROUNDING = 1e-4


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a proof came to. `why` says which part failed; `calls` how many calls were compared, `runs` of what kind.

    `outcome` is the compiled run with its report; `by_findings`: it failed by the findings of that run alone.
    """

    proven: bool
    why: str | None = None
    calls: int = 0
    compared: tuple[str, ...] = ()
    outcome: Outcome | None = None
    by_findings: bool = False


class NotProvableError(Exception):
    """Nothing can be proven of this program, for this reason."""


@dataclass(kw_only=True)
class Prover:
    """Proves changes of one program. `backend` is that of the search."""

    runner: Runner
    originals: Mapping[str, str]
    backend: str
    plain: Outcome = field(init=False)
    again: Outcome = field(init=False)
    compiled: Outcome = field(init=False)
    varied: dict[int, Outcome] = field(default_factory=dict)
    sides: dict[str, set[bool]] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)
    gradients: bool = False
    noisy: frozenset[int] = frozenset()
    _with_noise: dict[Path, list[Outcome]] = field(default_factory=dict)

    def refer(self, candidates: Sequence[Candidate]) -> None:
        """Run the original: eagerly twice, on other data, and compiled. Raises NotProvableError where that tells nothing."""
        self.plain = self.runner.run()
        if not self.plain.ended or self.plain.values is None:
            raise NotProvableError(f"the script does not run in eager: {self.plain.why or 'it uses no torch'}")
        if self.plain.full:
            raise NotProvableError("what its compiled callables are given and give takes more than the memory limit")
        marked = texts.with_conditions(self.originals, candidates)
        self.again = self.runner.run(texts=marked)
        self._note_sides(self.again)
        self.noisy = noisy_lines(self.plain.stdout, self.again.stdout)
        differs, self.calls = self._differs(self.plain, self.again)
        if differs is not None:
            known = differs.endswith("cannot be compared")
            raise NotProvableError(differs if known else f"its results in eager differ from run to run: {differs}")
        if not self.calls:
            raise NotProvableError("no call of a compiled callable was seen in the script's own process")
        self.gradients = self.runner.gradients(self.plain)
        for vary in VARIATIONS:
            outcome = self.runner.run(texts=marked, vary=vary)
            if outcome.ended and outcome.values is not None and outcome.exit_status == self.plain.exit_status and not outcome.full:
                self.varied[vary] = outcome
                self._note_sides(outcome)
        self.compiled = self.runner.run(recorded=True, eager=False, backend=self.backend)
        if not self.compiled.ended or self.compiled.report is None:
            raise NotProvableError(f"the script does not run with backend {self.backend}: {self.compiled.why}")
        if min(self.calls.values()) * (1 + len(self.varied)) < LEAST_CALLS:
            raise NotProvableError(f"its compiled callables are called too rarely: {LEAST_CALLS} calls have to be compared")

    def prove(self, changes: Sequence[Candidate], new: Candidate, before: Report) -> Verdict:
        """Whether `new` is proven on top of the other `changes` (which hold it), whose report was `before`."""
        if new.gradients_why is not None and self.gradients:
            return Verdict(proven=False, why=f"gradients flow here, and {new.gradients_why}")
        verdict = self.check(changes, new.cures, before)
        if not verdict.proven:
            return verdict
        compared = list(verdict.compared)
        for part in (self._on_other_data, self._on_both_sides):
            why = part(changes, new, compared)
            if why is not None:
                return Verdict(proven=False, why=why, outcome=verdict.outcome)
        calls = sum(self.calls.values()) * len(compared)
        return Verdict(proven=True, calls=calls, compared=tuple(compared), outcome=verdict.outcome)

    def check(self, changes: Sequence[Candidate], cures: Sequence[str], before: Report) -> Verdict:
        """The compiled run alone: its findings, its end, its output and its values."""
        outcome = self.recorded(changes)
        why = self.why_other(self.plain, outcome, self.again)
        if why is not None or outcome.report is None or self.compiled.report is None:
            return Verdict(proven=False, why=why or "nothing was recorded", outcome=outcome)
        why = why_not_better(self.compiled.report, before, outcome.report, cures)
        return Verdict(
            proven=why is None, why=why, compared=("the script's own data, compiled",), outcome=outcome, by_findings=why is not None
        )

    def recorded(self, changes: Sequence[Candidate]) -> Outcome:
        """The program with these changes, compiled on its own data and recorded."""
        return self.runner.run(texts=texts.changed(self.originals, changes), recorded=True, eager=False, backend=self.backend)

    def _on_other_data(self, changes: Sequence[Candidate], new: Candidate, compared: list[str]) -> str | None:
        """Once compiled, and the changed lines once more in eager."""
        for vary, reference in self.varied.items():
            eager = vary != VARIATIONS[0]
            if eager and new.is_option:
                continue
            backend = None if eager else self.backend
            outcome = self.runner.run(texts=texts.changed(self.originals, changes), vary=vary, eager=eager, backend=backend)
            why = self.why_other(reference, outcome)
            if why is not None:
                return f"on other data {why}"
            compared.append(f"other data ({vary}), {'eager' if eager else 'compiled'}")
        return None

    def _on_both_sides(self, changes: Sequence[Candidate], new: Candidate, compared: list[str]) -> str | None:
        """Each side of a rewritten branch that no run took is forced, in the original and in the changed program."""
        if not new.branch:
            return None
        marked = texts.changed(self.originals, changes, marked=True)
        missing = sorted({True, False} - self.sides.get(new.id, set()))
        if missing and marked == texts.changed(self.originals, changes):
            return f"the branch is never taken when its condition is {missing[0]}, and the new lines have no condition to force"
        for side in missing:
            force = {new.id: side}
            reference = self.runner.run(texts=texts.with_conditions(self.originals, [new]), force=force)
            if not reference.ended or reference.values is None or new.id not in reference.sides:
                return f"the branch never ran, or not when its condition is forced to be {side}"
            if reference.exit_status != self.plain.exit_status:
                return f"the original fails when the condition is forced to be {side} ({reference.raised}), which no data here does"
            outcome = self.runner.run(texts=marked, force=force)
            why = self.why_other(reference, outcome)
            if why is not None:
                return f"with the condition forced to be {side} {why}"
            compared.append(f"condition forced to be {side}, eager")
        return None

    def _note_sides(self, outcome: Outcome) -> None:
        for name, found in outcome.sides.items():
            self.sides.setdefault(name, set()).update(found)

    def _differs(self, one: Outcome, other: Outcome) -> tuple[str | None, Mapping[str, int]]:
        if not other.ended or other.values is None:
            return other.why or "it did not end", {}
        ends = (one.exit_status, one.raised), (other.exit_status, other.raised)
        if ends[0] != ends[1]:
            return f"it ended with {_ended(one)}, then with {_ended(other)}", {}
        differs, calls = self.runner.difference(one, other)
        return differs or different_output(one.stdout, other.stdout, self.noisy), calls

    def why_other(self, reference: Outcome, outcome: Outcome, again: Outcome | None = None) -> str | None:
        """What a run does otherwise than the original: its end, its values, its output (that of the original in eager or compiled)."""
        if not outcome.ended or outcome.values is None:
            return f"the changed program did not end: {outcome.why}"
        if (reference.exit_status, reference.raised) != (outcome.exit_status, outcome.raised):
            return f"the program ended with {_ended(reference)}, now with {_ended(outcome)}"
        differs, _ = self.runner.difference(reference, outcome, again)
        if differs is not None:
            differs, _ = self.runner.difference(reference, outcome, again, self._noisy_runs(reference))
        if differs is not None:
            return f"values differ: {differs}"
        said = [reference.stdout, *([self.compiled.stdout] if reference is self.plain else [])]
        found = [different_output(one, outcome.stdout, self.noisy) for one in said]
        return None if None in found else f"stdout differs: {found[0]}"

    def _noisy_runs(self, reference: Outcome) -> Sequence[Outcome]:
        """The reference again with sums that are off by rounding: they show where an optimizer makes that large (a key bias of attention,
        whose gradient is rounding alone, moves by Adam's whole step).
        """
        assert reference.values is not None
        if reference.values not in self._with_noise:
            runs = (self.runner.run(**{**reference.changes, "noise": seed}) for seed in _NOISE_SEEDS)
            self._with_noise[reference.values] = [one for one in runs if one.ended and one.values is not None]
        return self._with_noise[reference.values]


def _ended(outcome: Outcome) -> str:
    return f"exit status {outcome.exit_status}" + (f" ({outcome.raised})" if outcome.raised else "")


def why_not_better(first: Report, before: Report, after: Report, cures: Sequence[str]) -> str | None:
    """Why the report is not better than the one before: a finding that is still there, a new one, more of something counted.

    `first` is the report on the original program.
    """
    if not after.summary.graphs or not after.summary.frames_compiled:
        return "nothing is compiled any more"
    if not set(cures) & fingerprints(before):
        return "the finding does not show in this run"
    if set(cures) & fingerprints(before) <= fingerprints(after):
        return "the finding is still there"
    known = fingerprints(first)
    new = next((one for one in after.findings if one.severity != "note" and one.fingerprint not in known), None)
    if new is not None:
        return f"a new finding came: {_named(new)}"
    for name in ("graph_break_sites", "graph_break_events", "recompiles", "fallbacks"):
        was, now = getattr(before.summary, name), getattr(after.summary, name)
        if now > was:
            return f"{name.replace('_', ' ')} went from {was} to {now}"
    return None


def fingerprints(report: Report) -> set[str]:
    """Of all findings."""
    return {one.fingerprint for one in report.findings}


def _named(finding: Finding) -> str:
    where = f" at line {finding.where.line}" if finding.where is not None else ""
    return f"{finding.code}{where} ({finding.title})"


def different_output(one: str, other: str, noisy: Collection[int] = ()) -> str | None:
    """The first line in which two outputs differ by more than the rounding of numbers with a decimal point; None where none does.

    Of the lines in `noisy` (from 1) the numbers are not compared: a time that is printed is another one in each run.
    """
    rows = one.splitlines(), other.splitlines()
    for number, (was, now) in enumerate(zip(*rows, strict=False), start=1):
        same = was == now or _same_but_rounding(was, now) or (number in noisy and _without_numbers(was) == _without_numbers(now))
        if not same:
            return f"line {number} was {was[:80]!r}, now {now[:80]!r}"
    if len(rows[0]) != len(rows[1]):
        return f"it had {len(rows[0])} lines, now {len(rows[1])}"
    return None


def noisy_lines(one: str, other: str) -> frozenset[int]:
    """The lines (from 1) of two outputs of one program that differ in numbers alone, by more than rounding."""
    pairs = enumerate(zip(one.splitlines(), other.splitlines(), strict=False), start=1)
    differ = ((number, was, now) for number, (was, now) in pairs if was != now and not _same_but_rounding(was, now))
    return frozenset(number for number, was, now in differ if _without_numbers(was) == _without_numbers(now))


def _without_numbers(row: str) -> str:
    return _ANY_NUMBER.sub("#", row)


def _same_but_rounding(was: str, now: str) -> bool:
    if _NUMBER.sub("#", was) != _NUMBER.sub("#", now):
        return False
    pairs = [(float(one), float(two)) for one, two in zip(_NUMBER.findall(was), _NUMBER.findall(now), strict=True)]
    return all(abs(one - two) <= _ROUNDING * max(abs(one), abs(two)) + 1e-6 for one, two in pairs)
