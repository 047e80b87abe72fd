"""Writes the pictures of a run into `graphs/`: the frame map, and one picture for each captured graph up to a limit.

File names are ids of ours plus a slug, never a name from a log. A run with 500 graphs draws those next to graph breaks and says how many
it left out.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dynadiag.errors import DynadiagError
from dynadiag.files import remove_inside, write_inside
from dynadiag.model.graph import Graph, Node
from dynadiag.model.report import GraphBreak, Mutation, Report
from dynadiag.render import wording
from dynadiag.render.backends import Drawing, draw
from dynadiag.render.frame_map import break_box, frame_map
from dynadiag.render.graph_sketch import graph_sketch
from dynadiag.render.mutation_sketch import drawn_graphs, mutation_sketch
from dynadiag.render.sanitise import clean, slug
from dynadiag.render.sketch import Sketch
from dynadiag.trace import graph_details, graph_nodes, read_payload

FOLDER = "graphs"
FRAME_MAP = "frames"
GRAPHS_AT_MOST = 40
BUDGET_S = 120.0
"""Wall time after which no further picture is begun."""

PAYLOAD_LIMIT_BYTES = 32 << 20
_BATCH = 14
_OURS = re.compile(r"(?:frames|g\d+-[a-z0-9-]+)\.(?:svg|txt)\Z")
_KINDS = ("dynamo", "aot_inference", "aot_forward", "aot_backward", "aot_joint", "post_grad")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Plan:
    """One picture to be made: its key in `Report.pictures`, its file name without ending, and how to sketch it."""

    key: str
    stem: str
    sketch: Callable[[], Sketch]


def write(
    report: Report, directory: Path, *, renderer: str = "auto", progress: Progress | None = None, limit: int = GRAPHS_AT_MOST
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The pictures written, by "frames" or graph id, as paths relative to `directory`; and notes on what was not drawn or drawn otherwise.

    Args:
        report: the diagnosis; its run's log is read again for the texts of the graphs.
        directory: the run directory; `graphs/` is made in it, and older pictures of ours in there are removed.
        renderer: "auto", or one of `backends.RENDERERS`.
        progress: called with pictures done and pictures planned.
        limit: graphs drawn at most.

    Raises `UsageError` for an unknown renderer, `OSError` when the folder cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    remove_inside(directory, FOLDER, _OURS.match)
    ranked = _ranked(report)
    plans = [_Plan(FRAME_MAP, FRAME_MAP, lambda: frame_map(report)), *_mutation_plans(report, limit)]
    plans += [_plan(graph, report) for graph in ranked[:limit]]
    notes: list[str] = []
    written: dict[str, str] = {}
    for plan, drawing in _drawn(plans, renderer, progress, notes):
        name = plan.stem + drawing.suffix
        written[plan.key] = f"{FOLDER}/{name}"
        write_inside(directory, written[plan.key], drawing.text)
    if len(ranked) > limit:
        notes.append(f"{limit} of {len(ranked):,} graphs drawn, those next to graph breaks first")
    return written, tuple(notes)


def _ranked(report: Report) -> list[Graph]:
    """Graphs worth a picture first: Dynamo's next to a break, Dynamo's others, then AOT graphs; in recorded order within each."""
    near = {name for site in report.graph_breaks for name in (*site.graphs_before, *site.graphs_after)}

    def order(index: int) -> tuple[int, bool, int]:
        graph = report.run.graphs[index]
        return (_KINDS.index(graph.kind) if graph.kind in _KINDS else len(_KINDS), graph.id not in near, index)

    positions = sorted(range(len(report.run.graphs)), key=order)
    return [report.run.graphs[index] for index in positions if report.run.graphs[index].text is not None]


def _plan(graph: Graph, report: Report) -> _Plan:
    frame = report.run.frame(graph.frame)
    stem = f"{slug(graph.id)}-{slug(frame.name or 'graph') if frame else 'graph'}"
    return _Plan(graph.id, stem, lambda: _sketch(graph, report))


def _mutation_plans(report: Report, limit: int) -> Iterator[_Plan]:
    """A picture of the writes of each graph whose mutations cost something: `g0-mutations`."""
    graphs = {graph.id: graph for graph in report.run.graphs if graph.text is not None}
    for name, mutations in list(drawn_graphs(report).items())[:limit]:
        if name in graphs:
            yield _Plan(f"{name}-mutations", f"{slug(name)}-mutations", partial(_mutation_sketch, graphs[name], mutations, report))


def _mutation_sketch(graph: Graph, mutations: Sequence[Mutation], report: Report) -> Sketch:
    title = [f"{graph.id}: mutations in the graph of {wording.frame_label(report, graph.frame)}"]
    return mutation_sketch(_nodes(graph), mutations, title=title)


def _sketch(graph: Graph, report: Report) -> Sketch:
    base = Path(report.run.info.cwd) if report.run.info.cwd else None
    frame = report.run.frame(graph.frame)
    name = wording.frame_label(report, frame.id) if frame else "an unknown frame"
    size = "" if graph.nodes is None else f", {wording.plural(graph.nodes, 'node')}"
    after = next((site for site in report.graph_breaks if graph.id in site.graphs_after), None)
    before = next((site for site in report.graph_breaks if graph.id in site.graphs_before), None)
    title = [f"{graph.id}: {graph.kind} graph of {name}{size}"]
    title += [_goes_on(after)] if after else []
    return graph_sketch(_nodes(graph), title=title, base=base, ending=break_box(before, base) if before else None)


def _goes_on(site: GraphBreak) -> str:
    return f"continues after graph break {site.id}: {clean(site.reason, limit=70)}"


def _nodes(graph: Graph) -> tuple[Node, ...]:
    """The graph's nodes from its text, with the modules that the recorder saw; raises `UnreadableInputError`."""
    if graph.text is None or graph.text.length > PAYLOAD_LIMIT_BYTES:
        raise DynadiagError(f"its text is longer than {PAYLOAD_LIMIT_BYTES >> 20} MiB")
    nodes = graph_nodes(read_payload(graph.text))
    if not nodes:
        raise DynadiagError("its text contains no graph")
    modules = _modules(graph)
    return tuple(replace(node, modules=modules[node.name]) if node.name in modules else node for node in nodes)


def _modules(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Module stacks by node name from a `dynadiag_graph` record, whose entries are [name, index of "a > b > c" in strings, ...]."""
    if graph.details is None or graph.details.length > PAYLOAD_LIMIT_BYTES:
        return {}
    try:
        details = graph_details(graph.details)
    except DynadiagError:
        return {}
    strings, entries = details.get("strings"), details.get("nodes")
    texts = strings if isinstance(strings, list) else []
    known = (entry for entry in entries if isinstance(entry, list) and len(entry) > 1) if isinstance(entries, list) else ()
    pairs = ((entry[0], entry[1]) for entry in known)
    return {str(name): tuple(str(texts[index]).split(" > ")) for name, index in pairs if isinstance(index, int) and 0 <= index < len(texts)}


def _drawn(plans: Sequence[_Plan], renderer: str, progress: Progress | None, notes: list[str]) -> Iterator[tuple[_Plan, Drawing]]:
    """Plans with their drawings, batch by batch; adds what went wrong to `notes`."""
    begun = time.monotonic()
    falls: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for start in range(0, len(plans), _BATCH):
        if time.monotonic() - begun > BUDGET_S:
            notes.append(f"{wording.plural(len(plans) - start, 'picture')} not drawn: the limit of {BUDGET_S:g} s was reached")
            break
        batch = [(plan, sketch) for plan in plans[start : start + _BATCH] if (sketch := _sketched(plan, notes)) is not None]
        drawings = draw([sketch for _, sketch in batch], renderer=renderer)
        falls.update((drawing.backend, drawing.falls) for drawing in drawings if drawing.falls)
        yield from ((plan, drawing) for (plan, _), drawing in zip(batch, drawings, strict=True))
        if progress is not None:
            progress(min(start + _BATCH, len(plans)), len(plans))
    for (backend, reasons), count in falls.items():
        notes.append(f"{wording.plural(count, 'picture')} drawn with the renderer {backend}, because {'; '.join(reasons)}")


def _sketched(plan: _Plan, notes: list[str]) -> Sketch | None:
    try:
        return plan.sketch()
    except DynadiagError as error:
        notes.append(f"{plan.key} was not drawn: {error.message}")
        return None
