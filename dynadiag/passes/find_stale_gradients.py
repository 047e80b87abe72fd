"""Gradients of compiled code that are wrong: the forward graph writes an input that its backward needs as it was.

The partitioner of AOTAutograd keeps an input for the backward rather than what is cheap to compute from it again (`clone`, `add`), also
where the forward graph ends with `copy_` into that input (`torch/_functorch/partitioners.py`, seen on 2.11 and 2.15, with aot_eager and
Inductor). Of 840 recorded programs two had such a graph, and the gradients of both were wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dynadiag.advice.stale_gradients import NEW_TENSOR
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.graph_writes import is_write
from dynadiag.facts.wording import plural, rank_text, short_place, unique
from dynadiag.model import codes
from dynadiag.model.graph import Graph, Node
from dynadiag.model.location import Location
from dynadiag.model.report import Cost, Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority
from dynadiag.trace import graph_nodes, read_payload

_WRITE = "aten.copy_"
_KEPT = re.compile(r"^\s*(primals_\d+),?  # SavedForBackwards", re.MULTILINE)
# What asks for the size, not for the values.
_SHAPE_ONLY = re.compile(r"_like\b|\.new_|\bsym_|\bexpand_as\b")
_MOST_GRAPHS = 2_000


def find_stale_gradients(run: Run) -> PassResult:
    """One finding for each line that writes such an input."""
    found: dict[Location | None, list[tuple[Graph, Location | None]]] = {}
    backward = {graph.frame: graph for graph in run.graphs if graph.kind == "aot_backward"}
    forward = [one for one in run.graphs if one.kind == "aot_forward" and one.frame in backward and any(_WRITE in op for op in one.ops)]
    for graph in forward[:_MOST_GRAPHS]:
        for written, read in _overwritten(graph, backward[graph.frame], _writing_lines(run, graph.frame)):
            found.setdefault(written, []).append((graph, read))
    marks = fingerprints([Subject(codes.STALE_GRADIENT, place) for place in found], run)
    return PassResult(
        findings=tuple(_finding(place, graphs, mark, run) for (place, graphs), mark in zip(found.items(), marks, strict=True))
    )


def _writing_lines(run: Run, frame: str) -> Sequence[Location]:
    """The lines that write in place, by the graphs of Dynamo: Inductor's have only the line that made the new value."""
    graphs = (graph for graph in run.graphs if graph.kind == "dynamo" and graph.frame == frame)
    found = [one.location for graph in graphs for one in graph_nodes(_text(graph)) if is_write(one) and one.location is not None]
    return tuple({(one.file, one.line): one for one in found}.values())


def _overwritten(forward: Graph, backward: Graph, lines: Sequence[Location]) -> Iterator[tuple[Location | None, Location | None]]:
    """The line that writes each such input, as far as it is known, and the one that reads it first."""
    text = _text(forward)
    kept = set(_KEPT.findall(text))
    nodes = graph_nodes(text) if kept else ()
    writes = [one for one in nodes if _WRITE in one.target and len(one.args) > 1 and one.args[0] in kept]
    later = graph_nodes(_text(backward)) if writes else ()
    for write in writes:
        name, value = write.args[:2]
        if any(_reads(one, name) for one in later):
            made = next((one for one in nodes if one.name == value), write)
            first = next((one for one in nodes if one is not write and one is not made and _reads(one, name)), None)
            places = [(one.file, one.line) for one in (write.location, made.location) if one is not None]
            known = [one for one in lines if (one.file, one.line) in places] or lines
            yield known[0] if len(known) == 1 else None, None if first is None else first.location


def _reads(node: Node, name: str) -> bool:
    return name in node.args and node.op != "output" and not _SHAPE_ONLY.search(node.target)


def _text(graph: Graph) -> str:
    try:
        return "" if graph.text is None else read_payload(graph.text)
    except UnreadableInputError:
        return ""


def _finding(place: Location | None, found: Sequence[tuple[Graph, Location | None]], mark: str, run: Run) -> Finding:
    graphs = unique(graph.id for graph, _ in found)
    read = next((one for _, one in found if one is not None and place is not None and one.line != place.line), None)
    before = "" if read is None else f", which {f'`{read.code}` ({short_place(read)})' if read.code else short_place(read)} had read"
    on = rank_text(run, {frame.key.process for graph, _ in found if (frame := run.frame(graph.frame)) is not None})
    line = "The compiled code" if place is None else f"`{place.code}`" if place.code else short_place(place)
    return Finding(
        id="",
        fingerprint=mark,
        code=codes.STALE_GRADIENT,
        severity=codes.severity_of(codes.STALE_GRADIENT),
        title="Wrong gradients: the backward reads a tensor that the forward has overwritten",
        where=place,
        why=(
            f"{line} writes into a tensor{before}. The compiled forward keeps that tensor itself for the backward, not its old value, so "
            "the backward computes with the new one; eager computes with the old one. This is a fault of torch"
            f"{f'; on {on}' if on else ''}."
        ),
        fix=(NEW_TENSOR,),
        cost=Cost(value=float(len(graphs)), unit=plural(len(graphs), "graph").split()[1], basis="counted"),
        evidence=graphs[:10],
        rank=(float(Priority.WRONG_RESULT), -float(len(graphs))),
    )
