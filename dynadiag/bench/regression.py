"""`--check base.json`: did an arm get worse since an earlier bench.json?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynadiag.bench.outcome import BenchResult, Comparison
from dynadiag.bench.statistics import is_positive
from dynadiag.bench.verdict import SMALLEST_EFFECT
from dynadiag.errors import UnreadableInputError
from dynadiag.files import read_small

_MOST_BYTES = 64 << 20


@dataclass(kw_only=True)
class Regressions:
    """What got worse, one line each, what could not be compared, and how many comparisons were."""

    found: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checked: int = 0


def read_base(path: Path) -> Mapping[str, Any]:
    """An earlier bench.json. Raises UnreadableInputError with one line for anything else."""
    try:
        document = json.loads(_text(path))
    except OSError as error:
        raise UnreadableInputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UnreadableInputError(f"{path} is not a bench.json: it is not JSON") from None
    if not isinstance(document, dict) or document.get("schema_version") != 1 or not isinstance(document.get("comparisons"), list):
        raise UnreadableInputError(f"{path} is not a bench.json: it lacks schema_version 1 or its comparisons")
    return document


def _text(path: Path) -> str:
    """A file that may come from anybody: no pipe is waited for, and no more is read than a bench.json can hold."""
    data = read_small(path.resolve(), _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("too long")
    return data.decode("utf-8")


def find_regressions(result: BenchResult, base: Mapping[str, Any]) -> Regressions:
    """Speed-ups are compared, not times, since both arms of a speed-up were measured on the same day; of each shape too.

    An arm got worse when its results were right and no longer are, when it was timed and no longer can be, or when the intervals of both
    speed-ups are disjoint and the new one is lower by more than 1 % and by more than the A/A noise of either run.
    """
    found = Regressions()
    if base.get("device") != (result.environment.get("device") or "cpu"):
        found.notes.append(f"the earlier run was on {base.get('device')!s:.80}: the speedups compared are from different devices")
    if base.get("target") != result.target:
        found.notes.append(f"the earlier run was of {base.get('target')!s:.80}, not of {result.target!s:.80}: the same step is assumed")
    _compare(result.comparisons, base["comparisons"], "", found)
    earlier = _shapes(base)
    if earlier and result.shapes is None:
        found.notes.append("the earlier run replayed shapes, this one did not: --shapes is missing")
    for shape in result.shapes.shapes if result.shapes else ():
        before = earlier.pop(_shape_key(shape.tensors), None)
        if before is not None:
            _compare(shape.timing.comparisons, before, f" at {shape.label}", found)
        elif base.get("shapes"):
            found.notes.append(f"shape {shape.label} is not in the earlier run")
    if earlier and result.shapes is not None:
        found.notes.append(f"{len(earlier)} shapes are in the earlier run only")
    return found


def _compare(now: Sequence[Comparison], before: Any, where: str, into: Regressions) -> None:
    old = {_key(item): item for item in before if isinstance(item, dict)} if isinstance(before, list) else {}
    for comparison in now:
        known = old.pop((comparison.baseline, comparison.arm), None)
        if known is None:
            into.notes.append(f"{comparison.arm} vs. {comparison.baseline}{where} is not in the earlier run")
            continue
        into.checked += 1
        worse = _worse(comparison, known, where)
        into.found.extend([worse] if worse else [])
    into.notes.extend(f"{arm!s:.80} vs. {baseline!s:.80}{where} is in the earlier run only" for baseline, arm in old)


def _shapes(base: Mapping[str, Any]) -> dict[str, Any]:
    """The comparisons of the earlier run's shapes by their tensors: a label only tells a shape from the others of its run."""
    study = base.get("shapes")
    replayed = study.get("replayed") if isinstance(study, dict) else None
    shapes = [item for item in replayed if isinstance(item, dict)] if isinstance(replayed, list) else []
    return {_shape_key(shape.get("tensors")): shape.get("comparisons") for shape in shapes}


def _shape_key(tensors: Any) -> str:
    return json.dumps(tensors, sort_keys=True, default=list)


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    return str(item.get("baseline")), str(item.get("arm"))


def _worse(now: Comparison, before: Mapping[str, Any], where: str) -> str | None:
    name = f"{now.arm} vs. {now.baseline}{where}"
    broken = {"WRONG", "VACUOUS"}
    if now.verdict in broken and before.get("verdict") not in broken:
        return f"{name}: {now.verdict}, was {before.get('verdict')!s:.20}: {now.reason}"
    ends, noise = _pair(before.get("ci95")), _pair(before.get("noise_ci95"))
    estimate = before.get("speedup")
    if ends is None or noise is None or not is_positive(estimate):
        return None
    if now.decision is None:
        return f"{name}: was timed before and is not now: {now.reason}"
    speedup = now.decision.speedup
    ratio = speedup.estimate / float(estimate)  # type: ignore[arg-type]
    noisy = min(noise[0], now.decision.noise.low, 1 - SMALLEST_EFFECT)
    if speedup.high < ends[0] and ratio < noisy:
        was = f"{estimate:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"
        return f"{name}: {speedup.estimate:.3f} times as fast [{speedup.low:.3f}, {speedup.high:.3f}], was {was}"
    return None


def _pair(value: Any) -> tuple[float, float] | None:
    if isinstance(value, list) and len(value) == 2 and all(is_positive(item) for item in value):
        return float(value[0]), float(value[1])
    return None
