"""How much of the program's work runs compiled, where calls were looked at from inside, and what is compiled in name only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass

from dynadiag import trace
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.compiled import CompiledWork
from dynadiag.model.graph import Graph, Node
from dynadiag.model.run import Run

FOREIGN = "the operators of a call were not counted: the log was not recorded by `dynadiag explain SCRIPT`"
NO_CALL = "no call of a compiled function was recorded"
CUT_SHORT = "the recording ended before a call in which nothing compiles"
NO_TIME = "measured with --cost, in calls that use no CUDA device"


@dataclass(frozen=True, slots=True)
class Work:
    """One call each of `functions` compiled functions together: its operators, how many of them were in graphs, and how many graphs ran and
    graph breaks were met in one call, at least and at most. `break_lines` is at how many lines of source those breaks are, where that is
    known. `time` is the part of the host's time that was spent in graphs. `only` is the name of the function where it is one. The operators
    are also those of one call each of `eager`: parts of compiled modules that were called by themselves, which is not compiled.
    `unseen` is how many more functions were compiled of which no call was looked at, such as those that compiled something in each call.
    `as_in_eager` counts those of all graphs that Inductor only calls by their names.
    """

    operators: int
    compiled: int
    functions: int
    graphs: tuple[int, int]
    breaks: tuple[int, int]
    time: float | None
    only: str | None = None
    eager: tuple[str, ...] = ()
    as_in_eager: int = 0
    break_lines: int | None = None
    unseen: int = 0

    @property
    def share(self) -> float | None:
        """The part of the operators that ran in graphs; None where a call has no operator at all."""
        return self.compiled / self.operators if self.operators else None


@of_last_run
def compiled_work(run: Run) -> Work | None:
    """What the calls together say, or None where none was looked at (`why_no_work`)."""
    compiled_calls = [item for item in run.work if item.eager is None]
    if not compiled_calls:
        return None
    parts = {eager_part.function: eager_part.outside for eager_part in reversed(eager_parts(run))}
    graphs = [compiled_call.graphs for compiled_call in compiled_calls]
    breaks = [breaks_in(element, run) for element in compiled_calls]
    compiled = sum(entry.in_graphs for entry in compiled_calls)
    call_s = sum(work_time.call_s for work_time in run.work_times)
    names = {one.function for one in compiled_calls}
    return Work(
        operators=compiled + sum(one.outside for one in compiled_calls) + sum(parts.values()),
        compiled=compiled,
        functions=len(names),
        graphs=(min(graphs), max(graphs)),
        breaks=(min(breaks), max(breaks)),
        time=sum(pair.graph_s for pair in run.work_times) / call_s if call_s and not parts else None,
        only=names.pop() if len(names) == 1 else None,
        eager=tuple(sorted(parts)),
        as_in_eager=len(complex_operators(run)),
        break_lines=_break_lines(compiled_calls[0], run) if len(compiled_calls) == 1 else None,
        unseen=_count_unseen({one.function.rpartition(".")[2] for one in compiled_calls}, run),
    )


def _count_unseen(seen: Set[str], run: Run) -> int:
    """How many functions were given to `torch.compile`, were compiled, and are not among these names."""
    compiled = {(frame.file, frame.line) for frame in run.frames if frame.outcome in ("compiled", "broke")}
    others = [call.definition for call in run.compile_calls if not call.disabled and seen.isdisjoint(call.target.split("."))]
    places = {(place.file, place.line) for place in others if place is not None}
    return len(places & compiled)


def eager_parts(run: Run) -> tuple[CompiledWork, ...]:
    """The calls of parts of compiled modules that ran operators, none of which was compiled."""
    return tuple(compiled_work for compiled_work in run.work if compiled_work.eager is not None and compiled_work.outside)


def breaks_in(work: CompiledWork, run: Run) -> int:
    """How many graph breaks the call met: each time that code compiled up to a break ran."""
    broke = {frame.id for frame in run.frames if frame.outcome == "broke"}
    return sum(times for frame, times in work.regions.items() if frame in broke)


def _break_lines(work: CompiledWork, run: Run) -> int | None:
    """At how many lines the call met its breaks; None where the line of one is not known, or where one compilation broke at several."""
    found: dict[str, set[tuple[str, int | None]]] = {
        frame.id: set() for frame in run.frames if frame.outcome == "broke" and frame.id in work.regions
    }
    for event in run.breaks:
        if event.frame in found and (place := event.torch_frame or next(reversed(event.stack), None)) is not None:
            found[event.frame].add((place.file, place.line))
    return len(set().union(*found.values())) if found and all(len(lines) == 1 for lines in found.values()) else None


def why_no_work(run: Run) -> str | None:
    """Why it is not known how much runs compiled; None where it is."""
    if any(compiled_work.eager is None for compiled_work in run.work):
        return None
    if not any("compiled_work" in process.hooks for process in run.processes):
        recorded = any(process.argv is not None for process in run.processes)
        return NO_CALL if recorded else FOREIGN
    told = next((process.no_work for process in run.processes if process.no_work), None)
    finished = any(process.finished for process in run.processes)
    return told or (NO_CALL if finished else CUT_SHORT)


# Operators on complex numbers, which Inductor puts into its code as calls of ATen: compiled in name only.
#
# `unsupported_input_tensor` and `unsupported_output_tensor` (`torch/_inductor/lowering.py`, 2.11 and 2.15) leave each operator that
# takes or gives complex numbers to ATen, with one warning for the process.

_MARKS = ('"c32[', '"c64[', '"c128[')
_COMPLEX = re.compile(r"^c(?:32|64|128)\[")
_COMPLEX_INPUT = re.compile(r"(\w+): \"c(?:32|64|128)\[")
_CALLED = re.compile(r"^\s+(?:\w+ = )?(torch\.ops\.\w+\.\w+\.\w+)\(", re.MULTILINE)
# What only names the same numbers anew.
_NO_WORK = re.compile(
    r"\.(?:_?conj|_neg_view|view|view_as_(?:real|complex)|real|imag|select|slice|reshape|permute|t|transpose|squeeze|unsqueeze|expand|alias)\."
)
_MOST_GRAPHS = 200


@of_last_run
def complex_operators(run: Run) -> tuple[tuple[Graph, Node], ...]:
    """Each operator on complex numbers that the code of its graph calls by its name; of a graph whose code was recorded."""
    graphs = [graph for graph in run.graphs if graph.kind == "post_grad"][:_MOST_GRAPHS]
    return tuple((graph, node) for graph in graphs for node in _left_to_aten(graph, run))


def _left_to_aten(graph: Graph, run: Run) -> Iterator[Node]:
    try:
        text = "" if graph.text is None else trace.read_payload(graph.text)
        called = _called_in_code(graph, run) if any(mark in text for mark in _MARKS) else set()
    except UnreadableInputError:
        return
    nodes = trace.graph_nodes(text) if called else ()
    names = {*_COMPLEX_INPUT.findall(text), *(child.name for child in nodes if _COMPLEX.match(child.annotation or ""))} if nodes else set()
    for node in nodes:
        if node.target in called and not _NO_WORK.search(node.target) and not names.isdisjoint((node.name, *node.args)):
            yield node


def _called_in_code(graph: Graph, run: Run) -> set[str]:
    """The operators that the code which Inductor wrote for the frame calls by their names."""
    texts = [
        listing.text
        for listing in run.listings
        if listing.kind == "output_code" and listing.frame == graph.frame and listing.attempt == graph.attempt
    ]
    return {name for text in texts for name in _CALLED.findall(trace.read_payload(text))}
