"""Asking the baseline's process what a step has to do, and what the device can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynadiag.bench.limits import floor_of, store_ceilings, stored_ceilings
from dynadiag.bench.outcome import BenchResult
from dynadiag.bench.process import ArmFailedError


def find_limits(result: BenchResult, ask: Callable[[str], Any] | None, *, remeasure: bool) -> None:
    """Fill `ceilings` and `floor` of a result whose arms were timed, or say in `no_limits` why not."""
    if ask is None:
        result.no_limits = "only the call or step of an arm that was timed has a floor"
        return
    try:
        work = ask("work")
        result.ceilings = _ceilings(result, ask, remeasure=remeasure)
    except ArmFailedError as error:
        result.no_limits = f"counting what a step does failed: {error.message}"
        return
    result.floor = floor_of(work, result.ceilings)
    if result.ceilings is None:
        result.no_limits = "ceilings are measured on CUDA devices only"
    elif result.floor["floor_ms"] is None:
        result.no_limits = "nothing in the step's graphs has a rate that was measured"
    refuse_impossible_floor(result)


def _ceilings(result: BenchResult, ask: Callable[[str], Any], *, remeasure: bool) -> dict[str, Any] | None:
    device = result.environment.get("device")
    if not device:
        return None
    kept = None if remeasure else stored_ceilings(device, str(result.environment.get("torch")))
    return kept or store_ceilings(ask("ceilings"))


def refuse_impossible_floor(result: BenchResult) -> None:
    """A floor above a measured time is wrong: say so, and give none."""
    floor_ms = None if result.floor is None else result.floor["floor_ms"]
    if result.floor is None or floor_ms is None:
        return
    fastest = min((min(row.samples_ms) for row in result.arms if row.samples_ms), default=None)
    if fastest is not None and floor_ms > fastest:
        result.no_limits = f"the computed floor of {floor_ms:.3f} ms is above a measured time of {fastest:.3f} ms, so it is not one"
        result.floor = {**result.floor, "floor_ms": None, "bound": None}
