"""One log to the digests of its processes, in one pass over its bytes: only what ranks are compared by is looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import cast

from dynadiag.digests.lines import first_facts
from dynadiag.digests.process import MOST_EVENTS, Entry, Event, ProcessDigest
from dynadiag.digests.texts import stamp_of
from dynadiag.model.digest import Digest, DigestEvent, EventKind
from dynadiag.trace.records import Piece, Record, scan
from dynadiag.trace.sources import OpenLog
from dynadiag.trace.values import BadRecordError, decode

_MOST_PROCESSES = 64
_STAMP_BYTES = 31
EVENT_BYTES = 250  # that one event takes beside its texts


def digests_of(log: str, room_bytes: int = 64 << 20) -> tuple[tuple[Digest, ...], str | None]:
    """The digests of the processes in a log, and why it could not be read to its end (None: it was). Raises OSError when nothing can.

    `room_bytes` is about how much memory they may take; events beyond are counted in `Digest.left_out`.
    """
    with OpenLog(log) as stream:
        reader = _Reader(log, room_bytes)
        for piece in scan(stream, lambda _: None):
            if piece.match[2] is not None:
                reader.take(piece)
        return tuple(reader.finished()), stream.broken


class Room:
    """How much memory the digests of a log may still take, and each event once."""

    def __init__(self, room_bytes: int) -> None:
        self.left_bytes = room_bytes
        self._seen: dict[DigestEvent, DigestEvent] = {}

    def take(self, event: DigestEvent, number: int) -> DigestEvent | None:
        """The event to keep as the one after `number` others; None when there is no room for it."""
        self.left_bytes -= EVENT_BYTES
        if number >= MOST_EVENTS or self.left_bytes < 0:
            return None
        if event not in self._seen:
            self._seen[event] = event
            self.left_bytes -= len(event.what) + sum(map(len, event.values))
        return self._seen[event]


class Collected:
    """The events of one process that there is room for."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._events: list[DigestEvent] = []
        self._rest: list[tuple[float, tuple[int, int], int]] = []
        self._left_out = 0

    def take(self, event: Event) -> None:
        """One more event."""
        self.add(DigestEvent(cast(EventKind, event.kind), *event[1:6]), event.time, (event.offset, event.length), event.call)

    def add(self, event: DigestEvent, time: float, place: tuple[int, int], call: int) -> None:
        """One more event, in its parts."""
        kept = self._room.take(event, len(self._events))
        if kept is None:
            self._left_out += 1
        else:
            self._events.append(kept)
            self._rest.append((time, place, call))

    def digest(self, log: str, process: ProcessDigest, *, began: float | None, ended: float | None, cut_off: bool) -> Digest:
        """The digest of the process."""
        times, places, calls = zip(*self._rest, strict=True) if self._rest else ((), (), ())
        return Digest(
            log=log,
            **process.facts,
            began=began,
            ended=ended,
            records=process.records,
            cut_off=cut_off,
            events=tuple(self._events),
            times=times,
            places=places,
            calls=calls,
            left_out=self._left_out,
        )


class _Reader:
    def __init__(self, log: str, room_bytes: int) -> None:
        self.log = log
        self.name = os.path.basename(log)  # noqa: PTH119 - a name, not a path of ours
        self.room = Room(room_bytes)
        self.processes: dict[bytes, tuple[ProcessDigest, Collected]] = {}
        self.cut_off = False

    def take(self, piece: Piece) -> None:
        process = self._process(piece.match[1], piece.match[4])
        if process is not None:
            whole = not (piece.last and is_cut(piece))
            self.cut_off |= not whole
            process.take(entry_of(piece), whole=whole)

    def _process(self, number: bytes, rest: bytes) -> ProcessDigest | None:
        if number in self.processes:
            return self.processes[number][0]
        if len(self.processes) >= _MOST_PROCESSES:
            return None
        facts = first_facts(number, self.name, rest)
        first = next((process for process, _ in self.processes.values()), None)
        if first is not None:
            facts["parent_pid"] = first.facts["pid"]
        collected = Collected(self.room)
        process = ProcessDigest(collected.take, facts, strings=None if first is None else first.strings)
        self.processes[number] = process, collected
        return process

    def finished(self) -> Iterator[Digest]:
        for process, collected in self.processes.values():
            began, ended = stamp_of(process.began), stamp_of(process.ended)
            yield collected.digest(self.log, process, began=began, ended=ended, cut_off=self.cut_off)


def entry_of(piece: Piece) -> Entry:
    """A record that was cut out of a log, as digests are made of it."""
    _, kind, name, rest = piece.match.groups()
    begin = piece.match.start() + 1
    # Only the head is copied: a buffer of megabytes stands behind the match.
    stamp = piece.match.string[begin : begin + _STAMP_BYTES]
    length = piece.end - piece.payload_start
    return Entry(kind, name, rest, stamp, piece.base + piece.payload_start, length, Record(piece, "", 0).raw_payload)


def is_cut(piece: Piece) -> bool:
    """Whether the last record of a log is half written."""
    record = Record(piece, decode(piece.match[2] or b""), 0)
    try:
        record.payload()
    except BadRecordError:
        return True
    return record.mismatch
