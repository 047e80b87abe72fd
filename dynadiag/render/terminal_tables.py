"""The tables under the findings: recompiles, fallbacks, graphs, compile time, ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from dynadiag.facts.wording import rank_numbers
from dynadiag.model.report import FrameTime, RankDifference, Report, Transition
from dynadiag.model.run import Graph
from dynadiag.render import parity_words, wording
from dynadiag.render.page import Column, Page, View
from dynadiag.render.sanitise import clean

Row = TypeVar("Row")

_VALUES_SHOWN = 6
_PHASES_SHOWN = 6


def _section(page: Page, title: str, rows: Sequence[Row], view: View) -> Sequence[Row]:
    """Print a section's title and give the rows to show; an empty section has no title."""
    if rows:
        page.blank()
        page.line(title, style="bold")
    return rows[: view.limit]


def _folded(page: Page, rows: Sequence[object], view: View, what: str) -> None:
    hidden = 0 if view.limit is None else len(rows) - view.limit
    if hidden > 0:
        page.line(f"{wording.plural(hidden, f'more {what}')} not shown (--limit 0 for all)", prefix="  ")


def print_transitions(report: Report, page: Page, view: View, title: str) -> None:
    """The recompile transition table: which source took which values, how far from the limit, and the cure."""
    rows = report.transitions
    shown = _section(page, f"{title}: {report.summary.recompiles:,}", rows, view)
    if shown:
        columns = (Column("frame"), Column("changed"), Column("values"), Column("entries", fold=False))
        page.table(columns, [_transition_row(row, view) for row in shown])
    _folded(page, rows, view, "row")


def _transition_row(row: Transition, view: View) -> tuple[str, str, str, str]:
    values = [clean(value, limit=60) for value in row.values]
    if len(values) > _VALUES_SHOWN and not view.verbose:
        values = [*values[: _VALUES_SHOWN - 2], "...", values[-1]]
    said = " -> ".join(values) + (", became dynamic" if row.became_dynamic else "")
    where = f" ({wording.place(row.own_frame, view.base, function=False)})" if row.own_frame else ""
    return (
        clean(wording.frame_name(row.frame_name), limit=80) + where,
        clean(row.source, limit=120),
        said or clean(row.why or row.kind),
        _entries(row),
    )


def _entries(row: Transition) -> str:
    limit = "" if row.limit is None else f" of {row.limit}"
    return f"{row.entries}{limit}" + (", limit hit" if row.limit_hit else "")


def print_fallbacks(report: Report, page: Page, view: View, title: str) -> None:
    """What ran eager without being asked to: which frame, where, why, how often."""
    rows = report.fallbacks
    shown = _section(page, f"{title}: {wording.plural(len(rows), 'fallback')}", rows, view)
    for item in shown:
        kind = wording.FALLBACK_KINDS.get(item.kind, clean(item.kind, limit=40))
        where = wording.place(item.own_frame, view.base) if item.own_frame else wording.frame_label(report, item.frame)
        page.line(f"{kind}: {where} ({wording.plural(item.events, 'event')})", prefix=f"  {item.id:<4} ")
        page.line(clean(item.reason, limit=400 if view.verbose else 160), prefix="       ", style="dim")
    _folded(page, rows, view, "fallback")


def print_graphs(report: Report, page: Page, view: View, title: str) -> None:
    """The captured graphs: how many of each kind, and the biggest with their frame, size and commonest ops."""
    graphs = report.run.graphs
    kinds = Counter(graph.kind for graph in graphs)
    said = ", ".join(f"{count} {clean(kind, limit=40)}" for kind, count in sorted(kinds.items()))
    ranked = sorted(graphs, key=lambda graph: (graph.kind != "dynamo", -(graph.nodes or 0), _position(graph)))
    if not any(graph.kind == "dynamo" for graph in graphs):
        wanted: Sequence[Graph] = ranked
    else:
        wanted = ranked if view.verbose else [graph for graph in ranked if graph.kind == "dynamo"]
    shown = _section(page, f"{title}: {said}", wanted, view)
    if shown:
        columns = (Column("id", fold=False), Column("frame"), Column("nodes", numeric=True), Column("most common ops"))
        page.table(columns, [_graph_row(graph, report) for graph in shown])
    _folded(page, wanted, view, "graph")


def _position(graph: Graph) -> tuple[int, str]:
    return (int(graph.id[1:]) if graph.id[1:].isdecimal() else 0, graph.id)


def _graph_row(graph: Graph, report: Report) -> tuple[str, str, str, str]:
    kind = "" if graph.kind == "dynamo" else f", {clean(graph.kind, limit=40)}"
    nodes = "?" if graph.nodes is None else f"{graph.nodes:,}"
    ops = wording.top_ops(graph.ops, 3) or clean(graph.why_not or "")
    return graph.id, wording.frame_label(report, graph.frame) + kind, nodes, ops


def print_compile_time(report: Report, page: Page, view: View, title: str) -> None:
    """Compile time by phase and by frame, what restarts threw away, and the caches."""
    time = report.compile_time
    if time is None or time.total_s is None:
        return
    page.blank()
    page.line(f"{title}: {wording.seconds(time.total_s)}", style="bold")
    phases = sorted(time.phases.items(), key=lambda item: (-item[1], item[0]))
    shown = phases if view.verbose else phases[:_PHASES_SHOWN]
    if shown:
        page.line("by phase: " + ", ".join(f"{clean(name, limit=60)} {wording.seconds(value)}" for name, value in shown), prefix="  ")
    if time.thrown_away_s:
        page.line(f"thrown away by restarts: {wording.seconds(time.thrown_away_s)}", prefix="  ")
    for cache, results in sorted(time.caches.items()):
        said = ", ".join(f"{count} {clean(result, limit=40)}" for result, count in sorted(results.items()))
        page.line(f"cache {clean(cache, limit=60)}: {said}", prefix="  ")
    rows = sorted(time.frames, key=lambda row: -row.total_s)
    if rows:
        columns = (Column("frame"), Column("total", numeric=True), Column("longest phases"), Column("restarts", numeric=True))
        page.table(columns, [_time_row(row, report) for row in rows[: view.limit]])
    _folded(page, rows, view, "frame")


def _time_row(row: FrameTime, report: Report) -> tuple[str, str, str, str]:
    phases = sorted(row.phases.items(), key=lambda item: (-item[1], item[0]))[:3]
    said = ", ".join(f"{clean(name, limit=40)} {wording.seconds(value)}" for name, value in phases)
    lost = wording.seconds(row.thrown_away_s) if row.thrown_away_s else "-"
    return wording.frame_label(report, row.frame), wording.seconds(row.total_s), said, lost


def print_ranks(report: Report, page: Page, view: View, title: str) -> None:
    """What differs between ranks, the value on each, and the odd one."""
    rows = report.ranks
    shown = _section(page, f"{title}: {wording.plural(len(rows), 'difference')}", rows, view)
    for row in shown:
        page.line(_rank_line(row, view), prefix="  - ")
    _folded(page, rows, view, "difference")


def _rank_line(row: RankDifference, view: View) -> str:
    values = ", ".join(f"{clean(rank, limit=60)}: {clean(value, limit=80)}" for rank, value in row.values.items())
    odd = f"; differs: rank {rank_numbers(row.odd_ranks)}" if row.odd_ranks else ""
    where = f" at {wording.place(row.location, view.base)}" if row.location else ""
    return f"{clean(row.what, limit=160)}{where}: {values}{odd}"


def print_parity(report: Report, page: Page, view: View, title: str) -> None:
    """What `--parity` compared, and what `dynadiag parity` tried; nothing without them."""
    if report.parity is not None:
        page.blank()
        page.line(f"{title}: {parity_words.verdict(report.parity)}", style="bold")
        for line in parity_words.details(report.parity):
            page.line(line, prefix="  ", style="dim")
    if report.replayed is not None:
        page.blank()
        page.line(f"Could happen: {parity_words.could_happen(report.replayed)}", style="bold")
