"""Code that has compiled versions of its own only because a graph break split the graph of what calls it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.changes.recompile_cause import Split
from dynadiag.facts.user_frames import bare_name, callers, function_words, normal_path, resume_line, source_function
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, Frame, Run
from dynadiag.passes.break_chain import resume_frames

_Function = tuple[int, int, str, str | None]


@dataclass(frozen=True, slots=True)
class Splits:
    """The breaks of a run, looked up by the frame that exists because of one."""

    resumed: Mapping[str, BreakEvent]
    broken: Mapping[_Function, tuple[Frame, ...]]
    breaks: Mapping[str, tuple[BreakEvent, ...]]

    @classmethod
    def of_run(cls, run: Run) -> Splits:
        """The breaks of the run with what goes on after each."""
        resumed: dict[str, BreakEvent] = {}
        for position, frames in resume_frames(run).items():
            for frame in frames:
                resumed.setdefault(frame, run.breaks[position])
        broken: dict[_Function, list[Frame]] = {}
        for item in run.frames:
            if item.outcome in ("broke", "skipped") and item.file is not None:
                broken.setdefault((item.key.process, item.key.epoch, item.file, source_function(item.name)), []).append(item)
        breaks: dict[str, list[BreakEvent]] = {}
        for event in run.breaks:
            breaks.setdefault(event.frame, []).append(event)
        return cls(resumed, {key: tuple(found) for key, found in broken.items()}, {key: tuple(found) for key, found in breaks.items()})

    def of(self, frames: Iterable[Frame]) -> Split | None:
        """The break that all of these compilations of one code object are due to, that of the first; None if one of them is due to none.

        A compilation whose callers are not recorded (torch refused it at the limit) tells nothing.
        """
        found = [self._of(frame) for frame in frames if frame.callers or frame.stack or resume_line(frame.name) is not None]
        return found[0] if found and None not in found else None

    def _of(self, frame: Frame) -> Split | None:
        at = resume_line(frame.name)
        if at is not None:
            event = self.resumed.get(frame.id) or self._through(
                (place for places in self.breaks.values() for place in places), frame.file, at
            )
            return None if event is None else Split(function_words(frame.name, frame.file), event.torch_frame, event.gb_id)
        for place in _inside(callers(frame)):
            event = self._at(place, frame)
            if event is not None:
                return Split(function_words(bare_name(place.function), place.file), event.torch_frame, event.gb_id)
        return None

    def _at(self, place: Location, frame: Frame) -> BreakEvent | None:
        """The break of the calling code at this call, else one after which the whole calling function runs eager."""
        key = (frame.key.process, frame.key.epoch, place.file, source_function(bare_name(place.function)))
        found = [item for item in self.broken.get(key, ()) if item.id != frame.id and (item.record or 0) <= (frame.record or 0)]
        # One file has many functions called `forward`: it is the nearest one that begins above the call.
        begins = max((element.line for element in found if element.line is not None and element.line <= (place.line or 0)), default=None)
        events = [event for entry in found if entry.line == begins for event in self.breaks.get(entry.id, ())]
        return self._through(events, place.file, place.line) or next((event for event in events if event.skips_frame), None)

    @staticmethod
    def _through(events: Iterable[BreakEvent], file: str | None, line: int | None) -> BreakEvent | None:
        return next((event for event in events if any((location.file, location.line) == (file, line) for location in event.stack)), None)


def _inside(stack: Sequence[Location]) -> Iterable[Location]:
    """The callers from the innermost out to the compiled callable through which torch was entered."""
    for place in reversed(stack):
        if bare_name(place.function) == "compile_wrapper" and normal_path(place.file).endswith("torch/_dynamo/eval_frame.py"):
            return
        yield place
