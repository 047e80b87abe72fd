"""A benchmark from start to end: arms prepared one after the other, rounds with the baton going round, verdicts."""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from dynadiag.bench.arms import AGAIN, COMPILED, EAGER, LOOP, ArmSpec, ScriptCall, early_imports
from dynadiag.bench.break_costs import find_prices
from dynadiag.bench.clocks import ClockWatch, clock_note
from dynadiag.bench.judging import compare_arms, end_early, summarise
from dynadiag.bench.limits import find_limits
from dynadiag.bench.outcome import ArmResult, BenchResult, Correctness
from dynadiag.bench.process import ArmEndedError, ArmFailedError, ArmProcess, default_python
from dynadiag.bench.round_loop import BenchOptions, Progress, RoundLoop, Runner
from dynadiag.bench.shapes import replay_shapes
from dynadiag.errors import UsageError
from dynadiag.private_view.view import View
from dynadiag.scratch import scratch


class Session:
    """Runs the arms of one target. `progress` is told what is going on and how many seconds are left, where that is known.

    `turn` is entered when all arms are prepared and left after the look back: sessions that share a device time within their turns only.
    """

    def __init__(
        self,
        arms: Sequence[ArmSpec],
        options: BenchOptions,
        progress: Progress = lambda _text, _left_s: None,
        turn: AbstractContextManager[object] | None = None,
    ) -> None:
        self._arms = list(arms)
        self._turn = turn or nullcontext()
        self._options = options
        self._progress = progress
        self._result = BenchResult(target=arms[0].target)
        self._runners: list[Runner] = []
        self._kept: Path | None = None
        self._unit = ""
        self._last_calls: dict[tuple[str, str | None], int] = {}

    def run_benchmark(self) -> BenchResult:
        """The benchmark. An arm that fails has a row that says how; the others go on. Raises UsageError when the target makes no sense.

        After Ctrl-C it is what had been finished, as `interrupted` says; KeyboardInterrupt goes on where nothing had.
        """
        result = self._result
        with ExitStack() as stack:
            folder = stack.enter_context(scratch("bench"))
            try:
                began = time.monotonic()
                self._start(folder, stack)
                result.time.phases_s["prepare"] = time.monotonic() - began
                with self._turn:
                    self._time()
            except KeyboardInterrupt:
                if not result.environment:
                    raise
                self._end_early(result)
        self._conclude(result)
        return result

    def _keep(self) -> None:
        """Give away what is finished, as if the benchmark were ended here."""
        if self._result.environment:
            so_far = copy.deepcopy(self._result)
            self._end_early(so_far)
            self._conclude(so_far)
            self._options.keep(so_far)

    def _end_early(self, result: BenchResult) -> None:
        known = {row.name for row in result.arms}
        result.arms.extend(ArmResult(name=arm.name) for arm in self._arms if arm.name not in known)
        end_early(result)

    def _time(self) -> None:
        """Warm-up, rounds and look back."""
        began = time.monotonic()
        self._each("warm", self._warm)
        self._result.time.phases_s["warm_up"] = time.monotonic() - began
        self._rounds()
        self._keep()
        began = time.monotonic()
        self._each("finish", self._finish)
        find_limits(self._result, self._ask_baseline(), remeasure=self._options.remeasure)
        self._result.time.phases_s["look_back"] = time.monotonic() - began
        self._keep()
        if self._options.prices:
            find_prices(self._result, self._runners, self._options, self._progress)
        began = time.monotonic()
        if self._arms[0].script is not None and self._arms[0].script.shapes:
            replay_shapes(self._result, self._runners, self._options, self._progress)
            self._result.time.phases_s["shapes"] = time.monotonic() - began

    def study(self, count: int) -> Iterator[BenchResult]:
        """So many benchmarks from one set of warm processes, each with fresh samples and statistics: how often verdicts are right."""
        with ExitStack() as stack:
            folder = stack.enter_context(scratch("bench"))
            self._start(folder, stack)
            self._each("warm", self._warm)
            for number in range(count):
                self._rounds()
                self._conclude(self._result)
                yield copy.deepcopy(self._result)
                self._options = replace(self._options, seed=self._options.seed + number + 1)
                self._result.rounds, self._result.comparisons, self._result.notes = 0, [], []
                for row in (*self._result.arms, self._result.same_again):
                    if row is not None:
                        row.samples_ms, row.device_samples_ms = [], []

    def _start(self, folder: Path, stack: ExitStack) -> None:
        """Processes for the baseline, the baseline again, and every other arm; loaded and checked one after the other."""
        if self._arms[0].kind == LOOP:
            start = partial(self._process, folder, "loop", stack=stack)
            self._arms, self._unit = _with_loop(self._arms, start, timeout_s=self._options.timeout_s)
        baseline = self._arms[0]
        self._kept = folder / "baseline.pt"
        again = replace(baseline, name=AGAIN)
        shared: ArmProcess | None = None
        waiting: list[Runner] = []
        specs = [baseline, again, *self._arms[1:]]
        # All start at once, import torch where the program lets them, and then wait for their turn.
        early = {n: early_imports(spec) for n, spec in enumerate(() if self._options.in_process else specs)}
        started = {n: self._process(folder, str(n), specs[n], stack, early=names) for n, names in early.items()}
        for process in (started[n] for n, names in early.items() if names):
            with contextlib.suppress(ArmFailedError):  # nothing is compiled, and timed, beside an import
                process.ask({"do": "wait"}, timeout_s=self._options.timeout_s)
        for number, spec in enumerate(specs):
            row = ArmResult(name=spec.name)
            if spec is again:
                self._result.same_again = row
                if self._options.in_process or not (self._runners or waiting):
                    continue
            else:
                self._result.arms.append(row)
            renew = partial(self._process, folder, str(number), spec, stack)
            process = shared or started.get(number) or renew()
            if self._options.in_process:
                shared = process
            runner = Runner(spec=spec, process=process, row=row, renew=renew)
            if self._options.prepare_together:
                waiting.append(runner)
            else:
                self._prepare(runner)
                self._keep()
        self._prepare_together(waiting)

    def _prepare_together(self, runners: Sequence[Runner]) -> None:
        with ThreadPoolExecutor(max(1, len(runners))) as pool:
            for done in [pool.submit(self._prepare, runner) for runner in runners]:
                done.result()
        if runners:
            self._runners[:] = [runner for runner in runners if runner in self._runners]
            names = [arm.name for arm in self._arms]
            self._result.correctness.sort(key=lambda check: names.index(check.arm))

    def _process(self, parent: Path, name: str, spec: ArmSpec, stack: ExitStack, *, early: Sequence[str] = ()) -> ArmProcess:
        """A process with compile caches of its own, so that every arm starts cold."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
        logs = self._options.log_folder or folder
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            **spec.environment,
        }
        python = self._options.python or default_python()
        process = ArmProcess(python=python, log=logs / f"arm-{name}.log", environment=environment, early=early, view=self._view(folder))
        stack.callback(process.close)
        return process

    def _view(self, folder: Path) -> View | None:
        """The arm's files are its own, but for what it writes for us."""
        view = self._options.view
        return None if view is None else view.and_passed(folder.parent, *([self._options.log_folder] if self._options.log_folder else []))

    def _prepare(self, runner: Runner) -> None:
        spec, first = runner.spec, self._result.arms[0]
        # A function may be broken uncompiled only; but what hangs there would be waited for in every arm.
        needed = first.failed if spec.after else first.status == "timeout" or (spec.script is not None and first.status == "crashed")
        if needed and runner.row is not first:
            runner.row.status, runner.row.reason = "crashed", f"not started because {first.name} failed"
            return
        try:
            about = self._load(runner)
            if spec.kind == LOOP:
                self._loop_is_ready(runner, about)
                return
            checked = {"check": spec.name != AGAIN}
            facts = runner.ask("prepare", self._options, self._phase(spec.name), **checked, **self._baseline_file(spec))
        except ArmFailedError as error:
            self._failed(runner, _with_hint(spec, error))
            return
        if not self._result.environment:
            self._result.environment = about
        self._result.unit = self._result.unit or facts["unit"]
        self._note_prepared(runner, facts)
        self._runners.append(runner)

    def _loop_is_ready(self, runner: Runner, about: dict[str, Any]) -> None:
        self._result.environment = self._result.environment or about
        self._result.unit = runner.row.unit = self._unit
        runner.row.timed = "iteration"
        self._runners.append(runner)

    def _load(self, runner: Runner) -> dict[str, Any]:
        """Let an arm load its program. A script that ends before the call that was waited for is run again, up to the last call it made."""
        script = runner.spec.script
        if script is not None:
            # Another version is taken over where the baseline was.
            known = [self._last_calls.get((spec.target, spec.folder)) for spec in (runner.spec, self._arms[0])]
            script = replace(script, call=next(filter(None, known), script.call))
        try:
            return self._ask_load(runner, script)
        except ArmEndedError as ended:
            if script is None or not ended.calls:
                if runner.spec.after:
                    raise
                raise UsageError(ended.message) from None
            self._last_calls[runner.spec.target, runner.spec.folder] = ended.calls
            self._result.notes.append(f"{ended.message}: the last one, call {ended.calls}, was used")
            runner.process.kill()
            runner.process = runner.renew()
            return self._ask_load(runner, replace(script, call=ended.calls))

    def _ask_load(self, runner: Runner, script: ScriptCall | None) -> dict[str, Any]:
        spec = runner.spec
        about: dict[str, Any] = runner.ask(
            "load",
            self._options,
            self._phase(spec.name),
            kind=spec.kind,
            overrides=dict(spec.overrides),
            target=spec.target,
            folder=spec.folder,
            instead_of=spec.instead_of,
            arguments=spec.arguments,
            shared=self._options.in_process,
            script=None if script is None else asdict(script),
            loop=spec.loop,
            texts=dict(spec.texts),
            back_ends=[arm.overrides["backend"] for arm in self._arms if "backend" in arm.overrides],
        )
        return about

    def _baseline_file(self, spec: ArmSpec) -> dict[str, str]:
        """The file through which the baseline gives its state and results to other versions of the program, if there are any."""
        if self._kept is None or not any(arm.after for arm in self._arms):
            return {}
        if spec is self._arms[0]:
            return {"save": str(self._kept)}
        return {"same_as": str(self._kept)} if spec.after else {}

    def _note_prepared(self, runner: Runner, facts: dict[str, Any]) -> None:
        row = runner.row
        outcome = facts.pop("outcome")
        row.unit = facts.pop("unit")
        row.notes.extend(facts.pop("notes"))
        _fill(row, facts)
        if runner.spec.name != AGAIN:
            if runner.spec.kind != EAGER and not facts["graphs"]:
                row.status, row.reason = "not_compiled", "no graph was captured: what was timed ran eagerly"
            self._result.correctness.append(Correctness(arm=row.name, **outcome))

    def _phase(self, name: str) -> Callable[[str], None]:
        return lambda phase: self._progress(f"{name}: {phase}", None)

    def _failed(self, runner: Runner, error: ArmFailedError) -> None:
        runner.row.status, runner.row.reason = error.status, error.message
        self._runners[:] = [other for other in self._runners if other is not runner]
        if self._options.in_process and error.status in ("crashed", "timeout"):
            for other in self._runners:
                other.row.status, other.row.reason = error.status, f"shared the process of {runner.spec.name}, which {error.message}"
            self._runners.clear()

    def _each(self, what: str, action: Callable[[Runner], None]) -> None:
        for runner in list(self._runners):
            if runner in self._runners:
                self._progress(f"{runner.spec.name}: {'warming up' if what == 'warm' else 'profiling'}", None)
                try:
                    action(runner)
                except ArmFailedError as error:
                    self._failed(runner, error)

    def _warm(self, runner: Runner) -> None:
        facts = runner.ask("warm", self._options)
        facts.pop("phases_s", None)
        runner.call_s = facts.pop("call_s")
        runner.row.warm_up_calls = facts.pop("calls")
        if not facts.pop("still"):
            runner.row.notes.append("after a minute of calls something was still being compiled")
        _fill(runner.row, facts)

    def _finish(self, runner: Runner) -> None:
        try:
            facts = runner.ask("finish", self._options)
        except ArmFailedError:
            if runner.spec.kind != LOOP:
                raise
            runner.row.notes.append("the script ended before the profiled calls: nothing was profiled")
            return
        busy_s = facts.pop("busy_s")
        row = runner.row
        if busy_s is not None and row.samples_ms:
            row.busy_share = busy_s * 1e3 / sorted(row.samples_ms)[len(row.samples_ms) // 2]
        _fill(row, facts)
        if runner.spec.kind == COMPILED and row.status == "ok" and not facts["regions"]:
            row.status, row.reason = "not_compiled", "the timed calls entered no compiled region: they ran eagerly"

    def _ask_baseline(self) -> Callable[[str], Any] | None:
        """How to ask the baseline's process something; None where it is gone or is a script that runs on."""
        runner = next((item for item in self._runners if item.spec is self._arms[0] and item.spec.kind != LOOP), None)
        return None if runner is None else lambda what: runner.ask(what, self._options)

    def _rounds(self) -> None:
        """The timed rounds, with the device's clocks watched."""
        loop = RoundLoop(self._result, self._runners, self._options, failed=self._failed, progress=self._progress)
        watch = ClockWatch(self._result.environment.get("gpu"))
        watch.start()
        try:
            loop.run_rounds()
        finally:
            self._result.clocks = watch.stop()

    def _conclude(self, result: BenchResult) -> None:
        for row in (*result.arms, result.same_again):
            if row is not None:
                summarise(row, result.arms[0])
        if result.environment and not result.environment.get("device"):
            result.notes.append("no CUDA device was used: this ran on the CPU")
        clocks = clock_note(result.clocks)
        result.notes.extend([clocks] if clocks else [])
        compare_arms(result, in_process=self._options.in_process)


def _with_loop(arms: Sequence[ArmSpec], start: Callable[[ArmSpec], ArmProcess], *, timeout_s: float) -> tuple[list[ArmSpec], str]:
    """The arms with the line of their common loop, and what one step is, in words; a loop that was named is not looked for.

    The first arm in which a loop is found decides: all run the same file. Raises UsageError with what the first arm said when none has one.
    """
    script = Path(arms[0].target).name
    if arms[0].loop is not None:
        return list(arms), f"one iteration of the loop at {script}:{arms[0].loop}, which was named"
    errors = []
    for arm in arms:
        process = start(arm)
        try:
            found = process.ask({"do": "find_loop", "target": arm.target, "arguments": arm.arguments}, timeout_s=timeout_s)
        except (UsageError, ArmFailedError) as error:
            errors.append(error.message)
            continue
        finally:
            process.kill()
        unit = f"one iteration of the loop at {script}:{found['line']}, {found['what']}"
        return [replace(arm_spec, loop=found["line"]) for arm_spec in arms], unit
    raise UsageError(errors[0])


def _with_hint(spec: ArmSpec, error: ArmFailedError) -> ArmFailedError:
    if spec.instead_of is None or "FileNotFoundError" not in error.message:
        return error
    hint = "the copy of the revision contains only files that git tracks: use absolute paths for other files"
    return ArmFailedError(error.status, f"{error.message} ({hint})")


def _fill(row: ArmResult, facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        setattr(row, name, value)


def bench(arms: Sequence[ArmSpec], options: BenchOptions | None = None, progress: Progress = lambda _text, _left_s: None) -> BenchResult:
    """The benchmark of `arms`, the first of which is the baseline."""
    return Session(arms, options or BenchOptions(), progress).run_benchmark()
