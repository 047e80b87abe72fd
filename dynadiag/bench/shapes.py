"""Shapes of a real loop: each one that the script had is checked and timed on every arm, with a verdict of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynadiag.bench.arms import AGAIN, EAGER
from dynadiag.bench.judging import compare_arms, summarise
from dynadiag.bench.outcome import ArmResult, BenchResult, Correctness, ShapeMean, ShapeResult, ShapeStudy
from dynadiag.bench.process import ArmFailedError
from dynadiag.bench.round_loop import BenchOptions, Progress, RoundLoop, Runner
from dynadiag.bench.statistics import weighted_geometric_mean

_LONGEST_LABEL = 60


@dataclass(frozen=True, kw_only=True)
class _Replay:
    """What all shapes share: who is asked, how, and the arms that cannot answer any more, with the reason."""

    result: BenchResult
    runners: Sequence[Runner]
    options: BenchOptions
    progress: Progress
    gone: dict[str, ArmFailedError]

    def ask(self, runner: Runner, what: str, **more: Any) -> Any:
        """One command; raises ArmFailedError, at once when this arm has failed for good before."""
        if runner.spec.name in self.gone:
            raise self.gone[runner.spec.name]
        try:
            return runner.ask("shapes", self.options, shape=what, **more)
        except ArmFailedError as error:
            if runner.process.has_ended:
                self.gone[runner.spec.name] = error
            raise


def replay_shapes(result: BenchResult, runners: Sequence[Runner], options: BenchOptions, progress: Progress) -> None:
    """Fill `result.shapes`, or say in `no_shapes` why not. An arm that fails at a shape keeps its other rows."""
    replay = _Replay(result=result, runners=runners, options=options, progress=progress, gone={})
    baseline = next((runner for runner in runners if runner.row is result.arms[0]), None)
    if baseline is None:
        result.no_shapes = f"{result.arms[0].name} could not be timed"
        return
    try:
        listed = replay.ask(baseline, "list")
    except ArmFailedError as error:
        result.no_shapes = f"{baseline.spec.name} {error.message}"
        return
    study = result.shapes = ShapeStudy(left_out=listed["left_out"])
    labels = labels_of([shape["tensors"] for shape in listed["shapes"]])
    for label, shape in zip(labels, listed["shapes"], strict=True):
        study.shapes.append(ShapeResult(label=label, **shape, timing=_rows(result)))
    for runner in runners:
        _prepare(replay, study, runner, listed)
    for index, shape_result in enumerate(study.shapes):
        _time(replay, shape_result, index, options.budget.max_s / len(study.shapes))
    study.means = [_mean(study, item.baseline, item.arm) for item in study.shapes[0].timing.comparisons] if study.shapes else []


def _rows(result: BenchResult) -> BenchResult:
    names = [row.name for row in result.arms]
    return BenchResult(target=result.target, arms=[ArmResult(name=name) for name in names], same_again=ArmResult(name=AGAIN))


def _prepare(replay: _Replay, study: ShapeStudy, runner: Runner, listed: Mapping[str, Any]) -> None:
    """Check every shape on this arm, then let it compile for all of them as the script's loop would."""
    name = runner.spec.name
    try:
        if replay.ask(runner, "list") != listed:
            replay.gone[name] = ArmFailedError("crashed", "received different shapes than the baseline")
            raise replay.gone[name]
    except ArmFailedError as error:
        study.failed[name] = error.message
    for index, shape_result in enumerate(study.shapes):
        replay.progress(f"{name}: checking shape {index + 1} of {len(study.shapes)}", None)
        row = _row(shape_result.timing, name)
        try:
            outcome = replay.ask(runner, "check", index=index)
        except ArmFailedError as error:
            row.status, row.reason = error.status, error.message
            continue
        if name != AGAIN:
            shape_result.timing.correctness.append(Correctness(arm=name, **outcome))
    try:
        facts = replay.ask(runner, "settle")
    except ArmFailedError as error:
        study.failed[name] = error.message
        return
    if facts:
        study.compiled[name] = facts


def _row(timing: BenchResult, name: str) -> ArmResult:
    rows = [row for row in (*timing.arms, timing.same_again) if row is not None]
    return next(row for row in rows if row.name == name)


def _time(replay: _Replay, shape_result: ShapeResult, index: int, max_s: float) -> None:
    """Warm-up, rounds and verdicts of one shape."""
    timing = shape_result.timing
    taking_part: list[Runner] = []
    for runner in replay.runners:
        row = _row(timing, runner.spec.name)
        if row.failed:
            continue
        shaped = replace(runner, row=row, block={"what": "shapes", "shape": "block", "index": index})
        try:
            warmed = replay.ask(runner, "warm", index=index)
        except ArmFailedError as error:
            row.status, row.reason = error.status, error.message
            continue
        shaped.call_s, row.warm_up_calls = warmed["call_s"], warmed["calls"]
        taking_part.append(shaped)

    def failed(runner: Runner, error: ArmFailedError) -> None:
        runner.row.status, runner.row.reason = error.status, error.message
        if runner.process.has_ended:
            replay.gone[runner.spec.name] = error
        taking_part[:] = [other for other in taking_part if other is not runner]

    options = replace(replay.options, budget=replace(replay.options.budget, max_s=max_s))
    RoundLoop(timing, taking_part, options, failed=failed, progress=replay.progress, called=f"shape {index + 1}: round").run_rounds()
    for runner in taking_part:
        _look(replay, runner, index)
    for row in timing.arms if timing.same_again is None else (*timing.arms, timing.same_again):
        summarise(row, timing.arms[0])
    compare_arms(timing, in_process=False)


def _look(replay: _Replay, runner: Runner, index: int) -> None:
    """Whether compiled code was entered at all: past the recompile limit a shape runs eager without a word."""
    if runner.spec.kind == EAGER:
        return
    try:
        regions = replay.ask(runner, "look", index=index)
    except ArmFailedError as error:
        runner.row.notes.append(f"no call was profiled: {error.message}")
        return
    runner.row.regions = regions
    if not regions:
        runner.row.status, runner.row.reason = "not_compiled", "the timed calls entered no compiled region: they ran eagerly"


def _mean(study: ShapeStudy, baseline: str, arm: str) -> ShapeMean:
    """Over the shapes with right results and times; the others are left out by name."""
    ratios, weights, left_out = [], [], []
    for shape in study.shapes:
        found = next((item for item in shape.timing.comparisons if (item.baseline, item.arm) == (baseline, arm)), None)
        counts = found is not None and found.decision is not None and found.verdict not in ("WRONG", "VACUOUS")
        if found is None or found.decision is None or not counts:
            left_out.append(shape.label)
            continue
        ratios.append(found.decision.speedup.estimate)
        weights.append(shape.calls)
    speedup = weighted_geometric_mean(ratios, weights) if ratios else None
    reason = "" if ratios else "no shape has both correct results and times"
    return ShapeMean(baseline=baseline, arm=arm, speedup=speedup, reason=reason, shapes=len(ratios), calls=sum(weights), left_out=left_out)


def labels_of(shapes: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """A short name of each shape: the tensors in which the shapes differ, or all of them where there is one shape; unique."""
    kinds = [{(item["name"], _kind(item)) for item in tensors} for tensors in shapes]
    alike = set.intersection(*kinds) if kinds else set()
    texts = [[_text(item, kind=(item["name"], _kind(item)) not in alike) for item in tensors] for tensors in shapes]
    common = set.intersection(*map(set, texts)) if len(texts) > 1 else set()
    labels = [_cut(", ".join(text for text in group if text not in common) or "no tensors") for group in texts]
    return [label if labels.count(label) == 1 else f"{number}: {label}" for number, label in enumerate(labels, 1)]


def _kind(item: Mapping[str, Any]) -> str:
    return f"{item['dtype']} with gradient" if item["requires_grad"] else str(item["dtype"])


def _text(item: Mapping[str, Any], *, kind: bool) -> str:
    sizes = "x".join(map(str, item["shape"])) or "scalar"
    return f"{item['name']} {sizes} {_kind(item)}" if kind else f"{item['name']} {sizes}"


def _cut(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 3]}..."
