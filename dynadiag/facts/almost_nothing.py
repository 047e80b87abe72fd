"""Whether next to nothing was compiled, and which code ran in Python instead, as far as the record establishes both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.user_frames import is_own_file, source_function
from dynadiag.facts.wording import short_place, unique
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, Frame, Run

FEW_OPERATORS = 2
"""A graph of so few is next to nothing."""
_LINES_AN_OPERATOR = 5
_MOST_CALLERS = 100  # that `dynadiag_entry` records
_UNTOLD = ("frames", "graphs", "graph break sites", "graph break events")


@dataclass(frozen=True, slots=True)
class AlmostNothing:
    """What all graphs hold together, and what ran in Python: functions (`forward()`) and calls of modules."""

    operators: int
    graphs: int
    in_python: tuple[str, ...]


def almost_nothing(run: Run) -> AlmostNothing | None:
    """The verdict, or None where more was compiled or where the record does not say what ran instead.

    Said where no graph has more than two operators and either functions of the user with five times as many lines as the run has
    operators ran in Python from their first line, or a whole module did.
    """
    sizes = _sizes(run)
    if sizes is None or any(size > FEW_OPERATORS for size in sizes):
        return None
    left = _left_to_python(run)
    modules = unique(_modules_in_python(run))
    lines = sum(_lines(frame, run) for frame in left.values())
    if not modules and (not left or lines < _LINES_AN_OPERATOR * max(1, sum(sizes))):
        return None
    return AlmostNothing(sum(sizes), len(sizes), (*unique(left), *modules))


def left_in_python(run: Run) -> tuple[str, ...]:
    """The user's functions that a graph break left to Python as a whole: `forward()`."""
    return tuple(_left_to_python(run))


def _sizes(run: Run) -> list[int] | None:
    """The operators of each graph that is run; None where one was not counted, or something was compiled that is not in the record."""
    kept = {graph for graphs in kept_graphs(run).values() for graph in graphs}
    found = [graph.size for graph in run.graphs if graph.id in kept]
    sizes = [size for size in found if size is not None]
    unseen = any(run.left_out.get(kind) for kind in _UNTOLD) or any(problem.kind == "cached_code" for problem in run.problems)
    return None if unseen or len(sizes) < len(found) or any(frame.outcome == "failed" for frame in run.frames) else sizes


def _left_to_python(run: Run) -> Mapping[str, Frame]:
    """The user's functions that a graph break left to Python as a whole and of which no part has a graph, by their name."""
    broke = {event.frame for event in run.breaks}
    kept = kept_graphs(run)
    compiled = {(frame.file, source_function(frame.name)) for frame in run.frames if frame.id in kept}
    return {
        f"{frame.name}()": frame
        for frame in run.frames
        if frame.outcome == "skipped"
        and frame.id in broke
        and frame.file is not None
        and frame.name is not None
        and frame.name.isidentifier()
        and frame.name == source_function(frame.name)
        and is_own_file(frame.file, run)
        and (frame.file, frame.name) not in compiled
    }


def _modules_in_python(run: Run) -> Iterator[str]:
    """Calls of a library's module on a line of the user's at which Dynamo stopped, where nothing under the call has a graph."""
    kept = kept_graphs(run)
    compiled = [frame for frame in run.frames if frame.id in kept]
    if not all(0 < len(frame.callers) < _MOST_CALLERS for frame in compiled):
        return  # a stack that is cut short, or torch's without the innermost, may not show the call
    for event in run.breaks:
        call = _module_call(event, run)
        if call is not None and not any(_entered_from(call, frame) for frame in compiled):
            yield f"the module called at {short_place(call)}"


def _module_call(event: BreakEvent, run: Run) -> Location | None:
    """The user's line whose call of a library's `forward` holds the break."""
    if not event.stack or is_own_file(event.stack[-1].file, run):
        return None
    for outer, inner in zip(event.stack[-2::-1], event.stack[:0:-1], strict=True):
        if is_own_file(outer.file, run):
            return outer if inner.function == "forward" and outer.line is not None else None
    return None


def _entered_from(call: Location, frame: Frame) -> bool:
    """Whether a compiled frame was entered under the call; what goes on after it in the same function was not."""
    if (frame.file, source_function(frame.name)) == (call.file, source_function(call.function)):
        return False
    return any(caller.is_same_line(call) for caller in frame.callers)


def _lines(frame: Frame, run: Run) -> int:
    """How many lines a function has at least: by its recorded source, else up to the last line of it that a record names."""
    first = frame.line or 0
    text = run.blocks.get((str(frame.file), first))
    if text:
        return _rows(text)
    stacks = (event.stack for event in run.breaks)
    known = [place.line or 0 for stack in stacks for place in stack if (place.file, place.function) == (frame.file, frame.name)]
    return max([first, *known]) - first + 1


def _rows(text: str) -> int:
    """The rows of the function that the text begins with: up to a row that is not indented deeper than its `def`."""
    rows = text.split("\n")
    start = next((number for number, row in enumerate(rows) if row.lstrip().startswith(("def ", "async def "))), 0)
    margin = len(rows[start]) - len(rows[start].lstrip())
    count = start + 1
    for row in rows[start + 1 :]:
        if row.strip() and len(row) - len(row.lstrip()) <= margin and not row.lstrip().startswith(")"):
            break
        count += 1
    return count
