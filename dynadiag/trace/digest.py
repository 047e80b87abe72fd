"""The digests of a log's processes: recorded beside it, as far as that can be trusted, else made in one pass over its bytes."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from dynadiag.digests.lines import FORMAT, RANK_NAME, digest_name, first_facts
from dynadiag.digests.process import MOST_EVENTS, MOST_GROUPS, Entry, Event, ProcessDigest
from dynadiag.digests.texts import stamp_of
from dynadiag.files import read_small
from dynadiag.model.digest import Digest, DigestedProcess, DigestEvent, EventKind
from dynadiag.trace.records import LARGEST_RECORD_BYTES, Piece, Record, scan
from dynadiag.trace.sources import OpenLog
from dynadiag.trace.values import BadRecordError, as_dict, as_float, as_id, as_list, as_text, decode, parse_json

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
            process=DigestedProcess(**process.facts),
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


_LARGEST_BYTES = 64 << 20
_LONGEST_TEXT = 400
_MOST_VALUES = 64
_MOST_KNOWN = 5_000
_LONGEST_KNOWN = 26_000
_LONGEST_LINE = 4 << 20
_KINDS = frozenset(get_args(EventKind))
_MARK = re.compile(r"[0-9a-f]{16}\Z")
_EVENT = re.compile(rb"\[(\d{1,9}\.\d{1,9}),(\d{1,15}),(\d{1,9}),(\d{1,15}),(\d{1,12}),(\d{1,10}),(\[.*\])\]\Z")
_NUMBERS = frozenset({"pid", "rank", "parent_pid", "world_size"})
_TEXTS = frozenset({"torch", "python", "device", "options", "started_at", "error"})


class DistrustError(Exception):
    """Why a digest is not used, in words that follow "it"."""


def recorded_digest(log: Path, room_bytes: int, known: dict[bytes, tuple[DigestEvent, ...]]) -> Digest | None:
    """The digest beside a log, equal to the one that `digests_of` would make of the log; None when there is none.

    Also None when the log holds something to compare behind what the digest tells: then all of the log must be read. It must be as long as
    the digest tells, and have at up to three places what that tells of them; what follows in the log is read. `known` keeps events that
    several logs have, by their text. Raises DistrustError when the two disagree, OSError when the log cannot be read.
    """
    try:
        data = read_small(log.with_name(digest_name(log.name)), _LARGEST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DistrustError(f"cannot be read ({error.strerror})") from None
    read = _DigestReading(log, Room(room_bytes), known)
    try:
        read.lines(data.split(b"\n")[:-1])  # a process that was killed may have left half a line
    except ValueError:
        raise DistrustError("is damaged") from None
    return read.joined()


def bytes_told(log: Path) -> int:
    """How much of a log the digest beside it stands for; 0 without one that can be read. A log that is shorter was cut since."""
    reading = _DigestReading(log, Room(0), {})
    try:
        reading.lines(read_small(log.with_name(digest_name(log.name)), _LARGEST_BYTES).split(b"\n")[:-1])
    except (OSError, ValueError, DistrustError):
        return 0
    return reading.end


class _DigestReading:
    """One digest while it is read: what it tells, and how far it stands for the log."""

    def __init__(self, log: Path, room: Room, known: dict[bytes, tuple[DigestEvent, ...]]) -> None:
        self.log = log
        self.known = known
        self.collected = Collected(room)
        self.process = ProcessDigest(self._further, {})
        self.began: float | None = None
        self.ended: float | None = None
        self.end = 0
        self.checks: list[tuple[int, int, int]] = []
        self.goes_on = False

    def _further(self, _: object) -> None:
        self.goes_on = True

    def lines(self, lines: Sequence[bytes]) -> None:
        """All lines of the digest. Raises ValueError for what no recorder writes."""
        first = as_dict(parse_json(decode(lines[0]), "line")) if lines else {}
        if first.get("dynadiag_digest") != FORMAT:
            raise DistrustError("is damaged" if "dynadiag_digest" not in first else "is of another version of dynadiag")
        if first.get("log") != self.log.name or len(lines) > 4 * MOST_EVENTS:
            raise DistrustError("is that of another log")
        self.began = as_float(first.get("began"))
        for line in lines[1:]:
            if len(line) > _LONGEST_LINE:
                raise BadRecordError("line")
            found = _EVENT.match(line)
            self._event(found) if found else self._other(as_dict(parse_json(decode(line), "line")))
        name = RANK_NAME.search(self.log.name)
        if name and self.process.facts.get("rank") != int(name[1]):
            raise DistrustError("is that of another rank")

    def _event(self, found: re.Match[bytes]) -> None:
        time, (offset, length, call, records, check) = float(found[1]), map(int, found.groups()[1:6])
        events = self.known.get(found[7])
        if events is None:
            events = tuple(map(_event_of, as_list(parse_json(f"[{decode(found[7])}]", "events"))))
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            if len(found[7]) <= _LONGEST_KNOWN:
                self.known[found[7]] = events
        for event in events:
            self.collected.add(event, time, (offset, length), call)
        self._reach(offset + length + 1, records, time)
        if length:
            self.checks.append((offset, length, check))

    def _other(self, line: Mapping[str, Any]) -> None:
        if "at" in line:
            end, records, time = as_list(line["at"])
            self._reach(_whole(end), _whole(records), as_float(time))
        for name, value in as_dict(line.get("facts")).items():
            if name in _NUMBERS:
                self.process.facts[name] = None if value is None else _whole(value)
            elif name in _TEXTS:
                self.process.facts[name] = _short(value)
            elif name == "finished":
                self.process.facts[name] = value is True
            elif name == "groups":
                self.process.facts[name] = tuple(map(_short, as_list(value)[:MOST_GROUPS]))

    def _reach(self, end: int, records: int, time: float | None) -> None:
        if end < self.end or records < self.process.records:
            raise BadRecordError("order")
        self.end, self.process.records, self.ended = end, records, time

    def joined(self) -> Digest | None:
        """The digest with what the log holds behind it; None when that is something to compare."""
        with OpenLog(self.log) as stream:
            if stream.packed or stream.size < self.end:
                raise DistrustError(f"tells of {self.end:,} bytes, the log has {stream.size:,}")
            checks = self.checks
            for offset, length, check in dict.fromkeys((*checks[:1], *checks[len(checks) // 2 :][:1], *checks[-1:])):
                stream.raw.seek(offset)
                if length > LARGEST_RECORD_BYTES or zlib.crc32(stream.raw.read(length) or b"") != check:
                    raise DistrustError(f"tells of another record than the log has at byte {offset:,}")
            stream.raw.seek(max(0, self.end - 1))
            if self.end and stream.raw.read(1) != b"\n":
                raise DistrustError(f"tells of a record up to byte {self.end:,}, where the log has none that ends")
            cut_off = stream.size > self.end and self._rest(stream)
        if self.goes_on:
            return None
        return self.collected.digest(str(self.log), self.process, began=self.began, ended=self.ended, cut_off=cut_off)

    def _rest(self, stream: OpenLog) -> bool:
        """Reads the log from here to its end, or to something to compare; tells whether its last record is half written."""
        pid = b"%d" % (self.process.facts.get("pid") or 0)
        for piece in scan(stream, lambda _: None):
            if piece.match[2] is None:
                continue
            cut = piece.last and is_cut(piece)
            entry = entry_of(piece)
            self.process.take(entry, whole=not cut)
            self.ended = stamp_of(self.process.ended) or self.ended
            self.goes_on |= piece.match[1] != pid
            if cut or self.goes_on:
                return cut
        return False


def _event_of(value: object) -> DigestEvent:
    kind, mark, what, file, line, values = as_list(value)
    codes = as_list(values)
    if _short(kind) not in _KINDS or _MARK.match(_short(mark)) is None or len(codes) > _MOST_VALUES:
        raise BadRecordError("event")
    place = None if file is None else _short(file)
    return DigestEvent(kind, mark, _short(what), place, None if line is None else _whole(line), tuple(map(_short, codes)))


def _short(value: object) -> str:
    text = as_text(value)
    if text is None or len(text) > _LONGEST_TEXT:
        raise BadRecordError("text")
    return text


def _whole(value: object) -> int:
    number = as_id(value)
    if number is None:
        raise BadRecordError("number")
    return number
