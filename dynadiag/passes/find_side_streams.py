"""Work on another CUDA stream inside compiled code: Inductor's code runs it on the current stream, and nothing says so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dynadiag.advice.uncaught import STREAMS_OUTSIDE
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.cuda_graphs import backend_of
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.user_frames import own_entry, own_frame
from dynadiag.facts.wording import frame_ranks, frame_text, listed, plural, short_place, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Cause, Happened, OnProcesses
from dynadiag.model.graph import Graph
from dynadiag.model.location import Location
from dynadiag.model.report import Cost, Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority
from dynadiag.trace import NodeStacks, graph_details, read_payload
from dynadiag.trace.values import as_list

# What a graph that knows of a stream has, by its text (torch/_dynamo/variables/streams.py, 2.11 to 2.15).
_OF_STREAMS = ("get_external_object_by_index", "ops.streams.")
_NO_WORK = re.compile(r"(?:get_external_object_by_index|record_event|wait_event|wait_stream|synchronize)(?:_\d+)?$")
# `with stream1:` and the like: Inductor of torch 2.15 enters streams (`codegen_enter_cuda_stream_context`), that of 2.11 never does.
_ENTERS = re.compile(r"^[ \t]*with [^\n]*stream", re.MULTILINE)
_MOST_GRAPHS, _MOST_EVIDENCE = 200, 10


def find_side_streams(run: Run) -> PassResult:
    """One finding for each function whose graph has work on another stream, compiled by Inductor to code that enters none."""
    found: dict[tuple[str | None, int | None], list[tuple[Graph, tuple[Location, ...]]]] = {}
    kept = {name for names in kept_graphs(run).values() for name in names}
    graphs = [item for item in run.graphs if item.id in kept and any(part in op for op in item.ops for part in _OF_STREAMS)]
    for graph in graphs[:_MOST_GRAPHS]:
        frame = run.frame(graph.frame)
        work = tuple(_work(graph, run))
        if frame is not None and work and backend_of(graph).get("backend") == "inductor" and _enters_none(graph, run):
            found.setdefault((frame.file, frame.line), []).append((graph, work))
    return PassResult(findings=tuple(_finding(group, run) for group in found.values()))


def _work(graph: Graph, run: Run) -> Iterator[Location]:
    """The line of each operator that the program puts on another stream than the one that is current at the call."""
    details = _details(graph)
    inputs = {element.get("name") for element in as_list(details.get("inputs")) if isinstance(element, dict)}
    streams, stacks = details.get("side_streams"), NodeStacks(details)
    frame = run.frame(graph.frame)
    entry = None if frame is None else own_entry(frame, run)
    for name in streams if isinstance(streams, dict) else ():
        if name not in inputs and not _NO_WORK.match(name):
            place = own_frame(stacks.get(name), run) or entry
            if place is not None:
                yield place


def _details(graph: Graph) -> Mapping[str, Any]:
    try:
        return {} if graph.details is None else graph_details(graph.details)
    except UnreadableInputError:
        return {}


def _enters_none(graph: Graph, run: Run) -> bool:
    """Whether none of the code that Inductor made of the frame enters a stream; False where no such code was recorded."""
    texts = [listing.text for listing in run.listings if listing.kind == "output_code" and listing.frame == graph.frame]
    try:
        return bool(texts) and not any(_ENTERS.search(read_payload(text)) for text in texts)
    except UnreadableInputError:
        return False


def _finding(group: list[tuple[Graph, tuple[Location, ...]]], run: Run) -> Finding:
    graph, work = group[0]
    frame = run.frame(graph.frame)
    where = work[0]
    lines = unique(short_place(place) for place in work)
    who = frame_ranks(run, (one.frame for one, _ in group))
    name = "the compiled code" if frame is None else frame_text(frame)
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.ONE_STREAM, where), run),
        code=codes.ONE_STREAM,
        severity=codes.severity_of(codes.ONE_STREAM),
        title="`with torch.cuda.stream(...)` has no effect in compiled code: all of it runs on one stream",
        where=where,
        clauses=(
            Happened(
                f"In {name}, {plural(len(work), 'operator')} on another CUDA stream ({listed(lines, limit=4)}) "
                f"{'runs' if len(work) == 1 else 'run'} on the stream that is current at the call, in order with the rest"
            ),
            Cause("The code that Inductor generated for the graph enters no stream"),
            *((OnProcesses(who),) if who else ()),
        ),
        fix=(STREAMS_OUTSIDE,),
        cost=Cost(value=float(len(work)), unit="operator" if len(work) == 1 else "operators", basis="counted"),
        evidence=unique(element.id for element, _ in group)[:_MOST_EVIDENCE],
        rank=(float(Priority.RANKS_DIFFER), -float(len(work))),
    )
