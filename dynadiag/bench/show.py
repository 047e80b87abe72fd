"""A benchmark in the terminal: one line a verdict first, then the numbers, then what to know about them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from dynadiag.bench.break_costs import price_lines
from dynadiag.bench.judging import ONE_PROCESS
from dynadiag.bench.outcome import ArmResult, BenchResult, Comparison, Correctness
from dynadiag.bench.show_shapes import among_shapes, print_shapes
from dynadiag.bench.verdict import Verdict
from dynadiag.render.document import Column
from dynadiag.render.page import Page
from dynadiag.render.sanitise import clean

_STYLES = {
    Verdict.FASTER: "bold green",
    Verdict.SLOWER: "bold red",
    Verdict.SAME: "bold",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.WRONG: "bold red",
    Verdict.VACUOUS: "bold red",
}
_MIB = 1 << 20
_NEAR_THE_ROOF = 0.6
# Columns of the first table about times; how narrow a name is folded.
_TIMES, _NARROWEST_NAME = 4, 9


def print_result(result: BenchResult, console: Console) -> None:
    """Print the result; nothing from outside is used as markup."""
    page = Page(console)
    device = result.environment.get("device") or "CPU"
    page.line(clean(f"dynadiag bench {result.target} on {device}, torch {result.environment.get('torch', 'unknown')}"), style="bold")
    page.line(clean(f"one call is: {result.unit or 'unknown'}"))
    page.blank()
    checks = {check.arm: check for check in result.correctness}
    _verdicts(page, result, checks)
    page.blank()
    _arms(page, result, checks)
    print_shapes(page, result)
    _compiling(page, result)
    _limits(page, result)
    _notes(page, result)


def _verdicts(page: Page, result: BenchResult, checks: dict[str, Correctness]) -> None:
    baseline = result.arms[0]
    if baseline.failed:
        # Each comparison would say the same.
        page.line(clean(f"nothing was compared: {baseline.name}: {baseline.reason}"), style="bold yellow")
        return
    for comparison in result.comparisons:
        line = verdict_line(comparison, checks.get(comparison.arm)) + clean(among_shapes(comparison, result.shapes))
        page.line(line, style=_STYLES[comparison.verdict])


def verdict_line(comparison: Comparison, check: Correctness | None) -> str:
    """One comparison in one line: the verdict first, then the numbers that it rests on."""
    decision = comparison.decision
    names = f"{comparison.verdict}: {comparison.arm} vs. {comparison.baseline}"
    if comparison.verdict in (Verdict.WRONG, Verdict.VACUOUS):
        state = f" ({check.status})" if check is not None and check.status == "DTYPE_CHANGED" else ""
        return clean(f"{names}{state}: {comparison.reason}")
    if decision is None:
        return clean(f"{names}: {comparison.reason}")
    speed = f"{decision.speedup.estimate:.3f} times as fast [{decision.speedup.low:.3f}, {decision.speedup.high:.3f}]"
    noise = f"A/A [{decision.widest.low:.3f}, {decision.widest.high:.3f}]"
    results = f"results {check.status}" if check is not None and check.status else "results not checked"
    tail = f"; {comparison.reason}" if comparison.reason else ""
    return clean(f"{names}: {speed}, {noise}, {results}{tail}")


def _arms(page: Page, result: BenchResult, checks: dict[str, Correctness]) -> None:
    columns = [Column("arm"), Column("ms", True), Column("95 % interval", True), Column("results"), Column("graphs", True)]
    columns += [Column("breaks", True), Column("recompiles", True)]
    every = (*result.arms, *([result.same_again] if result.same_again is not None else []))
    rows = []
    for row in every:
        check = checks.get(row.name)
        cells = [clean(row.name), _number(row.median_ms), _ends(row), (check.status or "not checked") if check else "-"]
        rows.append([*cells, _count(row.graphs), _count(row.breaks), _count(row.recompiles)])
    _table(page, columns, rows)
    if result.environment.get("device"):
        _on_the_device(page, every)
    for row in result.arms:
        if row.status != "ok" and not (row.failed and row is result.arms[0]):
            page.line(clean(f"{row.name}: {row.status}: {row.reason}"), style="yellow", prefix="  ")
    if result.same_again is not None and result.same_again.failed:
        page.line(clean(f"A/A: {result.same_again.status}: {result.same_again.reason}"), style="yellow", prefix="  ")


def _table(page: Page, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """All in one table where numbers have room, else in two, and without the intervals where even then they have none."""
    times: Sequence[int] = range(_TIMES)
    counts = (0, *range(_TIMES, len(columns)))
    if _has_room(page, columns, rows, range(len(columns))):
        page.table(columns, rows)
        return
    if not _has_room(page, columns, rows, times):
        times = (0, 1, 3)
    for number, chosen in enumerate((times, counts)):
        if number:
            page.blank()
        page.table([columns[at] for at in chosen], [[row[at] for at in chosen] for row in rows])


def _has_room(page: Page, columns: Sequence[Column], rows: Sequence[Sequence[str]], chosen: Sequence[int]) -> bool:
    """Whether the columns fit beside each other, with the first folded to a few characters."""
    widths = (max(len(columns[at].heading), *(len(row[at]) for row in rows)) for at in chosen if at)
    return _NARROWEST_NAME + sum(2 + width for width in widths) <= page.width - 2


def _on_the_device(page: Page, arms: Sequence[ArmResult]) -> None:
    """What the profiler saw; a table of its own, since one of ten columns loses the arms' names in 80 columns."""
    columns = [Column("on the device"), Column("kernels a call", True), Column("GPU busy", True), Column("peak MiB", True)]
    rows = [
        [clean(row.name), _number(row.kernels, 0), _share(row.busy_share), _number(row.peak_bytes and row.peak_bytes / _MIB, 0)]
        for row in arms
    ]
    page.blank()
    page.table(columns, rows)


def _compiling(page: Page, result: BenchResult) -> None:
    rows = []
    for row in result.arms:
        if row.compile_cold_s is None or row.compile_warm_s is None:
            continue
        phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in (row.cold_phases_s or {}).items() if seconds >= 0.05)
        rows.append([clean(row.name), f"{row.compile_cold_s:.1f}", f"{row.compile_warm_s:.1f}", _pays_off(result, row), phases])
    if rows:
        page.blank()
        columns = [Column("compiling"), Column("cold s", True), Column("warm s", True), Column("pays off after"), Column("cold s by phase")]
        page.table(columns, rows)


def _pays_off(result: BenchResult, row: ArmResult) -> str:
    """After how many calls compiling has paid for itself; a gain or loss that is not proven says nothing."""
    verdicts = {one.arm: one.verdict for one in result.comparisons if one.baseline == result.arms[0].name}
    verdict = verdicts.get(row.name)
    if verdict is Verdict.FASTER and row.break_even_calls is not None:
        return f"{row.break_even_calls:,.0f} calls"
    return "never" if verdict in (Verdict.SLOWER, Verdict.SAME) else "not known"


def _limits(page: Page, result: BenchResult) -> None:
    """What a step has to do, what arms keep for backward, and how far each arm is from the floor."""
    lines = [*limit_lines(result), *price_lines(result.prices or ())]
    if lines:
        page.blank()
    for line in lines:
        page.line(clean(line))


def limit_lines(result: BenchResult) -> list[str]:
    """One line a fact; empty when nothing is known."""
    lines: list[str] = []
    floor = result.floor
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


def _notes(page: Page, result: BenchResult) -> None:
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
    page.blank()
    if result.rounds:
        share = f", {result.outside_share:.0%} of the time outside timed blocks" if result.outside_share is not None else ""
        again = "once more" if ONE_PROCESS in result.notes else "in a second process"
        page.line(f"{result.rounds} rounds in random order, {result.timed_s:.1f} s timed{share}; A/A is the baseline {again}.")
    for line in dict.fromkeys(lines):
        page.line(clean(line), prefix="- ")


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _ends(row: ArmResult) -> str:
    return "-" if row.ci95_ms is None else f"{row.ci95_ms[0]:.3f} to {row.ci95_ms[1]:.3f}"
