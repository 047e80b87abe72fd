"""The frame map of a run: which code was compiled into which graphs, where it broke and why, where it went on, what ran eager.

Compilations of one code object with one outcome share a box, so that a frame that was recompiled eight times is one box, not eight.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dynadiag.model.graph import Graph
from dynadiag.model.report import GraphBreak, Report
from dynadiag.model.run import Frame
from dynadiag.render import wording
from dynadiag.render.picture import Row
from dynadiag.render.sanitise import clean, clean_code
from dynadiag.render.sketch import Arrow, Box, Look, Sketch

FRAMES_AT_MOST = 100
BREAKS_AT_MOST = 100
_LABEL = 44
_LOOKS: Mapping[str, Look] = {"compiled": "compiled", "broke": "broke", "skipped": "eager", "failed": "failed"}
_OUTCOMES = {"compiled": "compiled", "broke": "broke", "skipped": "ran eagerly", "failed": "failed, ran eagerly"}
_IDS_SHOWN = 3


@dataclass(slots=True)
class _Group:
    """Compilations of one code object in one process with one outcome."""

    frames: list[Frame] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)

    @property
    def first(self) -> Frame:
        return self.frames[0]


def frame_map(report: Report) -> Sketch:
    """The picture of a whole run, at most about `FRAMES_AT_MOST` frame boxes; those with breaks, fallbacks and failures go first."""
    base = wording.base_folder(report.run)
    groups = _groups(report)
    shown = _chosen(groups, report)
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    numbers: dict[str, int] = {}
    for group in shown:
        numbers |= dict.fromkeys((frame.id for frame in group.frames), len(boxes))
        boxes.append(_frame_box(group, report, base))
    for group in shown:
        if group.graphs:
            arrows.append(Arrow(tail=numbers[group.first.id], head=len(boxes)))
            boxes.append(_graph_box(group.graphs))
    for site in _telling_breaks(report):
        _add_break(site, numbers, boxes, arrows, base)
    return Sketch(title=_title(report, groups, shown), boxes=tuple(boxes), arrows=tuple(arrows))


def _telling_breaks(report: Report) -> list[GraphBreak]:
    """The breaks with the most events, in recorded order."""
    order = sorted(range(len(report.graph_breaks)), key=lambda index: (-report.graph_breaks[index].events, index))
    return [report.graph_breaks[index] for index in sorted(order[:BREAKS_AT_MOST])]


def _groups(report: Report) -> list[_Group]:
    graphs: dict[str, list[Graph]] = defaultdict(list)
    for graph in report.run.graphs:
        if graph.kind == "dynamo":
            graphs[graph.frame].append(graph)
    groups: dict[object, _Group] = defaultdict(_Group)
    for frame in report.run.frames:
        named = frame.name is not None or frame.file is not None
        group = groups[(frame.key.process, frame.name, frame.file, frame.line, frame.outcome) if named else frame.id]
        group.frames.append(frame)
        group.graphs.extend(graphs.get(frame.id, ()))
    return list(groups.values())


def _chosen(groups: Sequence[_Group], report: Report) -> list[_Group]:
    """The groups to draw, in recorded order: those with something to say before those without."""
    telling = {name for site in report.graph_breaks for name in (*site.frames, *site.skipped_frames, *site.resume_frames)}
    telling |= {item.frame for item in report.fallbacks if item.frame}

    def dull(index: int) -> tuple[bool, int]:
        group = groups[index]
        return (group.first.outcome == "compiled" and telling.isdisjoint(frame.id for frame in group.frames), index)

    return [groups[index] for index in sorted(sorted(range(len(groups)), key=dull)[:FRAMES_AT_MOST])]


def _title(report: Report, groups: Sequence[_Group], shown: Sequence[_Group]) -> tuple[str, ...]:
    summary = report.summary
    counts = (
        f"{wording.plural(summary.frames, 'frame')}, {wording.plural(summary.graphs, 'graph')}, breaks: {wording.breaks_count(summary)}"
    )
    lines = [clean(f"Frame map of {wording.command(report)}", limit=100), counts]
    if len(shown) < len(groups):
        lines.append(f"not drawn: {wording.plural(len(groups) - len(shown), 'code object')} compiled without a graph break")
    if len(report.graph_breaks) > BREAKS_AT_MOST:
        lines.append(f"not drawn: {wording.plural(len(report.graph_breaks) - BREAKS_AT_MOST, 'break site')} with the fewest events")
    if wording.nothing_compiled(report):
        lines.append(wording.nothing_words(report).lower())
    return tuple(lines)


def _frame_box(group: _Group, report: Report, base: Path | None) -> Box:
    frame = group.first
    place = (
        f"{wording.path(frame.file, base)}:{frame.line}" if frame.file and frame.line is not None else wording.path(frame.file or "?", base)
    )
    times = "" if len(group.frames) == 1 else f", {len(group.frames)} compilations"
    lines = (
        _end(wording.frame_name(frame.name), _LABEL),
        _end(place, _LABEL),
        f"{_ids(item.id for item in group.frames)}: {_OUTCOMES.get(frame.outcome, 'unknown')}{times}" + _process(frame, report),
    )
    tip = [place, "compile ids " + _ids((item.key.text for item in group.frames), 12), *([clean(frame.error)] if frame.error else [])]
    return Box(lines=lines, look=_LOOKS.get(frame.outcome, "plain"), tip="\n".join(tip))


def _end(text: str, room: int) -> str:
    """The text in at most `room` characters with its end kept: that part tells resume functions and files apart."""
    return text if len(text) <= room else "..." + text[3 - room :]


def _process(frame: Frame, report: Report) -> str:
    processes = report.run.processes
    if len(processes) < 2 or not 0 <= frame.key.process < len(processes):
        return ""
    process = processes[frame.key.process]
    return (
        f", rank {process.rank}" if process.rank is not None else f", process {process.pid if process.pid is not None else process.index}"
    )


def _ids(names: Iterable[str], limit: int = _IDS_SHOWN) -> str:
    known = list(names)
    return ", ".join(known[:limit]) + (f" and {len(known) - limit} more" if len(known) > limit else "")


def _graph_box(graphs: Sequence[Graph]) -> Box:
    sizes = [graph.nodes for graph in graphs if graph.nodes is not None]
    span = "size not known" if not sizes else f"{min(sizes)} nodes" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)} nodes"
    tip = "\n".join(f"{graph.id}: {wording.top_ops(graph.ops, 6)}" for graph in graphs[:8])
    return Box(lines=(f"{'graph' if len(graphs) == 1 else 'graphs'} {_ids(graph.id for graph in graphs)}", span), look="graph", tip=tip)


def _add_break(site: GraphBreak, numbers: Mapping[str, int], boxes: list[Box], arrows: list[Arrow], base: Path | None) -> None:
    """A break is a box on the arrow from the frames that broke to the resume functions in which they went on."""
    tails = sorted({numbers[name] for name in site.frames if name in numbers})
    heads = sorted({numbers[name] for name in site.resume_frames if name in numbers})
    if not tails:
        return
    own = len(boxes)
    boxes.append(break_box(site, base))
    arrows.extend(Arrow(tail=tail, head=own, strong=True) for tail in tails)
    arrows.extend(Arrow(tail=own, head=head, strong=True) for head in heads)


def break_box(site: GraphBreak, base: Path | None) -> Box:
    """The box of a graph break: id, torch's id, reason, own line and how the code went on."""
    where = site.own_frame or site.torch_frame
    place = wording.place(where, base, function=False)
    lines = (
        f"{site.id} {clean(site.gb_id or '', limit=12)}".strip() + f", {wording.plural(site.events, 'event')}",
        *textwrap.wrap(clean(site.reason, limit=2 * _LABEL), _LABEL, break_long_words=True),
        _end(place, _LABEL),
        clean_code(where.code, limit=_LABEL) if where and where.code else "",
        _ending(site),
    )
    tip = "\n".join(line for line in (clean(site.reason), place, clean(site.explanation or "")) if line)
    return Box(lines=tuple(line for line in lines if line), look="break", tip=tip)


def break_row(site: GraphBreak, base: Path | None) -> Row:
    """The same as a row behind the outputs of the graph that it ended."""
    where = site.own_frame or site.torch_frame
    code = clean_code(where.code, limit=_LABEL) if where and where.code else "graph break"
    reason = f"{site.id} {clean(site.gb_id or '', limit=12)}".strip() + f": {clean(site.reason, limit=2 * _LABEL)}"
    place = _end(wording.place(where, base, function=False), _LABEL)
    return Row(kind="break", name=code, note=place, below=(reason,), alarm=True, tip=break_box(site, base).tip)


def _ending(site: GraphBreak) -> str:
    """How the code went on after the break, where no arrow shows it."""
    if site.fullgraph:
        return "fullgraph=True: raised an error"
    if site.skipped_frames:
        return "the whole frame runs eagerly"
    return "" if site.resume_frames else "no resume function was recorded"
