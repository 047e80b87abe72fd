"""Writes the pictures of a run into `graphs/`: source ladder, the graphs next to a finding, and writes that cost something.

File names are ids of ours plus slugs, never a name from a log. All other graphs are drawn on demand (`dynadiag graph RUN g7 --svg`), and
so is the frame map (`dynadiag graph RUN frames`), which stands in for a ladder that cannot be drawn.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dynadiag.errors import DynadiagError
from dynadiag.files import remove_inside, write_inside
from dynadiag.model.graph import Graph
from dynadiag.model.report import GraphBreak, Mutation, Report
from dynadiag.model.run import Frame, Run
from dynadiag.render import wording
from dynadiag.render.drawing import checked_renderer, drawn
from dynadiag.render.frame_map import break_row, frame_map
from dynadiag.render.graph_picture import graph_picture
from dynadiag.render.ladder_builder import ladder
from dynadiag.render.ladder_svg import ladder_svg
from dynadiag.render.mutation_sketch import drawn_graphs, mutation_sketch
from dynadiag.render.picture import Picture
from dynadiag.render.rank_matrix import rank_matrix
from dynadiag.render.recorded_graph import recorded_graph
from dynadiag.render.sanitise import clean, slug
from dynadiag.render.sketch import picture_of

FOLDER = "graphs"
SOURCE = "source"
FRAME_MAP = "frames"
RANKS = "ranks"
GRAPHS_AT_MOST = 40
BUDGET_S = 120.0
"""Wall time after which no further picture is begun."""

_OURS = re.compile(r"(?:source|frames|ranks|g\d+-[a-z0-9-]+)\.(?:svg|gv|txt)\Z")
_KINDS = {"dynamo": "", "aot_inference": "inference", "aot_forward": "forward", "aot_backward": "backward", "aot_joint": "joint",
          "post_grad": "post-grad"}  # fmt: skip
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Plan:
    """One picture to be made: its key in `Report.pictures`, its file name without ending, and how to make it."""

    key: str
    stem: str
    picture: Callable[[], Picture]


def write(
    report: Report, directory: Path, *, renderer: str = "auto", progress: Progress | None = None, limit: int = GRAPHS_AT_MOST
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The pictures written, by "source", "frames", "ranks" or graph id, as paths relative to `directory`; and notes on what was not drawn.

    Beside each picture of a graph is its DOT text (`.gv`).

    Args:
        report: the diagnosis; its run's log is read again for the texts of the graphs.
        directory: the run directory; `graphs/` is made in it, and older pictures of ours in there are removed.
        renderer: "auto", or one of `drawing.RENDERERS`.
        progress: called with pictures done and pictures planned.
        limit: graphs drawn at most.

    Raises `UsageError` for an unknown renderer, `OSError` when the folder cannot be written.
    """
    checked_renderer(renderer)
    directory.mkdir(parents=True, exist_ok=True)
    remove_inside(directory, FOLDER, _OURS.match)
    graphs = [graph for graph in report.run.graphs if graph.text is not None]
    ranked = _ranked(report, graphs)
    written = _ladder(report, directory) if renderer != "text" else {}
    with_ladder = bool(written)
    if renderer != "text" and report.run.ranks is not None and (matrix := rank_matrix(report.run.ranks)) is not None:
        written[RANKS] = f"{FOLDER}/{RANKS}.svg"
        write_inside(directory, written[RANKS], matrix)
    plans = [] if with_ladder else [_Plan(FRAME_MAP, FRAME_MAP, partial(picture_of_frames, report))]
    plans += _mutation_plans(report, limit)
    plans += [
        _Plan(graph.id, file_stem(graph, report.run), partial(picture_of_graph, graph, report.run, report)) for graph in ranked[:limit]
    ]
    notes: list[str] = []
    laid_out: Counter[str] = Counter()
    begun = time.monotonic()
    for number, plan in enumerate(plans):
        if time.monotonic() - begun > BUDGET_S:
            notes.append(f"{wording.plural(len(plans) - number, 'picture')} not drawn: the limit of {BUDGET_S:g} s was reached")
            break
        try:
            drawing = drawn(plan.picture(), renderer)
        except DynadiagError as error:
            notes.append(f"{plan.key} was not drawn: {error.message}")
        else:
            written[plan.key] = f"{FOLDER}/{plan.stem}{drawing.suffix}"
            write_inside(directory, written[plan.key], drawing.text)
            if drawing.dot is not None:
                write_inside(directory, f"{FOLDER}/{plan.stem}.gv", drawing.dot)
            laid_out.update([drawing.note] if drawing.note else [])
        if progress is not None:
            progress(number + 1, len(plans))
    notes += [f"{wording.plural(count, 'picture')} {note}" for note, count in laid_out.items()]
    if len(ranked) > limit:
        notes.append(f"{limit} of {len(ranked):,} graphs next to a finding drawn")
    return written, tuple(notes)


def picture_of_frames(report: Report) -> Picture:
    """The frame map: what was compiled, where it broke and why, what ran in eager mode."""
    return picture_of(frame_map(report))


def _ladder(report: Report, directory: Path) -> dict[str, str]:
    text = ladder_svg(ladder(report), wording.command(report), base=wording.base_folder(report.run))
    if text is None:
        return {}
    write_inside(directory, f"{FOLDER}/{SOURCE}.svg", text)
    return {SOURCE: f"{FOLDER}/{SOURCE}.svg"}


def _ranked(report: Report, graphs: Sequence[Graph]) -> list[Graph]:
    """The graphs next to a finding: Dynamo's first. A finding names a graph, a break beside it, or what was found in it."""
    named = {name for finding in report.findings for name in finding.evidence}
    near = {name for site in report.graph_breaks if site.id in named for name in (*site.graphs_before, *site.graphs_after)}
    near |= {mutation.graph for mutation in report.mutations if mutation.id in named and mutation.graph is not None}
    frames = {recompile.frame for recompile in report.recompiles if recompile.id in named}
    chosen = [graph for graph in graphs if graph.id in named or graph.id in near or (graph.kind == "dynamo" and graph.frame in frames)]
    return sorted(chosen, key=lambda graph: graph.kind != "dynamo")


def file_stem(graph: Graph, run: Run) -> str:
    """What is in a file of a graph, as its name: `g0-step-line-15-forward`."""
    frame = run.frame(graph.frame)
    function, line = _function(frame) if frame is not None else ("graph", None)
    parts = [slug(graph.id), slug(function, default="graph"), *([f"line-{line}"] if line is not None else []), _KINDS.get(graph.kind, "")]
    return "-".join(part for part in parts if part)


def _function(frame: Frame) -> tuple[str, int | None]:
    """The function of a frame and the line where it begins or goes on."""
    resumed = _RESUMED.search(frame.name or "")
    return (resumed[1], int(resumed[2][:9])) if resumed else (frame.name or "graph", frame.line)


def _mutation_plans(report: Report, limit: int) -> Iterator[_Plan]:
    """A picture of the writes of each graph whose mutations cost something: `g0-mutations`."""
    graphs = {graph.id: graph for graph in report.run.graphs if graph.text is not None}
    for name, mutations in list(drawn_graphs(report).items())[:limit]:
        if name in graphs:
            yield _Plan(f"{name}-mutations", f"{slug(name)}-mutations", partial(_mutation_picture, graphs[name], mutations, report))


def _mutation_picture(graph: Graph, mutations: Sequence[Mutation], report: Report) -> Picture:
    title = [f"{graph.id}: mutations in the graph of {wording.frame_label(report, graph.frame)}"]
    return picture_of(mutation_sketch(recorded_graph(graph).nodes, mutations, title=title))


def picture_of_graph(graph: Graph, run: Run, report: Report | None = None) -> Picture:
    """The picture of one graph, with the breaks beside it where a report tells them; raises `DynadiagError` when it cannot be read."""
    base = wording.base_folder(run)
    frame = run.frame(graph.frame)
    breaks = report.graph_breaks if report is not None else ()
    after = next((site for site in breaks if graph.id in site.graphs_after), None)
    before = next((site for site in breaks if graph.id in site.graphs_before), None)
    kind = _KINDS.get(graph.kind, graph.kind) or "captured by Dynamo"
    summary = [f"{kind} graph" if graph.kind != "dynamo" else kind, *([_goes_on(after)] if after else [])]
    if graph.kind == "aot_backward":
        summary.append("functions and source lines are those of the forward")
    return graph_picture(
        recorded_graph(graph),
        title=f"{graph.id}  {wording.frame_name(frame.name) if frame else 'an unknown frame'}",
        summary=summary,
        base=base,
        ending=break_row(before, base) if before else None,
        operators=graph.operators,
    )


def _goes_on(site: GraphBreak) -> str:
    return f"continues after graph break {site.id}: {clean(site.reason, limit=70)}"
