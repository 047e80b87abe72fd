"""What a benchmark gives: plain data, as `bench.json` holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from dynadiag.bench.verdict import Budget, Decision, SpeedVerdict
from dynadiag.model.json_keys import Bounds, Count


class SavedKeys(TypedDict):
    """One kind of tensor that a step keeps for its backward."""

    shape: Sequence[int]
    dtype: str
    count: int
    bytes: int


@dataclass(kw_only=True)
class ArmResult:
    """One arm: `status` is "ok", "oom", "crashed", "timeout", "not_compiled" or "interrupted"; what was not
    measured is None, and `reason` says why.

    `timed` says what one sample is of: "call", or "iteration" for a loop of a script.
    Samples are milliseconds per call, one a block; `kernels`, `regions` and `lookups` are per call, `busy_share` is of the median.
    """

    name: str
    status: Annotated[str, "ok, oom, crashed, timeout, not_compiled, interrupted; open"] = "ok"
    reason: str = ""
    unit: str = ""
    timed: Annotated[str, '"call", or "iteration" of a loop of a script (--variants): what one sample measures; open'] = "call"
    samples_ms: list[Annotated[float, Bounds(gt=0)]] = field(default_factory=list)
    device_samples_ms: list[float] = field(default_factory=list)
    calls_per_block: int | None = None
    median_ms: float | None = None
    ci95_ms: tuple[float, float] | None = None
    compile_cold_s: float | None = None
    compile_warm_s: float | None = None
    cold_phases_s: Mapping[str, float] | None = None
    warm_phases_s: Mapping[str, float] | None = None
    break_even_calls: float | None = None
    graphs: int | None = None
    breaks: int | None = None
    recompiles: int | None = None
    limit_hits: int | None = None
    cudagraph_skips: int | None = None
    cudagraph_skip_reasons: Sequence[str] = ()
    kernels: float | None = None
    busy_share: float | None = None
    regions: float | None = None
    lookups: float | None = None
    lookup_us: float | None = None
    peak_bytes: int | None = None
    saved_bytes: Annotated[
        Count | None, "bytes of distinct storages that one step keeps for its backward, beyond parameters, buffers and inputs"
    ] = None
    saved: Annotated[Sequence[Mapping[str, Any]] | None, Sequence[SavedKeys] | None, "the largest kinds of them"] = None
    warm_up_calls: int | None = None
    late_blocks: Count = 0
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether there are no times of this arm."""
        return self.status not in ("ok", "not_compiled")


@dataclass(frozen=True, kw_only=True)
class Correctness:
    """The check of one arm's results: PASS, WRONG, DTYPE_CHANGED, VACUOUS, EAGER_NONDETERMINISTIC; None with a reason if not checked."""

    arm: str
    status: Annotated[
        str | None,
        "PASS, WRONG, DTYPE_CHANGED, VACUOUS, EAGER_NONDETERMINISTIC, NOT_COMPARED; null with the reason in detail; open",
    ]
    worst: str | None
    detail: str
    error: float | None
    allowed: float | None
    compared: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One arm beside its baseline. `decision` is None when there are no times to compare or when results are not right (see `verdict`)."""

    baseline: str
    arm: str
    verdict: SpeedVerdict
    reason: str
    decision: Decision | None


@dataclass(kw_only=True)
class ShapeResult:
    """One shape that the script called its compiled callable with: its tensors, how many of the watched calls had it, and its verdicts.

    `label` names what tells it from the other shapes; `timing` has rows, checks and comparisons of its own.
    """

    label: str
    tensors: Sequence[Mapping[str, Any]]
    calls: int
    first_call: int
    timing: BenchResult


@dataclass(frozen=True, kw_only=True)
class ShapeMean:
    """The geometric mean of an arm's speed-ups over shapes, each weighted by its calls; None with a reason where no shape has one."""

    baseline: str
    arm: str
    speedup: Annotated[float | None, "geometric mean of the shapes' speedups, weighted by how often each was seen"]
    reason: str
    shapes: int
    calls: int
    left_out: Sequence[str]


@dataclass(kw_only=True)
class ShapeStudy:
    """All shapes that were replayed, what each arm compiled for them together, and calls that were not replayed with the reason."""

    shapes: list[ShapeResult] = field(default_factory=list)
    means: list[ShapeMean] = field(default_factory=list)
    compiled: dict[str, Mapping[str, int]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class TimeSpent:
    """Where the time of a benchmark went: `outside_share` is the wall time outside timed blocks between the first and the last timed round.

    `settled` says that the samples ended the rounds, not the budget.
    """

    timed_s: float = 0.0
    outside_share: float | None = None
    phases_s: dict[str, float] = field(default_factory=dict)
    budget: Budget | None = None
    settled: bool = False


@dataclass(kw_only=True)
class StepLimits:
    """How long a step takes at least on this device (`floor`), by what was measured of it (`ceilings`); `why_not` where it is not known."""

    ceilings: Mapping[str, Any] | None = None
    floor: Mapping[str, Any] | None = None
    why_not: str = ""


@dataclass(kw_only=True)
class BenchResult:
    """The whole benchmark; `no_shapes` says why no shapes were replayed, `interrupted` that it was ended before its end."""

    target: str
    unit: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    arms: list[ArmResult] = field(default_factory=list)
    same_again: ArmResult | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    correctness: list[Correctness] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rounds: int = 0
    time: TimeSpent = field(default_factory=TimeSpent)
    clocks: Mapping[str, Any] | None = None
    limits: StepLimits = field(default_factory=StepLimits)
    shapes: ShapeStudy | None = None
    no_shapes: str = ""
    prices: list[Mapping[str, Any]] | None = None
    interrupted: bool = False

    @property
    def exit_status(self) -> int:
        """130 when it was interrupted, 2 when the baseline or A/A has no times, so that nothing was compared, 1 when an arm is SLOWER,
        WRONG or VACUOUS, else 0.
        """
        again = self.same_again
        if self.interrupted:
            return 130
        if self.arms[0].failed or (again is not None and again.failed and not again.samples_ms):
            return 2
        bad = {SpeedVerdict.SLOWER, SpeedVerdict.WRONG, SpeedVerdict.VACUOUS}
        in_shapes = [item for shape in (self.shapes.shapes if self.shapes else ()) for item in shape.timing.comparisons]
        return int(any(comparison.verdict in bad for comparison in (*self.comparisons, *in_shapes)))
