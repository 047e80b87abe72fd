"""Operators on complex numbers that are in a graph, and that Inductor calls one by one as eager does."""

from __future__ import annotations

from dynadiag.facts.compiled_work import complex_operators
from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.user_frames import own_frame
from dynadiag.facts.wording import frame_ranks, listed, plural, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Effect, Happened, OnProcesses, Unadvised
from dynadiag.model.graph import Graph, Node
from dynadiag.model.location import Location
from dynadiag.model.report import Cost, Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority


def find_complex_operators(run: Run) -> PassResult:
    """One finding for each line whose operators Inductor calls as eager does."""
    found: dict[Location | None, list[tuple[Graph, Node]]] = {}
    for graph, node in complex_operators(run):
        frame = run.frame(graph.frame)
        own = None if node.location is None else own_frame((node.location,), run)
        place = own or (None if frame is None or frame.file is None else Location(frame.file, frame.line, frame.name))
        found.setdefault(place, []).append((graph, node))
    marks = fingerprints([Subject(codes.COMPLEX_OPERATORS, place) for place in found], run)
    return PassResult(findings=tuple(_finding(place, uses, mark, run) for (place, uses), mark in zip(found.items(), marks, strict=True)))


def _finding(place: Location | None, uses: list[tuple[Graph, Node]], mark: str, run: Run) -> Finding:
    graphs = unique(graph.id for graph, _ in uses)
    names = listed([f"`{name}`" for name in unique(node.target.removeprefix("torch.ops.") for _, node in uses)], limit=4)
    here = "This line" if place is not None and place.line is not None and place.code else "The compiled code"
    who = frame_ranks(run, (graph.frame for graph, _ in uses))
    calls = plural(len(uses), "operator")
    return Finding(
        id="",
        fingerprint=mark,
        code=codes.COMPLEX_OPERATORS,
        severity=codes.severity_of(codes.COMPLEX_OPERATORS),
        title=f"{calls} on complex numbers {'is' if len(uses) == 1 else 'are'} not compiled",
        where=place,
        clauses=(
            Happened(f"{here} has {calls} on complex numbers in {plural(len(graphs), 'graph')} ({listed(graphs, limit=4)}): {names}"),
            Effect("Inductor generates no code for them and calls them one by one, as eager does"),
            *((OnProcesses(who),) if who else ()),
            Unadvised("whether real numbers would do (`torch.view_as_real`) is not recorded"),
        ),
        fix=(),
        cost=Cost(value=float(len(uses)), unit=calls.split()[1], basis="counted"),
        evidence=graphs,
        rank=(float(Priority.RAN_EAGER), 0.0, -float(len(uses))),
    )
