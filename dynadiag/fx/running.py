"""Whether a rebuilt graph runs: tried with made-up inputs, for real when they are small, on fake tensors when they are large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from dynadiag.errors import shorten
from dynadiag.fx.inputs import FILLINGS, Filling, SizeFactors
from dynadiag.fx.rebuild import RebuildOptions, Rebuilt, rebuild
from dynadiag.fx.spelling import DEVICE_KINDS
from dynadiag.torch_compat.dispatch.state import fake_mode_for, quiet, surroundings

LARGEST_REAL_BYTES = 256 * 1024 * 1024
OTHER_FACTORS: tuple[SizeFactors, ...] = ("equal", "falling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """`runnable`, and `why_not` when it is not. `how` says whether it ran on real or fake tensors, `filling` with which values."""

    runnable: bool
    why_not: str | None = None
    how: Literal["real", "fake"] | None = None
    filling: Filling | None = None
    outputs: Any = None


def try_run(rebuilt: Rebuilt, *, largest_real_bytes: int = LARGEST_REAL_BYTES) -> Trial:
    """Run the graph once, with other made-up values when the first do not suit it. The process's RNG and grad mode stay as they are."""
    fake = rebuilt.input_bytes > largest_real_bytes
    missing = missing_device(rebuilt)
    if missing is not None and not fake:
        return Trial(runnable=False, why_not=f"it needs the device {missing}, which this machine does not have (device=cpu replaces it)")
    first: Exception | None = None
    for filling in FILLINGS:
        try:
            outputs = run_once(rebuilt, filling, fake=fake)
        except Exception as error:  # noqa: BLE001 - the border around a graph from a log
            first = first or error
            continue
        return Trial(runnable=True, how="fake" if fake else "real", filling=filling, outputs=outputs)
    assert first is not None
    return Trial(runnable=False, why_not=f"running it raises {type(first).__name__}: {shorten(str(first).strip(), 300)}")


def rebuild_and_try(text: str, *, details: Mapping[str, Any] | None = None, options: RebuildOptions | None = None) -> tuple[Rebuilt, Trial]:
    """The rebuilt graph and its trial; sizes that nobody recorded are tried in several ways. Raises NotRebuildableError."""
    options = options or RebuildOptions()
    rebuilt = rebuild(text, details=details, options=options)
    trial = try_run(rebuilt)
    if trial.runnable or rebuilt.unknown_symbols < 2:
        return rebuilt, trial
    for factors in OTHER_FACTORS:
        other = rebuild(text, details=details, options=replace(options, factors=factors))
        second = try_run(other)
        if second.runnable:
            return other, second
    return rebuilt, trial


def run_once(rebuilt: Rebuilt, filling: Filling, *, fake: bool = False) -> Any:
    """The outputs of one call on fresh inputs; whatever the graph raises."""
    with quiet(), surroundings(rebuilt.groups, grad=rebuilt.grad):
        if not fake:
            return rebuilt.graph_module.forward(*rebuilt.example_inputs(filling))
        with fake_mode_for():
            return rebuilt.graph_module.forward(*rebuilt.example_inputs(filling))


def missing_device(rebuilt: Rebuilt) -> str | None:
    """The first device among the inputs that this machine does not have; None when all are here."""
    devices = ((spec.device or "cpu") for spec in (*rebuilt.inputs, *rebuilt.attributes))
    return next((device for device in devices if not is_here(device)), None)


def is_here(device: str) -> bool:
    """Whether this machine has a device ("cuda:0")."""
    kind = device.split(":")[0]
    if kind in ("cpu", "meta"):
        return True
    backend = vars(torch).get(kind) if kind in DEVICE_KINDS else None
    return backend is not None and hasattr(backend, "is_available") and bool(backend.is_available())
