"""The isolated oracle: one child a question, two runs in it, and the verdict by comparing failures."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from dynadiag.children.answer_cache import digest, remembered
from dynadiag.children.forked import ChildReport, run_forked
from dynadiag.errors import DynadiagError
from dynadiag.reduce.core.failure import CRASHES, Failure, crash_frames, from_json
from dynadiag.reduce.core.reducer import Judgement
from dynadiag.reduce.core.speculation import Pool, PoolOptions
from dynadiag.reduce.core.verdict import Verdict
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import HOME, LARGE_BYTES
from dynadiag.reduce.graphs.observing import Tell, observe
from dynadiag.reduce.graphs.running import eager_values, impossible
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.scratch import scratch
from dynadiag.torch_compat.dispatch.saved_values import from_saved, to_saved
from dynadiag.torch_compat.dispatch.state import fake_process_groups
from dynadiag.torch_compat.inductor.cpp_answers import errors_too


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What one child showed: a failure, nothing wrong (neither is set), or why it cannot say (`invalid`).

    `environment` is the reason for an environment error. `wall_s` is what it took, `reached_s` when its last phase began.
    """

    failure: Failure | None = None
    invalid: str | None = None
    environment: bool = False
    wall_s: float = 0.0
    cpu_s: float = 0.0
    reached_s: float = 0.0


def observe_isolated(candidate: Candidate, setting: Setting, *, timeout_s: float) -> Observation:
    """Run a candidate twice (control, subject) in a child and say what happened; what an earlier run saw is not run again."""

    def work(tell: Tell) -> None:
        with errors_too():
            observe(candidate, setting, tell, spend=True)

    def ask() -> dict[str, Any]:
        return asdict(observation(run_forked(work, timeout_s=timeout_s)))

    key = f"observe {candidate.key} {digest(json.dumps(setting.to_json(), sort_keys=True, default=str), timeout_s)}"
    seen = remembered(key, ask, keep=lambda answer: not answer["environment"])
    return Observation(**{**seen, "failure": from_json(seen["failure"]) if seen["failure"] is not None else None})


def observation(report: ChildReport) -> Observation:
    """What a child that ran `observe` showed."""
    outcome = _outcome(report)
    reached = max((message.get("at_s", 0.0) for message in report.messages), default=0.0)
    return Observation(**outcome, wall_s=report.wall_s, cpu_s=report.cpu_s, reached_s=reached)


def _outcome(report: ChildReport) -> dict[str, Any]:
    phase = next((message["step"] for message in reversed(report.messages) if "step" in message), "start")
    for message in report.messages:
        if "failure" in message:
            return {"failure": from_json(message["failure"])}
        if "invalid" in message:
            return {"invalid": message["invalid"], "environment": bool(message.get("environment"))}
        if "broken" in message:
            return {"invalid": f"the oracle itself failed: {message['broken']}"}
        if "passed" in message:
            return {}
    if report.timed_out:
        return _late(phase, "hang", "it did not finish in time")
    if report.signal in CRASHES:
        return _late(phase, "crash", str(report.signal), report.output)
    if report.signal is not None:
        return {"invalid": f"it was killed by {report.signal} (out of memory?)", "environment": True}
    return _late(phase, "crash", f"exit {report.exit_status}", report.output)


def _late(phase: str, kind: str, message: str, detail: str = "") -> dict[str, Any]:
    """A child that told no end: the fault of the compiler only when the control had passed."""
    if phase in ("start", "control"):
        return {"invalid": f"without the compiler: {kind} ({message})"}
    return {"failure": Failure(kind=kind, phase=phase, message=message, frames=crash_frames(detail), detail=detail)}


class IsolatedOracle:
    """Judges candidates by whether a child shows the same failure as the original; `other_cause` says why it is another all the same."""

    def __init__(
        self,
        setting: Setting,
        target: Failure,
        *,
        timeout_s: float,
        repeats: int = 1,
        pool: PoolOptions | None = None,
        other_cause: Callable[[Candidate], str | None] = lambda candidate: None,
    ) -> None:
        self.setting = setting
        self.target = target
        self.other_cause = other_cause
        self.timeout_s = timeout_s
        self.repeats = repeats
        self.children = 0
        self.wait: Callable[[], None] = lambda: None
        self._cpu_s = 0.0
        width = pool.width if pool is not None and repeats == 1 else 1
        self.ahead = width - 1
        self._pool = Pool(self._work, pool) if pool is not None and width > 1 else None

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all children, of those too that were started ahead in vain."""
        return self._cpu_s + (self._pool.wasted_cpu_s if self._pool is not None else 0.0)

    def costs_a_child(self, candidate: Candidate) -> bool:
        """Fake tensors of a GPU could initialise it here."""
        return candidate.accelerated

    def begin(self, candidate: Candidate) -> None:
        """Start judging it when there is room."""
        if self._pool is not None:
            self._pool.begin(candidate)

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """Start judging these, the next question first."""
        if self._pool is not None:
            self._pool.prepare(candidates)

    def close(self) -> None:
        """End all children."""
        if self._pool is not None:
            self._pool.close()

    def _work(self, candidate: Candidate) -> Callable[[Tell], None]:
        def work(tell: Tell) -> None:
            with contextlib.nullcontext() if self.repeats > 1 else errors_too():
                observe(candidate, self.setting, tell, spend=True)

        return work

    def judge(self, candidate: Candidate) -> Judgement:
        """The verdict; a flaky failure is given `repeats` chances to show itself."""
        judgement = Verdict.BORING, ""
        for _ in range(self.repeats):
            self.wait()
            judgement = self._judge_once(candidate)
            self.wait()  # an interrupt has killed the child: what it showed is no answer
            if judgement[0] is not Verdict.BORING:
                break
        return judgement

    def _judge_once(self, candidate: Candidate) -> Judgement:
        seen = self._observed(candidate)
        self.children += 1
        self._cpu_s += seen.cpu_s
        if seen.invalid is not None:
            return Verdict.INVALID, seen.invalid
        if seen.failure is None:
            return Verdict.BORING, ""
        if seen.failure.same_as(self.target):
            other = self.other_cause(candidate)
            return (Verdict.INTERESTING, "") if other is None else (Verdict.DIFFERENT, other)
        verdict = Verdict.TIMEOUT if seen.failure.kind == "hang" else Verdict.DIFFERENT
        return verdict, f"{seen.failure.kind} ({seen.failure.phase}): {seen.failure.title()}"

    def _observed(self, candidate: Candidate) -> Observation:
        if self._pool is None:
            return observation(run_forked(self._work(candidate), timeout_s=self.timeout_s))
        return observation(self._pool.report(candidate))

    def values(self, candidate: Candidate) -> Mapping[str, Any]:
        """The values of an uncompiled run in a child, loaded as plain tensors on the CPU."""
        with scratch("values") as folder:
            path = Path(folder) / "values.pt"
            report = run_forked(lambda tell: _save_values(candidate, path, self.setting), timeout_s=max(self.timeout_s, 60.0))
            if report.exit_status != 0 or not path.exists():
                raise DynadiagError(f"the graph's values could not be stored: {_last_words(report)}", slug="no-values", exit_code=1)
            loaded: dict[str, Any] = from_saved(torch, torch.load(path, weights_only=True, map_location="cpu"))
            return {name: _as_it_was(value, name, loaded) for name, value in loaded["values"].items()}

    def impossible(self, candidate: Candidate) -> str | None:
        """Why the candidate cannot run; asked in a child when it lives on an accelerator."""
        if not candidate.accelerated:
            return impossible(candidate)
        report = run_forked(lambda tell: tell({"why": impossible(candidate)}), timeout_s=max(self.timeout_s, 60.0))
        why: str | None = next((message["why"] for message in report.messages if "why" in message), None)
        return why


_UNWRITTEN = ("inline_container.cc", "iostream error", "No space left on device", "File too large")
"""What `torch.save` says when it cannot write (`caffe2/serialize/inline_container.cc`, 2.11 to 2.15)."""


def _last_words(report: ChildReport) -> str:
    said = next((str(message["broken"]) for message in report.messages if "broken" in message), report.output).strip().splitlines()
    if any(sign in line for line in said for sign in _UNWRITTEN):
        return f"no room to write them into {tempfile.gettempdir()} (the disk is full, or a file size limit was reached)"
    ended = "it did not finish in time" if report.timed_out else report.signal or f"exit {report.exit_status}"
    return said[-1][:300] if said else ended


def _save_values(candidate: Candidate, path: Path, setting: Setting) -> None:
    with fake_process_groups(setting.groups):
        values = eager_values(candidate, grad=setting.grad)
    own = {node.name for node in candidate.module.graph.nodes if node.op == "placeholder"}  # the candidate has those, however large
    values = {name: value for name, value in values.items() if name not in own}
    simple = {name: _simple(value) for name, value in values.items()}
    wanted = {name: None for name, value in values.items() if isinstance(value, torch.Tensor) and value.requires_grad}
    devices = {name: str(value.device) for name, value in values.items() if isinstance(value, torch.Tensor)}
    torch.save({"values": to_saved(torch, simple), "grad": list(wanted), "devices": devices}, path)


def _simple(value: Any) -> Any:
    """What `weights_only` loading reads again: tensors, numbers, and tuples as a sign that it was one."""
    if isinstance(value, torch.Tensor):
        return _compact(value.detach()) if value.layout is torch.strided else None
    if isinstance(value, bool | int | float):
        return value
    return tuple(_simple(item) for item in value) if isinstance(value, tuple | list) else None


def _compact(value: torch.Tensor) -> torch.Tensor:
    """A small view of a large memory on its own, since `torch.save` writes all of it."""
    kept_bytes, whole_bytes = value.numel() * value.element_size(), value.untyped_storage().nbytes()
    return value.clone() if whole_bytes > LARGE_BYTES and 2 * kept_bytes < whole_bytes else value


def _as_it_was(value: Any, name: str, loaded: Mapping[str, Any]) -> Any:
    """The value on the CPU, saying where it lived and whether it needed a gradient."""
    if isinstance(value, torch.Tensor):
        setattr(value, HOME, loaded["devices"][name])
        value.requires_grad_(name in loaded["grad"])
    return value
