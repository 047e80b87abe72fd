"""`bench.json`: every sample, every verdict and where they come from, described by docs/bench.schema.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import dynadiag
from dynadiag.bench.arms import AGAIN
from dynadiag.bench.json_keys import BenchFile, ComparisonKeys, ShapeKeys, ShapesKeys
from dynadiag.bench.outcome import ArmResult, BenchResult, Comparison, Correctness, ShapeResult, ShapeStudy
from dynadiag.bench.statistics import Interval
from dynadiag.render import finite_json

_NO_CUDA = "no CUDA device was used"
_EAGER = "this arm does not compile anything"
_ON_CUDA = ("kernels", "busy_share", "peak_bytes")
_OF_COMPILED = ("graphs", "breaks", "recompiles", "limit_hits", "cudagraph_skips", "compile_cold_s", "compile_warm_s", "cold_phases_s")
_OF_DECISIONS = ("speedup", "ci95", "noise_ci95", "noise_ci99")
_COMPILE_SECONDS = ("compile_cold_s", "compile_warm_s", "cold_phases_s", "warm_phases_s", "break_even_calls")
_OF_SHAPES = (
    "name",
    "status",
    "reason",
    "samples_ms",
    "device_samples_ms",
    "calls_per_block",
    "median_ms",
    "ci95_ms",
    "regions",
    "late_blocks",
)
_TIMES = ("median_ms", "ci95_ms", "calls_per_block", "warm_up_calls", "regions", "lookups", "lookup_us")


def to_dict(result: BenchResult) -> BenchFile:
    """The result as plain dicts and lists; what is null has its reason in `unknown` beside it."""
    cuda = bool(result.environment.get("device"))
    return {
        "schema_version": 1,
        "dynadiag": dynadiag.__version__,
        "target": result.target,
        "unit": result.unit,
        "device": result.environment.get("device") or "cpu",
        "torch": result.environment.get("torch"),
        "environment": dict(result.environment),
        "arms": [_arm(row, cuda) for row in result.arms],
        "same_again": None if result.same_again is None else _arm(result.same_again, cuda),
        "comparisons": [_comparison(item) for item in result.comparisons],
        "correctness": [_check(item, result) for item in result.correctness],
        "rounds": result.rounds,
        "timed_s": result.time.timed_s,
        "outside_share": result.time.outside_share,
        "phases_s": dict(result.time.phases_s),
        "clocks": result.clocks,
        "ceilings": result.limits.ceilings,
        "floor_ms": None if result.limits.floor is None else result.limits.floor.get("floor_ms"),
        "floor": None if result.limits.floor is None else _floor(result),
        "shapes": None if result.shapes is None else _shapes(result.shapes, cuda),
        "prices": None if result.prices is None else [dict(price) for price in result.prices],
        "notes": list(result.notes),
        "interrupted": result.interrupted,
        "unknown": unknown_above(result),
    }


def dumps(result: BenchResult) -> str:
    """`to_dict` as text; NaN and infinities are null with the reason."""
    return finite_json.dumps(to_dict(result), indent=1) + "\n"


def _arm(row: ArmResult, cuda: bool) -> dict[str, Any]:
    values = dataclasses.asdict(row)
    values["ci95_ms"] = None if row.ci95_ms is None else list(row.ci95_ms)
    values["cudagraph_skip_reasons"] = list(row.cudagraph_skip_reasons)
    values["throughput_per_s"] = None if row.median_ms is None else 1e3 / row.median_ms
    values["unknown"] = {name: _why(row, name, cuda) for name, value in values.items() if value is None}
    return values


def _check(item: Correctness, result: BenchResult) -> dict[str, Any]:
    values = dataclasses.asdict(item)
    is_baseline = bool(result.arms) and item.arm == result.arms[0].name and item.status == "PASS"
    why = "the other arms are compared with this one" if is_baseline else item.detail or "no distance is defined for what was compared"
    return {**values, "unknown": {name: why for name in ("worst", "error", "allowed") if values[name] is None}}


def _floor(result: BenchResult) -> dict[str, Any]:
    floor = dict(result.limits.floor or {})
    return {**floor, "unknown": {name: result.limits.why_not or _NO_CUDA for name, value in floor.items() if value is None}}


def _why(row: ArmResult, name: str, cuda: bool) -> str:
    if row.failed and row.reason:
        return row.reason
    if name in _ON_CUDA and not cuda:
        return _NO_CUDA
    if row.timed == "iteration" and name in _COMPILE_SECONDS:
        return "a script's compilation is not separated from its other work"
    if name == "break_even_calls":
        return "this arm's median is not below the baseline's, or it is the baseline itself"
    if name in (*_OF_COMPILED, "warm_phases_s"):
        return "no graph was captured" if row.status == "not_compiled" else _EAGER
    if row.timed == "iteration" and name in ("saved", "saved_bytes"):
        return "what an iteration of a script keeps for backward is not separated"
    if row.name == AGAIN:
        return "the baseline's own process was measured again"
    return "nothing was timed" if not row.samples_ms else "not measured"


def _shapes(study: ShapeStudy, cuda: bool) -> ShapesKeys:
    return {
        "replayed": [_shape(shape, cuda) for shape in study.shapes],
        "means": [{**dataclasses.asdict(mean), "unknown": {} if mean.reason == "" else {"speedup": mean.reason}} for mean in study.means],
        "compiled": {name: dict(facts) for name, facts in study.compiled.items()},
        "left_out": [{"reason": reason, "calls": calls} for reason, calls in study.left_out.items()],
        "failed": dict(study.failed),
    }


def _shape(shape_result: ShapeResult, cuda: bool) -> ShapeKeys:
    timing = shape_result.timing
    return {
        "label": shape_result.label,
        "tensors": [dict(tensor) for tensor in shape_result.tensors],
        "calls": shape_result.calls,
        "first_call": shape_result.first_call,
        "rounds": timing.rounds,
        "arms": [_shape_row(row, cuda) for row in timing.arms],
        "same_again": None if timing.same_again is None else _shape_row(timing.same_again, cuda),
        "comparisons": [_comparison(item) for item in timing.comparisons],
        "correctness": [_check(item, timing) for item in timing.correctness],
        "notes": list(timing.notes),
    }


def _shape_row(row: ArmResult, cuda: bool) -> dict[str, Any]:
    whole = _arm(row, cuda)
    kept = {name: whole[name] for name in _OF_SHAPES}
    return {**kept, "unknown": {name: why for name, why in whole["unknown"].items() if name in kept}}


def _comparison(item: Comparison) -> ComparisonKeys:
    decision = item.decision
    return {
        "baseline": item.baseline,
        "arm": item.arm,
        "verdict": item.verdict.value,
        "reason": item.reason,
        "speedup": None if decision is None else decision.speedup.estimate,
        "ci95": None if decision is None else _ends(decision.speedup),
        "noise_ci95": None if decision is None else _ends(decision.noise),
        "noise_ci99": None if decision is None else _ends(decision.widest),
        "rounds": 0 if decision is None else decision.rounds,
        "unknown": {} if decision is not None else dict.fromkeys(_OF_DECISIONS, item.reason or "nothing was timed"),
    }


def _ends(interval: Interval) -> list[float]:
    return [interval.low, interval.high]


def unknown_above(result: BenchResult) -> Mapping[str, str]:
    """What of the whole benchmark is not known, and why."""
    limits = result.limits
    reasons = {
        "torch": None if result.environment else "no arm could be loaded",
        "same_again": None if result.same_again is not None else "no arm was started",
        "outside_share": None if result.time.outside_share is not None else "no round was timed",
        "clocks": None if result.clocks is not None else "nvidia-smi reported no clocks",
        "ceilings": None if limits.ceilings is not None else limits.why_not or _NO_CUDA,
        "floor_ms": None if limits.floor is not None and limits.floor["floor_ms"] is not None else limits.why_not or _NO_CUDA,
        "prices": None if result.prices is not None else "prices are measured with --prices only",
        "shapes": None if result.shapes is not None else result.no_shapes or "shapes are replayed with --shapes only",
        "floor": None if limits.floor is not None else limits.why_not or "nothing was timed",
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}
