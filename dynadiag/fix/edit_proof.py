"""`dynadiag prove` without its printing: whether a program does the same after an edit, and what torch.compile makes of both. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dynadiag.errors import NothingFoundError, UsageError
from dynadiag.files import make_folder_inside
from dynadiag.fix.baseline import Baseline, job_of
from dynadiag.fix.edit_result import EditResult, Evidence, Version
from dynadiag.fix.given_edits import Edit
from dynadiag.fix.proof import VARIATIONS, NotProvableError, Prover, different_output, why_other_at_last
from dynadiag.fix.runs import Outcome, Runner, RunServer
from dynadiag.fix.search import Say
from dynadiag.fix.session import LEAST_S, cpu_s, used_gpu
from dynadiag.model.report import Report
from dynadiag.private_view.consent import Apart
from dynadiag.scratch import scratch

SEED_SHIFT = 20261
_OWN_DATA = "its own data, compiled"


@dataclass(kw_only=True)
class _Proof:
    """The proof of one edit: what was compared so far, and why it fails (None: it does not)."""

    runner: Runner
    prover: Prover
    after: Mapping[str, str]
    compared: list[str] = field(default_factory=list)
    evidence: Evidence = field(default_factory=Evidence)

    def why_not(self, say: Say) -> str | None:
        """Everything that has to hold, the cheap first."""
        for words, part in (
            ("running the edited program", self._on_own_data),
            ("running both versions with other random seeds", self._with_other_seeds),
            ("running both versions on other data", self._on_other_data),
        ):
            say(words)
            why = part()
            if why is not None:
                return why
        return None

    def _run(self, **options: Any) -> Outcome:
        return self.runner.run_program(texts=self.after, **options)

    def _on_own_data(self) -> str | None:
        prover = self.prover
        outcome = self._run(recorded=True, eager=False, backend=prover.backend)
        why = prover.why_other(prover.plain, outcome, prover.again)
        self.evidence = Evidence.of(self.runner.compared, prover.plain.stdout)
        if why is not None:
            return why
        if outcome.report is None or not outcome.report.summary.graphs:
            return "nothing is compiled any more"
        if not self.evidence.shows_something:
            return (
                "nothing can be compared: both versions print nothing, and have no parameter, optimizer, global or compiled call in common"
            )
        self.compared.append(_OWN_DATA)
        return None

    def _with_other_seeds(self) -> str | None:
        """Other random numbers in both versions, where the program draws any; a seed that makes the original fail shows nothing."""
        prover = self.prover
        reference = self.runner.run_program(reseed=SEED_SHIFT)
        if not reference.ended or reference.full or reference.exit_status != prover.plain.exit_status:
            return None
        drawn, _ = self.runner.difference(prover.plain, reference)
        if drawn is None and different_output(prover.plain.stdout, reference.stdout) is None:
            return None
        outcome = self._run(reseed=SEED_SHIFT, eager=False, backend=prover.backend)
        why = prover.why_other(reference, outcome)
        if why is not None:
            return f"with other random seeds {why}"
        self.compared.append("other random seeds, compiled")
        return None

    def _on_other_data(self) -> str | None:
        """The rule for other data changes what compiled callables are given: it is the same for both only where these are the same."""
        if self.evidence.left_out or set(self.evidence.calls) != {name.partition(" ")[2] or name for name in self.prover.calls}:
            return None
        for vary, reference in self.prover.varied.items():
            eager = vary != VARIATIONS[0]
            outcome = self._run(vary=vary, eager=eager, backend=None if eager else self.prover.backend)
            why = self.prover.why_other(reference, outcome)
            if why is not None:
                return f"on other data {why}"
            self.compared.append(f"other data ({vary}), {'eager' if eager else 'compiled'}")
        return None


def prove(edit: Edit, baseline: Baseline, say: Say, apart: Apart | None = None) -> EditResult:
    """Compare a program before and after an edit, and what torch.compile makes of both. Nothing of either is written.

    `baseline` says how the program is started (its `directory` is not used). Runs write for real without `apart`. Raises
    NothingFoundError where the program before the edit compiles nothing, UsageError where it is not one that can be compared.
    """
    begun = cpu_s()
    with scratch("prove") as folder, ExitStack() as stack:
        inside = None if apart is None else apart.and_passed(folder)
        job = replace(job_of(baseline, folder), texts=dict(edit.before), whole=True)
        say("running the program before the edit, with its own back end")
        first = Runner(folder, job, _ask_nobody, timeout_s=LEAST_S, apart=inside, edited=True).last({})
        if inside is not None:
            inside.agree()
        report = _report_of(first)
        server = RunServer(folder, training=any(graph.kind == "aot_joint" for graph in report.run.graphs))
        stack.callback(server.close)
        runs = make_folder_inside(folder, "runs")
        runner = Runner(runs, job, server.ask, timeout_s=LEAST_S, on_device=used_gpu(report), apart=inside, edited=True)
        prover = Prover(runner=runner, originals=edit.before, backend="aot_eager", recorded_status=first.exit_status, edited=True)
        proof = _Proof(runner=runner, prover=prover, after=edit.after)
        say("running the program before the edit in eager, as the reference")
        try:
            prover.refer(())
            why = proof.why_not(say)
        except NotProvableError as error:
            why = str(error)
        say("running the edited program with its own back end")  # what torch.compile makes of it is of use also where it is wrong
        last = runner.last(edit.after)
        if why is None:
            why = _why_not_in_the_end(proof, first, last)
    return EditResult(
        command=baseline.command,
        files=edit.files,
        patch=edit.diff,
        torch=report.run.torch,
        why=why,
        compared=tuple(proof.compared),
        evidence=proof.evidence,
        before=Version.of(report),
        after=None if last.report is None or not last.report.summary.frames else Version.of(last.report),
        runs=1 + runner.runs,
        cpu_s=cpu_s() - begun,
    )


def _ask_nobody(message: Mapping[str, Any]) -> dict[str, Any]:
    """For a run in a fresh process, which no worker makes."""
    raise AssertionError(f"no worker is there to {message['do']}")


def _report_of(first: Outcome) -> Report:
    if first.report is None or not first.report.summary.frames:
        why = f": it {first.why or first.said or f'ended with exit status {first.exit_status}'}" if first.exit_status else ""
        raise NothingFoundError(f"nothing was compiled when the program ran without the edit{why}, so there is nothing to prove")
    if first.report.summary.processes > 1:
        raise UsageError(f"the program compiles in {first.report.summary.processes} processes: prove compares programs of one")
    return first.report


def _why_not_in_the_end(proof: _Proof, first: Outcome, last: Outcome) -> str | None:
    """The edited program as a user runs it, beside the original in eager; where only stdout differs, beside the original run likewise."""
    why = why_other_at_last(proof.prover, last, lambda: first)
    if why is not None:
        return f"with its own back end {why}"
    proof.compared.append("its own data, with its own back end")
    return None


def baseline_for(script: Path, arguments: tuple[str, ...], *, module: str | None = None) -> Baseline:
    """How a program is started from the current folder."""
    here = Path.cwd()
    return Baseline(directory=here, script=script, module=module, arguments=arguments, folder=here)
