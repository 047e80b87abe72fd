"""One arm in its process: load, check, compile, warm up, time, look back."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from dynadiag.bench.inside.break_costs import prices_of
from dynadiag.bench.inside.checking import CheckOutcome, check_arm, check_eager, check_random, judge, needs_own_setting
from dynadiag.bench.inside.loading import EAGER, CompileSwitch, load_step, stay_alone
from dynadiag.bench.inside.probing import probe
from dynadiag.bench.inside.reference import Expected, begin_alike, collect, prime_and_expect
from dynadiag.bench.inside.results import compare_all
from dynadiag.bench.inside.script_step import ScriptStep
from dynadiag.bench.inside.shapes import ShapeReplay
from dynadiag.bench.inside.steps import CallUnit, TimedStep
from dynadiag.bench.inside.timing import Block, Timer
from dynadiag.bench.inside.work import saved_for_backward, step_work
from dynadiag.capture.reach import State, cuda_in_use, seed_generators
from dynadiag.errors import UsageError
from dynadiag.torch_compat.dynamo.counters import clear_compile_facts, compile_facts, keep_all_metrics


def about_here(*, cuda: bool) -> dict[str, Any]:
    """Versions, device and flags of this process; `cuda` says whether it uses a device."""
    import platform

    import torch

    from dynadiag.torch_compat.dispatch.rounding import uses_tf32

    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if cuda else None,
        "gpu": f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}" if cuda else None,
        "cuda_available": torch.cuda.is_available(),
        "threads": torch.get_num_threads(),
        "tf32": uses_tf32(convolution=False),
    }


Phase = Callable[[str], None]
HandOver = Callable[[Callable[[], "Arm"]], NoReturn]


def _starting_state(*, keeps: bool, kept: dict[str, dict[str, Any]] | None) -> Callable[[State], None]:
    """What to do to the state before it is kept: nothing, or, where two versions of a program must start alike, what makes them so."""

    def change(state: State) -> None:
        if kept is not None:
            take_over_baseline(state, kept)
        if keeps or kept is not None:
            seed_generators()

    return change


@dataclass(kw_only=True)
class Arm:
    """A step under one way of compiling it."""

    name: str
    switch: CompileSwitch
    step: TimedStep
    timer: Timer
    cuda: bool
    shared: bool = False
    shapes: ShapeReplay | None = None

    @property
    def eager(self) -> bool:
        """Whether this arm does not compile anything."""
        return self.switch.arm == EAGER

    @classmethod
    def load(cls, command: Mapping[str, Any], phase: Phase, *, shared: Sequence[Arm] = ()) -> Arm:
        """Import the program and make its step; `shared` are arms that already live in this process and lend theirs."""
        phase("loading")
        if shared:
            return shared[0]._beside(command)
        switch = CompileSwitch(arm=command["kind"], overrides=command.get("overrides") or {})
        switch.install()
        stay_alone(sys.modules["torch"])
        seed_generators()
        step = load_step(command["target"], switch)
        cuda = cuda_in_use()
        several = bool(command.get("shared"))
        return cls(name=command["arm"], switch=switch, step=step, timer=Timer(step.run_step, cuda=cuda), cuda=cuda, shared=several)

    @classmethod
    def take_over(cls, command: Mapping[str, Any], phase: Phase, hand_over: HandOver) -> NoReturn:
        """Run a script up to the call that is meant; `hand_over` gets the arm there and goes on, inside that call."""
        script = command["script"]
        phase(f"running {command['target']} up to call {script['call']}")
        switch = CompileSwitch(arm=command["kind"], overrides=command.get("overrides") or {})

        def make(unit: Callable[[], CallUnit]) -> Arm:
            step = unit()
            cuda = cuda_in_use()
            if run.replay is not None:
                run.replay.eager, run.replay.cuda = switch.arm == EAGER, cuda
            return cls(name=command["arm"], switch=switch, step=step, timer=Timer(step.run_step, cuda=cuda), cuda=cuda, shapes=run.replay)

        run = ScriptStep(command["target"], **script, switch=switch, hand_over=lambda unit: hand_over(lambda: make(unit)))
        run.run_until_taken()

    def _beside(self, command: Mapping[str, Any]) -> Arm:
        """Another arm over the same objects. Its code gets entries of its own in Dynamo's cache: see `CompileSwitch.compile`."""
        if self.step.compiled_by == "program":
            raise UsageError("the program calls torch.compile itself: --in-process cannot give each arm its own; leave it out")
        switch = CompileSwitch(arm=command["kind"], overrides=command.get("overrides") or {})
        switch.original = self.switch.original
        step = replace(self.step, function=switch.compile(self.step.original, isolated=True))
        return Arm(name=command["arm"], switch=switch, step=step, timer=Timer(step.run_step, cuda=self.cuda), cuda=self.cuda, shared=True)

    def about(self) -> dict[str, Any]:
        """Where this runs and what a step is."""
        return {**about_here(cuda=self.cuda), "compiled_by": self.step.compiled_by if not self.eager else None}

    def prepare(self, phase: Phase, *, save: str | None = None, same_as: str | None = None) -> dict[str, Any]:
        """Check the results, and compile from cold and from warm caches on the way.

        `save` names a file for the state and the results of the baseline; `same_as` is that file, for another version of the program.
        """
        phase("running in eager mode")
        if not self.eager:
            keep_all_metrics()
        kept = None if same_as is None else load_baseline(Path(same_as))
        change = _starting_state(keeps=save is not None, kept=kept)
        expected = prime_and_expect(self.step, eager_arm=self.eager, change=change)
        outcome = check_eager(expected)
        if save is not None:
            save_baseline(expected, Path(save))
        if outcome is None and kept is not None:
            outcome = agree_with_baseline(expected, kept)
        facts: dict[str, Any] = {}
        if not self.eager:
            facts = self._compile(expected, phase, outcome)
            outcome = facts.pop("outcome")
        checked = outcome or CheckOutcome(status="PASS", compared=expected.recorded.compared)
        notes = [*expected.notes, *self._own_options()]
        del expected
        self._clear_peak()
        return {"outcome": asdict(checked), "notes": notes, "unit": self.step.what, **facts}

    def settle(self, phase: Phase) -> dict[str, Any]:
        """What `prepare` does for an arm that repeats another: it starts from the same state, and its results have been checked there."""
        phase("running in eager mode")
        begin_alike(self.step, eager_arm=self.eager)
        self._clear_peak()
        return {"outcome": asdict(CheckOutcome(status="PASS")), "notes": [], "unit": self.step.what}

    def _own_options(self) -> list[str]:
        """What "default" leaves as the script has it."""
        own = getattr(self.step, "options", {})
        if self.eager or self.switch.overrides or not own:
            return []
        plain = (str, bool, int)
        said = ", ".join(f"{name}={value if isinstance(value, plain) else type(value).__name__}" for name, value in own.items())
        return [f"compiled as in the script: {said[:200]}"]

    def _compile(self, expected: Expected, phase: Phase, outcome: CheckOutcome | None) -> dict[str, Any]:
        import torch

        apart = needs_own_setting(expected)
        phase("compiling (cold)")
        first, cold = self._first_call(expected)
        if not cold["graphs"]:
            return {"outcome": outcome or CheckOutcome(status="PASS", compared=expected.recorded.compared), **cold}
        if outcome is None:
            phase("checking")
            if apart:
                torch.compiler.reset()
            outcome = check_arm(self.step, expected, first=None if apart else first)
        phase("compiling (warm)")
        torch.compiler.reset()
        warm = self._first_call(expected)[1]
        outcome = (check_random(self.step, expected) if outcome.status == "PASS" else None) or outcome
        return {"outcome": outcome, **cold, "compile_warm_s": warm["compile_cold_s"], "warm_phases_s": warm["cold_phases_s"]}

    def _first_call(self, expected: Expected) -> tuple[dict[str, Any], dict[str, Any]]:
        """The results of a call that compiles; what was compiled in how many seconds."""
        expected.snapshot.restore()
        clear_compile_facts()
        self.timer.wait()
        began = time.perf_counter()
        output = self.step.run_step()
        self.timer.wait()
        seconds = time.perf_counter() - began
        facts = compile_facts()
        phases_s = facts.pop("phases_s")
        return collect(self.step, output), {**facts, "compile_cold_s": seconds, "cold_phases_s": phases_s}

    def warm(self) -> dict[str, Any]:
        """Call until the counters stand still; what was compiled for the calls that are timed.

        Arms that share a process share its counters: there the counts of the first compiled call stand.
        """
        self._clear_peak()
        warmed = self.timer.warm_up()
        self._clear_peak(keep_cache=True)
        return {**asdict(warmed), **({} if self.eager or self.shared else compile_facts())}

    def block(self, calls: int) -> Block:
        """One timed block."""
        return self.timer.block(calls)

    def finish(self) -> dict[str, Any]:
        """What a look back shows: peak memory of the timed calls, and what one profiled call launches."""
        peak = self._peak_bytes() if self.cuda else None
        return {"peak_bytes": peak, **asdict(probe(self.step.run_step, cuda=self.cuda)), **saved_for_backward(self.step)}

    def work(self) -> dict[str, Any]:
        """What a step computes and moves."""
        return step_work(self.step, self.switch)

    def prices(self, max_s: float) -> dict[str, Any]:
        """What each graph break of a step costs."""
        return prices_of(self.step, self.switch, cuda=self.cuda, max_s=max_s)

    def _clear_peak(self, *, keep_cache: bool = False) -> None:
        if self.cuda:
            import torch

            if not keep_cache:
                torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def _peak_bytes(self) -> int:
        """Peak memory of the timed calls; without what CUDA graphs hold where arms share a process, since it may be another arm's."""
        import torch

        return torch.cuda.max_memory_allocated() + (0 if self.shared else held_by_cuda_graphs())


def held_by_cuda_graphs() -> int:
    """The bytes that CUDA graphs keep for their replays. The allocator counts them as free: 1.1 of 1.4 GiB of a model (H200, torch 2.11).

    Each graph's pool is none of the default one, whose id is (0, 0) (`torch.cuda.memory_snapshot`, 2.11 to 2.15).
    """
    import torch

    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return sum(
        segment["total_size"] - segment["allocated_size"] for segment in segments if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    )


def save_baseline(expected: Expected, path: Path) -> None:
    """Keep the state that the baseline starts from, and what eager made of it."""
    import torch

    state = {name: value.cpu() for name, value in expected.snapshot.copies.items()}
    torch.save({"state": state, "first": {name: value.cpu() for name, value in expected.recorded.first.items()}}, path)


def load_baseline(path: Path) -> dict[str, dict[str, Any]]:
    """What `save` kept; only tensors are read."""
    import torch

    kept: dict[str, dict[str, Any]] = torch.load(path, map_location="cpu", weights_only=True)
    return kept


def take_over_baseline(state: State, kept: dict[str, dict[str, Any]]) -> None:
    """Give every tensor that has the name and shape of one of the baseline's that one's values."""
    import torch

    with torch.no_grad():
        for name, held in state.held.items():
            value = kept["state"].get(name)
            if value is not None and value.shape == held.tensor.shape and value.dtype == held.tensor.dtype:
                held.tensor.copy_(value)


def agree_with_baseline(expected: Expected, kept: dict[str, dict[str, Any]]) -> CheckOutcome | None:
    """None when eager here gives what eager gave before the change; otherwise how they differ, or that they share no output.

    Outputs are compared, and every gradient and tensor that both programs have by name; what only one has is a change of the program.
    """
    before, now = kept["first"], expected.recorded
    shared = {name: value for name, value in before.items() if name in now.first}
    if not any(name.startswith("output") for name in shared):
        return CheckOutcome(status="NOT_COMPARED", detail="the two programs share no output, so nothing says that they compute the same")
    here = type(now)(first={name: now.first[name] for name in shared}, second=now.second, exact=now.exact, nudged=now.nudged)
    outcome = judge(compare_all(here, shared), "eager is after, here is before the change")
    return None if outcome.status == "PASS" else outcome
