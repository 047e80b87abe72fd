"""Compile time by phase, from the begin and end events of torch's `dynamo_timed` (`ChromiumEventLogger`, `torch/_dynamo/utils.py`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dynadiag.model.compiled import Span
from dynadiag.model.run import Phase
from dynadiag.trace.room import Room

_EVENT = re.compile(rb'\t\{\r?\n\t"name": "([^"\\\n]*)",\r?\n\t"ts": (\d{1,20}(?:\.\d{1,9})?),\r?\n')
_KIND = b'\n\t"ph": "'
DEEPEST = 200


@dataclass(slots=True)
class _Open:
    name: str
    began_us: float
    inside_us: float = 0.0


@dataclass(slots=True)
class PhaseClock:
    """The phases that are open in one process; a finished one goes to `done` under its frame."""

    open: list[_Open] = field(default_factory=list)
    done: dict[tuple[str | None, str], list[float]] = field(default_factory=dict)
    spans: list[tuple[str | None, str, float, float, int]] = field(default_factory=list)

    def begin(self, name: str, at_us: float) -> None:
        """A phase begins inside the one that is open."""
        if len(self.open) < DEEPEST:
            self.open.append(_Open(name, at_us))

    def end(self, name: str, at_us: float, frame: str | None, room: Room) -> None:
        """A phase ends, and is kept if there is room; what began inside it and never ended (an exception, a lost record) is dropped."""
        position = next((p for p in range(len(self.open) - 1, -1, -1) if self.open[p].name == name), None)
        if position is None:
            return
        phase = self.open[position]
        del self.open[position:]
        took = at_us - phase.began_us
        if took < 0:
            return
        if self.open:
            self.open[-1].inside_us += took
        if room.take("timed phases"):
            self.spans.append((frame, name, phase.began_us, max(0.0, took), position))
        entry = self.done.get((frame, name))
        if entry is None:
            if not room.take("compile phases"):
                return
            entry = self.done[frame, name] = [0.0, 0.0, 0]
        entry[0] += took
        entry[1] += max(0.0, took - phase.inside_us)
        entry[2] += 1

    def timed(self, process: int) -> tuple[Span, ...]:
        """Each finished phase that there was room for, in the order in which they ended."""
        return tuple(Span(process, *span) for span in self.spans)

    def phases(self) -> tuple[Phase, ...]:
        """The sums of all finished phases in seconds, in the order in which they first ended."""
        return tuple(
            Phase(frame=frame, name=name, total_s=total / 1e6, self_s=own / 1e6, count=int(count))
            for (frame, name), (total, own, count) in self.done.items()
        )


def quick_event(buffer: bytes, start: int, end: int) -> tuple[bytes, bytes, float] | None:
    """Kind (B, E or i), name and time in microseconds of an event as torch prints it; None when it looks different or damaged."""
    match = _EVENT.match(buffer, start, end)
    place = buffer.rfind(_KIND, start, end) if match else -1
    whole = place >= 0 and buffer[place - 2 : place].endswith((b"},", b",\r")) and buffer[end - 2 : end].rstrip().endswith(b"}")
    if match is None or not whole:
        return None
    kind = place + len(_KIND)
    return buffer[kind : kind + 1], match[1], float(match[2])
