"""From the reduced graph to the proven file: the guilty layer, the ATen level, the guilty pass, and the level whose reproducer holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dynadiag.children.answer_cache import digest, remembered
from dynadiag.reduce.graphs.guilty_part import GuiltyLayer, Suspected, bisect, find_guilty_layer, guilt_of
from dynadiag.reduce.graphs.levels import Level, descend
from dynadiag.reduce.graphs.reduction import Reduction, ReductionOptions
from dynadiag.reduce.reproducer.graph_outcome import Written, write_reproducer

_LEAST_PROOF_S = 120.0


@dataclass(frozen=True, kw_only=True)
class ConcludeOptions:
    """`level` is the one asked for; `bisect` looks for the guilty pass; `on_gpu` when the graph lives there; `stop` ends it early."""

    level: Level = "auto"
    bisect: bool = True
    on_gpu: bool = False
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What is kept: the reduction, the layer with the guilty part, the files, and the `level` with the reason for it."""

    reduction: Reduction
    guilty: GuiltyLayer
    written: Written
    level: str
    level_why: str


def conclude(found: Reduction, out: Path, reducing: ReductionOptions, options: ConcludeOptions) -> Conclusion:
    """Try the ATen level; its result is kept only when its file is proven, else that of Dynamo's level is written."""
    confirmed = found.confirmed
    repeats = confirmed.repeats
    if options.stop():
        return _written(found, GuiltyLayer(layer="not looked for"), out, options, level="dynamo", why="the search was interrupted")
    guilty = find_guilty_layer(found.best, found.setting, confirmed.failure, timeout_s=confirmed.timeout_s, repeats=repeats)
    descent = descend(found, guilty, reducing, options.level)
    why = descent.why
    if descent.found is not None:
        lowered = _written(descent.found, guilty, out, options, level="aot", why=why)
        if lowered.written.proof.holds or (options.level == "aot" and lowered.written.path is not None):
            return lowered
        proof = lowered.written.proof
        why = lowered.written.why_not or f"it failed in {proof.reproduced} of {proof.runs} fresh processes"
        why = f"the reproducer at ATen level is not proven: {why}"
    return _written(descent.spent, guilty, out, options, level=descent.level, why=why)


def _written(reduction: Reduction, guilty: GuiltyLayer, out: Path, options: ConcludeOptions, *, level: str, why: str) -> Conclusion:
    if options.bisect and not options.stop():
        reduction, guilty = _bisected(reduction, guilty, options)
    limit_s = max(_LEAST_PROOF_S, reduction.confirmed.timeout_s)
    written = write_reproducer(reduction, guilty, out, timeout_s=limit_s, level=level)
    return Conclusion(reduction=reduction, guilty=guilty, written=written, level=level, level_why=why)


def _bisected(reduction: Reduction, guilty: GuiltyLayer, options: ConcludeOptions) -> tuple[Reduction, GuiltyLayer]:
    confirmed = reduction.confirmed
    subject = Suspected(
        candidate=reduction.best,
        setting=reduction.setting,
        timeout_s=confirmed.timeout_s,
        repeats=confirmed.repeats,
        on_gpu=options.on_gpu,
        stop=options.stop,
    )
    key = f"guilt {reduction.best.key} {digest(json.dumps(reduction.setting.to_json(), sort_keys=True, default=str), confirmed.timeout_s)}"
    # An interrupted search knows nothing.
    guilt = guilt_of(remembered(key, lambda: asdict(bisect(subject)), keep=lambda answer: not options.stop()))
    # What an interrupted search did not find may still be there.
    return replace(reduction, cpu_s=reduction.cpu_s + guilt.cpu_s), replace(guilty, guilt=None if options.stop() else guilt)
