"""The floor of a step: how long its AOT graphs take at least on a device whose ceilings were measured; and keeping those ceilings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dynadiag.bench.outcome import BenchResult
from dynadiag.bench.process import ArmFailedError
from dynadiag.bench.statistics import is_positive
from dynadiag.files import write_inside
from dynadiag.render import finite_json


def floor_of(work: Mapping[str, Any], ceilings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The step's work, with `floor_ms` and what bounds it ("compute" or "memory"); None for both without ceilings or for an unknown dtype.

    A graph takes at least as long as its products at the rate of their dtype, or as its distinct inputs and outputs at the rate of a copy.
    Bytes that fit into the L2 cache may never reach memory: such a graph counts with its products alone, in `graphs_in_l2`.
    """
    graphs = list(work["graphs"])
    totals = {"bytes": sum(graph["bytes"] * graph["runs"] for graph in graphs), "graph_count": len(graphs)}
    result = {**work, **totals, "floor_ms": None, "bound": None, "graphs_in_l2": None}
    if ceilings is None or not graphs:
        return result
    compute = [_compute_s(graph["flops"], work, ceilings) for graph in graphs]
    if None in compute:
        return result
    in_l2 = [graph["bytes"] <= ceilings["l2_bytes"] for graph in graphs]
    memory = [0.0 if small else graph["bytes"] / ceilings["copy_bytes_per_s"] for small, graph in zip(in_l2, graphs, strict=True)]
    runs = [graph["runs"] for graph in graphs]
    floor_s = sum(count * max(busy or 0.0, moved) for count, busy, moved in zip(runs, compute, memory, strict=True))
    computing = sum(count * (busy or 0.0) for count, busy in zip(runs, compute, strict=True))
    moving = sum(count * moved for count, moved in zip(runs, memory, strict=True))
    if not floor_s:
        return {**result, "graphs_in_l2": sum(in_l2)}
    bound = "compute" if computing >= moving else "memory"
    return {**result, "floor_ms": floor_s * 1e3, "bound": bound, "graphs_in_l2": sum(in_l2)}


def _compute_s(flops: Mapping[str, int], work: Mapping[str, Any], ceilings: Mapping[str, Any]) -> float | None:
    """Seconds for these operations, each dtype at its own rate; None when a rate is not known."""
    rates = ceilings["matmul_flops_per_s"]
    seconds = 0.0
    for name, count in flops.items():
        dtype, _, kind = name.partition(":")
        if dtype == "float32" and work["tf32_convolution" if kind else "tf32_matmul"]:
            dtype = "tf32"
        if dtype not in rates:
            return None
        seconds += count / rates[dtype]
    return seconds


def stored_ceilings(device: str, torch_version: str) -> dict[str, Any] | None:
    """The ceilings measured earlier on this kind of device with this torch; None when there are none or the file is damaged."""
    try:
        found = json.loads(_file(device).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if _is_sound(found) and (found.get("device"), found.get("torch")) == (device, torch_version) else None


def store_ceilings(ceilings: Mapping[str, Any], *, now: datetime | None = None) -> dict[str, Any]:
    """The ceilings with the time of their measurement, kept for later runs where the cache directory can be written."""
    dated = {**ceilings, "measured_at": (now or datetime.now(UTC)).isoformat(timespec="seconds")}
    file = _file(str(ceilings["device"]))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_inside(file.parent, file.name, finite_json.dumps(dated, indent=1) + "\n")
    except OSError:
        return dated
    return dated


def _file(device: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dynadiag" / f"ceilings-{re.sub(r'[^A-Za-z0-9]+', '-', device)[:60]}.json"


def _is_sound(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("matmul_flops_per_s"), dict):
        return False
    rates = list(found["matmul_flops_per_s"].values())
    values = [*rates, found.get("copy_bytes_per_s")]
    l2 = found.get("l2_bytes")
    return bool(rates) and all(is_positive(value) for value in values) and isinstance(l2, int) and not isinstance(l2, bool) and l2 >= 0


def find_limits(result: BenchResult, ask: Callable[[str], Any] | None, *, remeasure: bool) -> None:
    """Fill `ceilings` and `floor` of a result whose arms were timed, or say in `no_limits` why not."""
    if ask is None:
        result.limits.why_not = "only the call or step of an arm that was timed has a floor"
        return
    try:
        work = ask("work")
        result.limits.ceilings = _ceilings(result, ask, remeasure=remeasure)
    except ArmFailedError as error:
        result.limits.why_not = f"counting what a step does failed: {error.message}"
        return
    result.limits.floor = floor_of(work, result.limits.ceilings)
    if result.limits.ceilings is None:
        result.limits.why_not = "ceilings are measured on CUDA devices only"
    elif result.limits.floor["floor_ms"] is None:
        result.limits.why_not = "nothing in the step's graphs has a rate that was measured"
    refuse_impossible_floor(result)


def _ceilings(result: BenchResult, ask: Callable[[str], Any], *, remeasure: bool) -> dict[str, Any] | None:
    device = result.environment.get("device")
    if not device:
        return None
    kept = None if remeasure else stored_ceilings(device, str(result.environment.get("torch")))
    return kept or store_ceilings(ask("ceilings"))


def refuse_impossible_floor(result: BenchResult) -> None:
    """A floor above a measured time is wrong: say so, and give none."""
    floor_ms = None if result.limits.floor is None else result.limits.floor["floor_ms"]
    if result.limits.floor is None or floor_ms is None:
        return
    fastest = min((min(row.samples_ms) for row in result.arms if row.samples_ms), default=None)
    if fastest is not None and floor_ms > fastest:
        result.limits.why_not = f"the computed floor of {floor_ms:.3f} ms is above a measured time of {fastest:.3f} ms, so it is not one"
        result.limits.floor = {**result.limits.floor, "floor_ms": None, "bound": None}
