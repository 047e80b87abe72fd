"""The objects of `bench.json` that are not written as the dataclasses of `outcome`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from dynadiag.bench.outcome import ArmResult, Correctness, ShapeMean
from dynadiag.model.json_keys import KeysOf

Unknown = Annotated[dict[str, str], "why each sibling that is null is null"]


class ArmKeys(TypedDict):
    """What an arm has besides its result."""

    throughput_per_s: float | None
    unknown: Unknown


class UnknownKeys(TypedDict):
    """Why something is null."""

    unknown: Unknown


class MayBeUnknownKeys(TypedDict):
    """Why something is null, where it has no reason of its own."""

    unknown: NotRequired[Unknown]


class ComparisonKeys(TypedDict):
    """One arm beside its baseline."""

    baseline: str
    arm: str
    verdict: Annotated[str, "FASTER, SLOWER, SAME, INCONCLUSIVE, WRONG, VACUOUS; open"]
    reason: str
    speedup: Annotated[float | None, "baseline time / arm time: the median over pairs"]
    ci95: Annotated[list[float], tuple[float, float]] | None
    noise_ci95: Annotated[list[float], tuple[float, float]] | None
    noise_ci99: Annotated[Annotated[list[float], tuple[float, float]] | None, "the A/A interval that the estimate was compared with"]
    rounds: int
    unknown: Unknown


class ShapeRowKeys(TypedDict):
    """One arm at one shape."""

    name: str
    status: str
    reason: str
    samples_ms: Sequence[float]
    device_samples_ms: Sequence[float]
    calls_per_block: int | None
    median_ms: float | None
    ci95_ms: tuple[float, float] | None
    regions: float | None
    late_blocks: int
    unknown: Unknown


class ShapeKeys(TypedDict):
    """One shape that the script called the compiled callable with, and its verdicts."""

    label: str
    tensors: Sequence[Mapping[str, Any]]
    calls: Annotated[int, "how many of the watched calls had this shape"]
    first_call: int
    rounds: int
    arms: Sequence[Annotated[dict[str, Any], ShapeRowKeys]]
    same_again: Annotated[dict[str, Any], ShapeRowKeys] | None
    comparisons: Sequence[ComparisonKeys]
    correctness: Sequence[Annotated[dict[str, Any], KeysOf((Correctness, MayBeUnknownKeys))]]
    notes: Sequence[str]


class LeftOutKeys(TypedDict):
    """Calls that were not replayed."""

    reason: str
    calls: int


class ShapesKeys(TypedDict):
    """Shapes that the script called the compiled callable with, each with its own verdicts; means are weighted by calls."""

    replayed: Sequence[ShapeKeys]
    means: Sequence[Annotated[dict[str, Any], KeysOf((ShapeMean, UnknownKeys))]]
    compiled: Annotated[
        Mapping[str, Mapping[str, int]],
        "what each arm compiled for all shapes, from empty caches, in the order in which they first came",
    ]
    left_out: Sequence[LeftOutKeys]
    failed: Annotated[Mapping[str, str], "arms that failed before any shape was timed"]


class FigureKeys(TypedDict):
    """A time, with its interval."""

    ms: float | None
    ci95_ms: tuple[float, float] | None


class BreakCostKeys(TypedDict):
    """What one graph break costs."""

    id: str
    where: str
    reason: str
    is_break: bool
    times: Annotated[int, "per call"]
    pause_ms: Annotated[float, "host time from the return of one graph to the entry of the next, per call"]
    ms: float | None
    ci95_ms: tuple[float, float] | None
    how: str
    unknown: Unknown


class GuardCostKeys(TypedDict):
    """What the guards of one frame cost."""

    id: Annotated[str, "torch's compile id"]
    function: str
    calls: float
    ms: float | None
    in_a_break: bool
    how: str
    unknown: Unknown


class CopyBackKeys(TypedDict):
    """What one copy into an input costs."""

    name: str
    bytes: int
    ms: float | None
    ci95_ms: tuple[float, float] | None
    how: str


class CudagraphSkipKeys(TypedDict):
    """What a skipped CUDA graph costs."""

    reason: str
    ms: float | None
    at_most_ms: float | None
    how: str
    unknown: Unknown


class PricesKeys(TypedDict):
    """What breaks, guard sets, copy-backs and CUDA-graph skips of one arm cost, in milliseconds per call. step, total and unexplained are
    null where why_not says why, or where the call has no break.
    """

    arm: str
    why_not: str
    graph_calls: int | None
    breaks: Sequence[BreakCostKeys]
    timed_ms: Annotated[
        float | None, "the call's median in the timed rounds, by which shares of the call are multiplied to get costs; null: not scaled"
    ]
    step: Annotated[FigureKeys | None, "the call while costs are measured"]
    total: Annotated[FigureKeys | None, "the call minus the call with its graphs joined into one"]
    sum: Annotated[FigureKeys | None, "of the breaks' costs"]
    unexplained: Annotated[FigureKeys | None, "total minus the sum; attributed to no break"]
    rounds: int
    guards: Sequence[GuardCostKeys]
    copy_backs: Sequence[CopyBackKeys]
    cudagraph_skips: Sequence[CudagraphSkipKeys]
    unknown: NotRequired[Unknown]


class FloorKeys(TypedDict):
    """What one call computes and moves, counted from its AOT graphs, and the least time that this takes."""

    eager_flops: int
    graph_flops: int
    graphs: Sequence[Mapping[str, Any]]
    bytes: int
    graph_count: int
    floor_ms: float | None
    bound: str | None
    graphs_in_l2: int | None
    unknown: Unknown


_ARM = KeysOf((ArmResult, ArmKeys))


class BenchFile(TypedDict):
    """Keys are only ever added; readers tolerate unknown keys and unknown values of open lists. Times are milliseconds per call unless the
    name says otherwise.
    """

    schema_version: Literal[1]
    dynadiag: str
    target: str
    unit: str
    device: str
    torch: str | None
    environment: Mapping[str, Any]
    arms: Sequence[Annotated[dict[str, Any], _ARM]]
    same_again: Annotated[dict[str, Any], _ARM] | None
    comparisons: Sequence[ComparisonKeys]
    correctness: Sequence[Annotated[dict[str, Any], KeysOf((Correctness, MayBeUnknownKeys))]]
    rounds: int
    timed_s: float
    outside_share: float | None
    phases_s: Mapping[str, float]
    clocks: Mapping[str, Any] | None
    ceilings: Annotated[
        Mapping[str, Any] | None,
        "the device's peak rates, measured on random data: bytes copied per second and matmul operations per second, by dtype",
    ]
    floor_ms: float | None
    floor: Annotated[dict[str, Any], FloorKeys] | None
    shapes: ShapesKeys | None
    prices: Sequence[Annotated[dict[str, Any], PricesKeys]] | None
    notes: Sequence[str]
    interrupted: Annotated[bool, "the benchmark was ended early: rows without times say so"]
    unknown: Annotated[Mapping[str, str], "why each sibling that is null is null"]
