"""A benchmark as the document that terminal, Markdown and page show: verdicts first, then the numbers, then what to know about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from dynadiag.bench import picture
from dynadiag.bench.break_costs import price_lines
from dynadiag.bench.json_result import unknown_above
from dynadiag.bench.judging import ONE_PROCESS
from dynadiag.bench.outcome import ArmResult, BenchResult, Comparison, Correctness, ShapeResult, ShapeStudy
from dynadiag.bench.verdict import SpeedVerdict
from dynadiag.render.document import Cell, Column, Document, Headline, Part, Section, Tone, cells

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
    if item.decision is None or item.verdict in (SpeedVerdict.WRONG, SpeedVerdict.VACUOUS):
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


TONES: Mapping[str, Tone] = {
    SpeedVerdict.FASTER: "good",
    SpeedVerdict.SLOWER: "bad",
    SpeedVerdict.INCONCLUSIVE: "unclear",
    SpeedVerdict.WRONG: "bad",
    SpeedVerdict.VACUOUS: "bad",
    "PASS": "good",
    "DTYPE_CHANGED": "bad",
    "EAGER_NONDETERMINISTIC": "unclear",
}
_MIB = 1 << 20
_NEAR_THE_ROOF = 0.6


def document_of(result: BenchResult, command: str = "") -> Document:
    """All that `bench.json` has, for people."""
    device = result.environment.get("device") or "CPU"
    return Document(
        title=f"dynadiag bench {result.target} on {device}, torch {result.environment.get('torch', 'unknown')}",
        facts=(f"one call is: {result.unit or 'unknown'}",),
        command=command,
        headlines=tuple(_headlines(result)),
        figures=tuple(_figures(result)),
        sections=tuple(_sections(result)),
        name="bench.json",
    )


def _headlines(result: BenchResult) -> Iterator[Headline]:
    """The verdict on each comparison, with what it rests on. A baseline that failed is said once: each comparison would say the same."""
    baseline, checks = result.arms[0], {check.arm: check for check in result.correctness}
    if baseline.failed:
        yield Headline(word="nothing was compared", what=baseline.name, said=baseline.reason, tone="unclear")
        return
    for comparison in result.comparisons:
        names, among = f"{comparison.arm} vs. {comparison.baseline}", among_shapes(comparison, result.shapes)
        check = checks.get(comparison.arm)
        if comparison.verdict in (SpeedVerdict.WRONG, SpeedVerdict.VACUOUS) and check is not None and check.status == "DTYPE_CHANGED":
            names += f" ({check.status})"
        yield Headline(
            word=comparison.verdict, what=names, said=_rests_on(comparison, check) + among, tone=TONES.get(comparison.verdict, "plain")
        )


def _rests_on(comparison: Comparison, check: Correctness | None) -> str:
    decision = comparison.decision
    if decision is None or comparison.verdict in (SpeedVerdict.WRONG, SpeedVerdict.VACUOUS):
        return comparison.reason
    speed = f"{decision.speedup.estimate:.3f} times as fast [{decision.speedup.low:.3f}, {decision.speedup.high:.3f}]"
    noise = f"A/A [{decision.widest.low:.3f}, {decision.widest.high:.3f}]"
    results = f"results {check.status}" if check is not None and check.status else "results not checked"
    return f"{speed}, {noise}, {results}" + (f"; {comparison.reason}" if comparison.reason else "")


def _figures(result: BenchResult) -> Iterator[tuple[str, str]]:
    for row in result.arms:
        if row.median_ms is not None:
            yield f"{row.name}, per {row.timed}", f"{row.median_ms:,.3f} ms"
    if result.rounds:
        yield "rounds in random order", f"{result.rounds:,}"
        yield "timed", f"{result.time.timed_s:.1f} s"


def _sections(result: BenchResult) -> Iterator[Section]:
    checks = {check.arm: check for check in result.correctness}
    every = (*result.arms, *([result.same_again] if result.same_again is not None else []))
    rows = [cells(row.name, _number(row.median_ms), _ends(row), _checked(row, checks)) for row in every]
    columns: tuple[Column, ...] = (Column("arm"), Column("ms", True), Column("95 % interval"), Column("results"))
    yield Section(title="Times", columns=columns, items=rows, points=tuple(_failed(result)))
    if any(row.median_ms is not None for row in every):
        yield Section(title="Picture", pictures=((picture.draw(result), f"Times of {result.target}"),), brief=False)
    if checks:
        columns = (*map(Column, ("arm", "results", "worst output")), *(Column(name, True) for name in ("error", "allowed", "compared")))
        rows = [_check(correctness) for correctness in result.correctness]
        yield Section(title="Correctness", columns=(*columns, Column("in words")), items=rows, brief=False)
    if result.environment.get("device"):
        rows = [cells(row.name, *_on_the_device(row)) for row in every]
        columns = (Column("arm"), Column("kernels a call", True), Column("GPU busy", True), Column("peak MiB", True))
        yield Section(title="On the device", columns=columns, items=rows)
    if rows := [cells(row.name, str(row.graphs), _count(row.breaks), _count(row.recompiles)) for row in every if row.graphs is not None]:
        columns = (Column("arm"), Column("graphs", True), Column("breaks", True), Column("recompiles", True))
        yield Section(title="Compiled", columns=columns, items=rows)
    yield from shapes(result, TONES)
    if rows := [_compiling(result, row) for row in result.arms if row.compile_cold_s is not None and row.compile_warm_s is not None]:
        columns = (Column("arm"), Column("cold s", True), Column("warm s", True), Column("pays off after"), Column("cold s by phase"))
        yield Section(title="Compiling", columns=columns, items=rows)
    if lines := (*limit_lines(result), *price_lines(result.prices or ())):
        yield Section(title="Limits and costs", points=lines)
    known = [cells(name, _value(value)) for name, value in result.environment.items() if value is not None]
    if known:
        yield Section(title="Environment", columns=(Column("name"), Column("value")), items=known, brief=False)
    missing = tuple(f"{name}: {why}" for name, why in unknown_above(result).items())
    yield Section(title="Not measured", points=missing, brief=False)
    yield Section(title="Notes", lines=tuple(_rounds(result)), points=tuple(_notes(result)))


def _checked(row: ArmResult, checks: Mapping[str, Correctness]) -> Part:
    check = checks.get(row.name)
    text = (check.status or "not checked") if check is not None else "-"
    return Part(text, tone=TONES.get(text, "plain"))


def _check(correctness: Correctness) -> tuple[tuple[Part, ...], ...]:
    status = correctness.status or "not checked"
    figures = ("" if value is None else f"{value:.3g}" for value in (correctness.error, correctness.allowed))
    return cells(
        correctness.arm,
        Part(status, tone=TONES.get(status, "plain")),
        correctness.worst,
        *figures,
        f"{correctness.compared:,}",
        Part(correctness.detail, 600),
    )


def _value(value: object) -> str:
    return ", ".join(f"{name} {item}" for name, item in value.items()) if isinstance(value, Mapping) else str(value)


def _failed(result: BenchResult) -> Iterator[str]:
    """What has no times, and why; of the baseline the first line says it."""
    for row in result.arms:
        if row.status != "ok" and not (row.failed and row is result.arms[0]):
            yield f"{row.name}: {row.status}: {row.reason}"
    if result.same_again is not None and result.same_again.failed:
        yield f"A/A: {result.same_again.status}: {result.same_again.reason}"


def _on_the_device(row: ArmResult) -> tuple[str, str, str]:
    return _number(row.kernels, 0), _share(row.busy_share), _number(row.peak_bytes and row.peak_bytes / _MIB, 0)


def _compiling(result: BenchResult, row: ArmResult) -> tuple[tuple[Part, ...], ...]:
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in (row.cold_phases_s or {}).items() if seconds >= 0.05)
    return cells(row.name, f"{row.compile_cold_s:.1f}", f"{row.compile_warm_s:.1f}", _pays_off(result, row), phases)


def _pays_off(result: BenchResult, row: ArmResult) -> str:
    """After how many calls compiling has paid for itself; a gain or loss that is not proven says nothing."""
    verdicts = {comparison.arm: comparison.verdict for comparison in result.comparisons if comparison.baseline == result.arms[0].name}
    verdict = verdicts.get(row.name)
    if verdict is SpeedVerdict.FASTER and row.break_even_calls is not None:
        return f"{row.break_even_calls:,.0f} calls"
    return "never" if verdict in (SpeedVerdict.SLOWER, SpeedVerdict.SAME) else "not known"


def limit_lines(result: BenchResult) -> list[str]:
    """One line a fact; empty when nothing is known."""
    lines: list[str] = []
    floor = result.limits.floor
    if floor is not None and floor["graph_count"]:
        same = "as eager" if floor["graph_flops"] == floor["eager_flops"] else f"eager {_count_of(floor['eager_flops'])}FLOP"
        graphs = f"{floor['graph_count']} AOT graph{'s' if floor['graph_count'] > 1 else ''}"
        lines.append(f"one call: {_count_of(floor['graph_flops'])}FLOP in {graphs} ({same}), at least {_count_of(floor['bytes'])}B moved")
    saved = [f"{row.name} {_count_of(row.saved_bytes)}B" for row in result.arms if row.saved_bytes]
    if saved:
        lines.append(f"kept for backward: {', '.join(saved)}")
    floor_ms = None if floor is None else floor["floor_ms"]
    if floor is not None and floor_ms is not None:
        lines += [_ladder(row, floor_ms) for row in result.arms if row.median_ms is not None]
        lines += _roof(result.arms[0], floor_ms, floor["bound"])
    return lines


def _ladder(row: ArmResult, floor_ms: float) -> str:
    wall = row.median_ms or 0.0
    kernels = "" if row.busy_share is None else f" -> kernels {row.busy_share * wall:.3f} ms"
    return f"{row.name}: floor {floor_ms:.3f} ms{kernels} -> wall {wall:.3f} ms ({floor_ms / wall:.0%} of it is the floor)"


def _roof(baseline: ArmResult, floor_ms: float, bound: str) -> list[str]:
    """When the baseline is so near the floor that no compiler can make it much faster."""
    if baseline.median_ms is None or floor_ms < _NEAR_THE_ROOF * baseline.median_ms:
        return []
    share, times = floor_ms / baseline.median_ms, baseline.median_ms / floor_ms
    change = "change precision" if bound == "compute" else "move fewer bytes"
    limit = f"no compiler can make these graphs more than {times:.2f} times as fast"
    return [f"{baseline.name} is at {share:.0%} of the {bound} roof: {limit}; {change}"]


def _count_of(value: float | None) -> str:
    """A number with three digits and a decimal prefix."""
    size = float(value or 0)
    for prefix in ("", "k", "M", "G", "T"):
        if size < 1000:
            return f"{size:.3g} {prefix}"
        size /= 1000
    return f"{size:.4g} P"


def _rounds(result: BenchResult) -> Iterator[str]:
    if result.rounds:
        share = f", {result.time.outside_share:.0%} of the time outside timed blocks" if result.time.outside_share is not None else ""
        again = "once more" if ONE_PROCESS in result.notes else "in a second process"
        yield f"{result.rounds} rounds in random order, {result.time.timed_s:.1f} s timed{share}; A/A is the baseline {again}."


def _notes(result: BenchResult) -> list[str]:
    """Each once."""
    lines = list(result.notes)
    for row in result.arms:
        lines += [f"{row.name}: {note}" for note in row.notes]
        if row.late_blocks:
            lines.append(f"{row.name}: something was compiled in {row.late_blocks} of {len(row.samples_ms)} timed blocks")
        if row.limit_hits:
            lines.append(f"{row.name}: the recompile limit was hit {row.limit_hits} times; those frames ran eagerly")
        if row.cudagraph_skips:
            why = "; ".join(row.cudagraph_skip_reasons) or "no reason recorded"
            lines.append(f"{row.name}: CUDA graphs were skipped {row.cudagraph_skips} times: {why}")
    return list(dict.fromkeys(lines))


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _ends(row: ArmResult) -> str:
    return "-" if row.ci95_ms is None else f"{row.ci95_ms[0]:.3f} to {row.ci95_ms[1]:.3f}"
