"""The chain from a graph break to what goes on after it: break -> resume function frames -> graphs before and after.

Dynamo names the function that goes on `torch_dynamo_resume_in_<function>_at_<line>`, where the line is that of the compiled frame at the
break
(`torch/_dynamo/resume_execution.py`, torch 2.11 and 2.15), not that of an inlined callee in which it broke.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynadiag.facts.user_frames import callers, resume_line, source_function
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, Frame, Run

_Code = tuple[int, int, int | None]
_Name = tuple[int, int, str | None, str | None, int | None]


@dataclass(frozen=True, slots=True)
class _Resume:
    """One resume function: its code object and the compilations of it, in the order of the log."""

    first: int
    code: _Code
    frames: tuple[str, ...]


def resume_frames(run: Run) -> Mapping[int, tuple[str, ...]]:
    """For each break event (by its position in `run.breaks`) the compilations of the function that goes on after it.

    Two breaks on one line give two resume functions of one name: each break takes the first one that follows it and that no earlier break
    has
    taken. A break that comes again after a recompile goes on in the function that it had taken before.
    """
    by_name = _resumes_by_name(run)
    frames = {frame.id: frame for frame in run.frames}
    taken: set[_Code] = set()
    before: dict[tuple[_Code, _Name], _Resume] = {}
    links: dict[int, tuple[str, ...]] = {}
    for position, event in _in_order(run):
        frame = frames.get(event.frame)
        if frame is None or event.skips_frame:
            continue
        found: list[str] = []
        for name in _names(event, frame):
            again = before.get((_code(frame), name))
            resumes = by_name.get(name, [])
            while resumes and (resumes[-1].code in taken or resumes[-1].first <= _when(event, frame)):
                resumes.pop()  # neither a later break: events come in order
            chosen = again or next(iter(resumes[-1:]), None)
            if chosen is not None:
                taken.add(chosen.code)
                before[_code(frame), name] = chosen
                found.extend(chosen.frames)
        links[position] = tuple(dict.fromkeys(found))
    return links


def _in_order(run: Run) -> Iterator[tuple[int, BreakEvent]]:
    frames = {frame.id: frame for frame in run.frames}

    def key(item: tuple[int, BreakEvent]) -> tuple[int, int, int]:
        frame = frames.get(item[1].frame)
        return (-1 if frame is None else frame.key.process), (-1 if frame is None else _when(item[1], frame)), item[0]

    return iter(sorted(enumerate(run.breaks), key=key))


def _when(event: BreakEvent, frame: Frame) -> int:
    return event.record if event.record is not None else frame.record or 0


def _code(frame: Frame) -> _Code:
    return frame.key.process, frame.key.epoch, frame.key.frame


def _resumes_by_name(run: Run) -> dict[_Name, list[_Resume]]:
    """The resume functions of each name, the last one first."""
    compilations: dict[tuple[_Code, _Name], list[Frame]] = {}
    for frame in run.frames:
        line = resume_line(frame.name)
        if line is not None:
            name: _Name = (frame.key.process, frame.key.epoch, frame.file, source_function(frame.name), line)
            compilations.setdefault((_code(frame), name), []).append(frame)
    result: dict[_Name, list[_Resume]] = {}
    for (code, name), frames in compilations.items():
        first = min(frame.record if frame.record is not None else position for position, frame in enumerate(frames))
        result.setdefault(name, []).append(_Resume(first, code, tuple(frame.id for frame in frames)))
    for resumes in result.values():
        resumes.sort(key=lambda item: item.first, reverse=True)
    return result


def _names(event: BreakEvent, frame: Frame) -> list[_Name]:
    """The name that the resume function has: torch's function and line of the compiled frame itself, behind its callers in the stack."""
    function = source_function(frame.name)
    traced = event.stack[_callers(event.stack, callers(frame)) :]
    own = [place for place in traced if place.file == frame.file and source_function(place.function) == function]
    if not own and event.torch_frame is not None and event.torch_frame.file == frame.file:
        own = [event.torch_frame]
    return [(frame.key.process, frame.key.epoch, frame.file, function, place.line) for place in own[:1]]


def _callers(stack: tuple[Location, ...], entry: tuple[Location, ...]) -> int:
    """How many leading frames of an event's stack are callers of the compiled frame, as far as its entry stack tells.

    Torch leaves its own frames out of the former and shows a function and its resume functions as one frame (`collapse_resume_frames`).
    """
    count = 0
    for place in entry:
        same = [(location.file, source_function(location.function)) for location in stack[max(0, count - 1) : count + 1]]
        if count < len(stack) and same[-1] == (place.file, source_function(place.function)) and (count == 0 or same[0] != same[-1]):
            count += 1
    return count if count < len(stack) else 0
