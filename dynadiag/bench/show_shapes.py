"""The shapes of a real loop: whether a win holds in all of them, and a row a shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from dynadiag.bench.outcome import BenchResult, Comparison, ShapeResult, ShapeStudy
from dynadiag.bench.verdict import Verdict
from dynadiag.render.document import Cell, Column, Part, Section, Tone, cells

_NAMED = 3


def among_shapes(comparison: Comparison, study: ShapeStudy | None) -> str:
    """What the shapes add to a verdict, to stand behind its line: that it holds in all of them, or where it does not; else nothing."""
    if study is None or len(study.shapes) < 2:
        return ""
    found = [(shape, same) for shape in study.shapes if (same := _beside(shape, comparison)) is not None]
    others = [(shape_result, same) for shape_result, same in found if same.verdict is not comparison.verdict]
    if not others:
        return f"; the same in all {len(found)} shapes"
    words = ", ".join(f"{same.verdict}{_times(same)} at {item.label}" for item, same in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"; not {comparison.verdict} in {len(others)} of {len(found)} shapes: {words}{more}"


def _beside(shape_result: ShapeResult, comparison: Comparison) -> Comparison | None:
    names = (comparison.baseline, comparison.arm)
    return next((item for item in shape_result.timing.comparisons if (item.baseline, item.arm) == names), None)


def _times(item: Comparison) -> str:
    if item.decision is None or item.verdict in (Verdict.WRONG, Verdict.VACUOUS):
        return ""
    return f" ({item.decision.speedup.estimate:.3f} times as fast)"


def shapes(result: BenchResult, tones: Mapping[str, Tone]) -> Iterator[Section]:
    """A row for each shape and arm, the weighted means, and what was not replayed."""
    study = result.shapes
    if study is not None:
        columns = (Column("shape"), Column("calls", True), Column("arm"), Column("ms per call", True), Column("times as fast"))
        rows = [row for shape in study.shapes for row in _rows(shape, tones)]
        yield Section(title="Shapes", columns=(*columns, Column("verdict")), items=rows, points=tuple(shape_lines(study)))
    elif result.no_shapes:
        yield Section(title="Shapes", points=(f"no shapes were replayed: {result.no_shapes}",))


def _rows(shape_result: ShapeResult, tones: Mapping[str, Tone]) -> Iterator[tuple[Cell, ...]]:
    comparisons = {item.arm: item for item in shape_result.timing.comparisons}
    for number, row in enumerate(shape_result.timing.arms):
        item = comparisons.get(row.name)
        speed = None if item is None or item.decision is None else item.decision.speedup
        yield cells(
            *((shape_result.label, f"{shape_result.calls}") if number == 0 else ("", "")),
            row.name,
            "-" if row.median_ms is None else f"{row.median_ms:.3f}",
            "" if speed is None else f"{speed.estimate:.3f} [{speed.low:.3f}, {speed.high:.3f}]",
            "baseline" if item is None else Part(str(item.verdict), tone=tones.get(item.verdict, "plain")),
        )


def shape_lines(study: ShapeStudy) -> list[str]:
    """The means weighted by calls, what each arm compiled, what was left out and why, and reasons of verdicts that are none."""
    lines = []
    for mean in study.means:
        names = f"{mean.arm} vs. {mean.baseline}"
        if mean.speedup is None:
            lines.append(f"all shapes: {names}: {mean.reason}")
        else:
            left = f"; left out: {', '.join(mean.left_out)}" if mean.left_out else ""
            weighted = f"geometric mean of {mean.shapes} shapes, weighted by their {mean.calls} calls{left}"
            lines.append(f"all shapes: {names}: {mean.speedup:.3f} times as fast ({weighted})")
    for name, facts in study.compiled.items():
        past = f", the recompile limit hit {facts['limit_hits']} times" if facts.get("limit_hits") else ""
        lines.append(f"{name} for all shapes together: graphs {facts['graphs']}, recompiles {facts['recompiles']}{past}")
    lines += [f"{calls} of the watched calls not replayed: {reason}" for reason, calls in study.left_out.items()]
    lines += [f"{name}: its shapes were not timed: {reason}" for name, reason in study.failed.items()]
    return [*lines, *_reasons(study)]


def _reasons(study: ShapeStudy) -> list[str]:
    said = Counter(
        f"{item.arm}: {item.verdict} at {shape.label}: {item.reason}"
        for shape in study.shapes
        for item in shape.timing.comparisons
        if item.reason
    )
    return list(said)
