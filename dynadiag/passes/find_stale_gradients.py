"""Gradients of compiled code that are wrong: the forward graph writes an input that its backward needs as it was.

The partitioner of AOTAutograd keeps an input for the backward rather than what is cheap to compute from it again (`clone`, `add`), also
where the forward graph ends with `copy_` into that input (`torch/_functorch/partitioners.py`, seen on 2.11 and 2.15, with aot_eager and
Inductor). Of 840 recorded programs two had such a graph, and the gradients of both were wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dynadiag.advice.uncaught import NEW_TENSOR
from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.graph_writes import is_write
from dynadiag.facts.wording import frame_ranks, plural, short_place, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Basis, Cause, Effect, Happened, OnProcesses
from dynadiag.model.graph import Graph, Node
from dynadiag.model.location import Location
from dynadiag.model.report import Cost, Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority
from dynadiag.passes.mutation_graphs import read_nodes, text_of
from dynadiag.trace import graph_nodes

_WRITE = "aten.copy_"
_KEPT = re.compile(r"^\s*(primals_\d+),?  # SavedForBackwards", re.MULTILINE)
# What asks for the size, not for the values.
_SHAPE_ONLY = re.compile(r"_like\b|\.new_|\bsym_|\bexpand_as\b")
_MOST_GRAPHS = 2_000


def find_stale_gradients(run: Run) -> PassResult:
    """One finding for each line that writes such an input."""
    found: dict[Location | None, list[tuple[Graph, Location | None]]] = {}
    backward = {graph.frame: graph for graph in run.graphs if graph.kind == "aot_backward"}
    forward = [
        item for item in run.graphs if item.kind == "aot_forward" and item.frame in backward and any(_WRITE in op for op in item.ops)
    ]
    traced: dict[str, list[Graph]] = {}
    for graph in run.graphs if forward else ():
        if graph.kind == "dynamo":
            traced.setdefault(graph.frame, []).append(graph)
    for graph in forward[:_MOST_GRAPHS]:
        for written, read in _overwritten(graph, backward[graph.frame], traced.get(graph.frame, ())):
            found.setdefault(written, []).append((graph, read))
    marks = fingerprints([Subject(codes.STALE_GRADIENT, place) for place in found], run)
    return PassResult(
        findings=tuple(_finding(place, graphs, mark, run) for (place, graphs), mark in zip(found.items(), marks, strict=True))
    )


def _writing_lines(traced: Sequence[Graph]) -> Sequence[Location]:
    """The lines that write in place, by the graphs of Dynamo: Inductor's have only the line that made the new value."""
    found = [
        read_node.location for graph in traced for read_node in read_nodes(graph) if is_write(read_node) and read_node.location is not None
    ]
    return tuple({(location.file, location.line): location for location in found}.values())


def _overwritten(forward: Graph, backward: Graph, traced: Sequence[Graph]) -> Iterator[tuple[Location | None, Location | None]]:
    """The line that writes each such input, as far as it is known, and the one that reads it first."""
    text = text_of(forward)
    kept = set(_KEPT.findall(text))
    nodes = graph_nodes(text) if kept else ()
    writes = [node for node in nodes if _WRITE in node.target and len(node.args) > 1 and node.args[0] in kept]
    later = read_nodes(backward) if writes else ()
    stale = [write for write in writes if any(_reads(child, write.args[0]) for child in later)]
    lines = _writing_lines(traced) if stale else ()
    for write in stale:
        name, value = write.args[:2]
        made = next((descendant for descendant in nodes if descendant.name == value), write)
        first = next((part for part in nodes if part is not write and part is not made and _reads(part, name)), None)
        places = [(location.file, location.line) for location in (write.location, made.location) if location is not None]
        known = [line for line in lines if (line.file, line.line) in places] or lines
        yield known[0] if len(known) == 1 else None, None if first is None else first.location


def _reads(node: Node, name: str) -> bool:
    return name in node.args and node.op != "output" and not _SHAPE_ONLY.search(node.target)


def _finding(place: Location | None, found: Sequence[tuple[Graph, Location | None]], mark: str, run: Run) -> Finding:
    graphs = unique(graph.id for graph, _ in found)
    read = next((location for _, location in found if location is not None and place is not None and location.line != place.line), None)
    before = "" if read is None else f", which {f'`{read.code}` ({short_place(read)})' if read.code else short_place(read)} had read"
    who = frame_ranks(run, (graph.frame for graph, _ in found))
    line = "The compiled code" if place is None else f"`{place.code}`" if place.code else short_place(place)
    return Finding(
        id="",
        fingerprint=mark,
        code=codes.STALE_GRADIENT,
        severity=codes.severity_of(codes.STALE_GRADIENT),
        title="Wrong gradients: the backward reads a tensor that the forward has overwritten",
        where=place,
        clauses=(
            Happened(f"{line} writes into a tensor{before}"),
            Cause("The compiled forward saves that tensor itself for the backward, not its old value"),
            Effect("The backward computes with the new value, where eager computes with the old one"),
            Basis("This is a fault of torch"),
            *((OnProcesses(who),) if who else ()),
        ),
        fix=(NEW_TENSOR,),
        cost=Cost(value=float(len(graphs)), unit=plural(len(graphs), "graph").split()[1], basis="counted"),
        evidence=graphs[:10],
        rank=(float(Priority.WRONG_RESULT), -float(len(graphs))),
    )
