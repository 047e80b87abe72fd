"""The oracle over scripts: a forked child runs a candidate, and what it showed is compared with the failure that is looked for."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dynadiag.children.answer_cache import digest, remembered, remembering
from dynadiag.children.forked import ChildReport, run_forked
from dynadiag.reduce.core.failure import CRASHES, Failure, crash_frames, from_json
from dynadiag.reduce.core.reducer import Judgement
from dynadiag.reduce.core.verdict import Verdict
from dynadiag.reduce.scripts.names import SCOPES
from dynadiag.reduce.scripts.program import Program, why_it_cannot_run
from dynadiag.reduce.scripts.recorded_failures import KINDS, failures_in
from dynadiag.reduce.scripts.running import RunOptions, run_program
from dynadiag.scratch import scratch

SEEDS = (25, 6, 38, 4, 34, 17, 24, 3, 26, 1, 29, 12, 33, 8, 5, 40)
"""With which a result must show the failure too: what five of six random numbers show is found out in 19 of 20 cases.

The first numbers that torch's generator gives with them lie in both tails (`randn`: 1.2, -1.9, 1.5, -1.6, 1.4, -1.4, ...; 2.11 to 2.15).
"""
_TIMES_THE_BEST, _SPARE_CPU_S = 1.5, 1.0
_DRAWS = re.compile(r"rand|normal|bernoulli|multinomial|dropout|uniform|exponential|shuffle|\bnn\.|from torch.nn|import transformers|seed")


@dataclass(frozen=True, kw_only=True)
class ScriptRun:
    """What one run showed: `failures` of all kinds, the one that ended it last; `refused` what the guard kept it from, at
    `refused_line`; `environment` the reason for an environment error. `wall_s` and `cpu_s` are what it took; `namespace`: what argparse
    gave, `lines` and `values` what `look` asked for.
    """

    failures: tuple[Failure, ...] = ()
    ended: Failure | None = None
    refused: str | None = None
    refused_line: int | None = None
    environment: str | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    namespace: Mapping[str, Any] | None = None
    lines: frozenset[int] = frozenset()
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """How candidates run: `recorded` for kinds that only a recording tells, within `timeout_s` and `cpu_s`, random numbers from `seed`. The
    first `parity_calls` calls of each compiled function are compared with eager.

    Once `until` is seen, what is left of the program runs uncompiled.
    """

    recorded: bool
    timeout_s: float
    parity_calls: int = 0
    arguments: tuple[str, ...] = ()
    until: Failure | None = None
    cpu_s: float | None = None
    seed: int = 0

    def key(self) -> str:
        """What a run depends on."""
        until = None if self.until is None else self.until.signature()
        return f"{self.recorded} {self.timeout_s} {self.arguments} {until} {self.cpu_s} {self.parity_calls}" + (
            f" {self.seed}" if self.seed else ""
        )


def draws(program: Program) -> bool:
    """Whether it may draw random numbers."""
    return _DRAWS.search(program.text) is not None


def see(program: Program, conditions: Conditions, *, eager: bool = False, look: bool = False) -> ScriptRun:
    """Run a program in a child; what an earlier run saw is not run again."""
    key = f"see {program.key} {digest(conditions.key(), eager, look)}"
    data = remembered(key, lambda: _to_json(_see(program, conditions, eager=eager, look=look)), keep=lambda seen: not seen["environment"])
    return _from_json(data)


def _to_json(seen: ScriptRun) -> dict[str, Any]:
    return {**asdict(seen), "lines": sorted(seen.lines)}


def _from_json(data: Mapping[str, Any]) -> ScriptRun:
    failures = tuple(map(from_json, data["failures"]))
    ended = from_json(data["ended"]) if data["ended"] is not None else None
    return ScriptRun(**{**data, "failures": failures, "ended": ended, "lines": frozenset(data["lines"])})


def _see(program: Program, conditions: Conditions, *, eager: bool, look: bool) -> ScriptRun:
    with scratch("script") as folder:
        log = Path(folder) / "run" if conditions.recorded and not eager else None
        options = RunOptions(
            log=log,
            parity_calls=conditions.parity_calls,
            eager=eager,
            arguments=conditions.arguments,
            until=conditions.until,
            look=look,
            cpu_s=conditions.cpu_s,
            seed=conditions.seed,
        )
        report = run_forked(lambda tell: run_program(program.text, options, tell), timeout_s=conditions.timeout_s)
        kinds = () if conditions.until is None else (conditions.until.kind,)
        if {"shown": True} in report.messages and conditions.until is not None:
            shown: tuple[Failure, ...] = (conditions.until,)
        else:
            shown = failures_in(log, *kinds) if log is not None and log.exists() else ()
    return _seen(report, shown)


def _seen(report: ChildReport, shown: tuple[Failure, ...]) -> ScriptRun:
    told: dict[str, Any] = {}
    for message in report.messages:
        told |= message
    ended = from_json(told["failure"]) if "failure" in told else _end_of(report, told)
    return ScriptRun(
        failures=(*shown, *([ended] if ended is not None else [])),
        ended=ended,
        refused=told.get("refused"),
        refused_line=told.get("refused_line"),
        environment=told.get("environment") or (f"the oracle itself failed: {told['broken']}" if "broken" in told else None),
        wall_s=report.wall_s,
        cpu_s=report.cpu_s,
        namespace=told.get("namespace"),
        lines=frozenset(told.get("lines", ())),
        values=told.get("values", {}),
    )


def _end_of(report: ChildReport, told: Mapping[str, Any]) -> Failure | None:
    """How a child ended that could not tell it."""
    if "ended" in told or "broken" in told:
        return None
    if report.timed_out:
        return Failure(kind="hang", phase="call", message="it did not finish in time")
    if report.signal in CRASHES:
        output = report.output
        return Failure(kind="crash", phase="call", message=str(report.signal), frames=crash_frames(output), detail=output)
    if report.signal == "SIGXCPU":
        return Failure(kind="hang", phase="call", message="it takes far longer than the program it was derived from")
    if report.signal is not None:
        return Failure(kind="killed", phase="call", message=report.signal)
    return None if report.exit_status == 0 else Failure(kind="exit", phase="run", message=f"exit {report.exit_status}")


class ScriptOracle:
    """Judges programs by whether they show the failure that is looked for.

    Those that show one of KINDS must also end well, others must pass uncompiled. `back_ends` are the texts of functions and classes that a
    candidate may lack, but not change: the compiler is what fails, not what is reduced.
    """

    def __init__(self, target: Failure, conditions: Conditions, *, repeats: int = 1, back_ends: Mapping[str, str] | None = None) -> None:
        self.target = target
        self.conditions = conditions
        self.repeats = repeats
        self.back_ends = back_ends or {}
        self.seeds: tuple[int, ...] = ()
        """Where the failure must show too when torch's generator begins with them, for a program that draws numbers."""
        self.children = 0
        self.cpu_s = 0.0
        self.best_cpu_s: float | None = None
        """What the cheapest program that showed the failure took."""
        self.wait: Callable[[], None] = lambda: None
        """Called before each question, between two children: the place to show progress or to raise."""

    def thorough(self) -> ScriptOracle:
        """An oracle that always runs the whole program compiled, and with other random numbers too; itself when it does so already.

        It does not ask whether to stop.
        """
        if self.seeds:
            return self
        whole = ScriptOracle(self.target, replace(self.conditions, until=None), repeats=self.repeats, back_ends=self.back_ends)
        whole.seeds = SEEDS if self.target.kind in KINDS else SEEDS[:3]
        return whole

    def add(self, other: ScriptOracle) -> None:
        """Count what another one has cost so far, once."""
        self.children, self.cpu_s = self.children + other.children, self.cpu_s + other.cpu_s
        other.children, other.cpu_s = 0, 0.0

    def spend(self, cpu_s: float) -> None:
        """Count a child that was no question."""
        self.children, self.cpu_s = self.children + 1, self.cpu_s + cpu_s

    def judge(self, program: Program) -> Judgement:
        """The verdict, from up to `repeats` children."""
        verdict, remark = Verdict.BORING, ""
        for _ in range(self.repeats):
            verdict, remark = self._judge_once(program)
            if verdict is not Verdict.BORING:
                break
        if verdict is Verdict.INTERESTING and self.repeats == 1 and draws(program):
            for seed in self.seeds:
                # Once is enough to see the failure: what comes after it was run whole.
                until = self.target if self.target.kind in KINDS else None
                seen = self._see(program, seed=seed, until=until)
                shown = any(failure.same_as(self.target) for failure in seen.failures)
                if not shown or (self.target.kind in KINDS and seen.ended is not None):
                    return Verdict.BORING, f"it does not occur with seed {seed}"
        return verdict, remark

    def _judge_once(self, program: Program) -> Judgement:
        self.wait()
        seen = self._see(program)
        if (why := seen.refused or seen.environment) is not None:
            return Verdict.INVALID, why
        if any(failure.same_as(self.target) for failure in seen.failures):
            return self._controlled(program, seen)
        if seen.ended is None:
            return Verdict.BORING, ""
        if seen.ended.kind == "hang":
            return Verdict.TIMEOUT, seen.ended.message
        if self.target.kind in KINDS:
            return Verdict.INVALID, seen.ended.title()
        control = self._see(program, eager=True)
        if control.ended is not None:
            return Verdict.INVALID, f"without the compiler: {control.ended.title()}"
        return Verdict.DIFFERENT, f"{seen.ended.kind} ({seen.ended.phase}): {seen.ended.title()}"

    def _controlled(self, program: Program, seen: ScriptRun) -> Judgement:
        """It shows the failure: is it the compiler's?"""
        if self.target.kind in KINDS:
            if seen.ended is not None:
                return Verdict.INVALID, seen.ended.title()
            self.best_cpu_s = min(seen.cpu_s, self.best_cpu_s or seen.cpu_s)
            return Verdict.INTERESTING, ""
        control = self._see(program, eager=True)
        why = control.refused or control.environment or (control.ended.title() if control.ended is not None else None)
        return (Verdict.INTERESTING, "") if why is None else (Verdict.INVALID, f"without the compiler: {why}")

    def _see(self, program: Program, *, eager: bool = False, seed: int | None = None, until: Failure | None = None) -> ScriptRun:
        conditions = replace(self.conditions, cpu_s=self._cpu_limit(), until=until or self.conditions.until)
        conditions = conditions if seed is None else replace(conditions, seed=seed)
        with remembering(None):  # the journal remembers the verdict
            seen = see(program, conditions, eager=eager)
        self.wait()  # an interrupt has killed the child: what it showed is no answer
        self.children += 1
        self.cpu_s += seen.cpu_s
        return seen

    def _cpu_limit(self) -> float | None:
        """A simpler text may cost far more: without its argument `BertConfig(num_hidden_layers=2)` means twelve layers."""
        return _TIMES_THE_BEST * self.best_cpu_s + _SPARE_CPU_S if self.best_cpu_s is not None and self.target.kind in KINDS else None

    def values(self, program: Program) -> Mapping[str, Any]:
        """A script has no nodes."""
        raise NotImplementedError

    def impossible(self, program: Program) -> str | None:
        """Why the program cannot run, found without running it."""
        return why_it_cannot_run(program) or self._other_compiler(program)

    def _other_compiler(self, program: Program) -> str | None:
        if not self.back_ends:
            return None
        there = {node.name: ast.unparse(node) for node in ast.walk(program.tree) if isinstance(node, SCOPES)}
        changed = [name for name, text in self.back_ends.items() if there.get(name, text) != text]
        return f"it changes the compiler: {', '.join(changed)}" if changed else None
