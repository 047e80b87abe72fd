"""One log to the digests of its processes, in one pass over its bytes: only what ranks are compared by is looked at."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dynadiag.model.digest import Digest, DigestEvent, EventKind
from dynadiag.trace.break_text import parse_break
from dynadiag.trace.guards import value_guards
from dynadiag.trace.records import Piece, Record, scan, untab
from dynadiag.trace.sources import OpenLog
from dynadiag.trace.values import BadRecordError, as_dict, as_id, as_list, as_text, decode

RANK_NAME = re.compile(r"_rank_(\d{1,6})[_.]")
_MOST_PROCESSES = 64
_MOST_EVENTS = 20_000
_MOST_STRINGS = 100_000
_MOST_TEXT = 300
_MOST_CODE = 2000
EVENT_BYTES = 250  # that one event takes beside its texts
_LARGEST_HEADER_BYTES = 1 << 20
_LARGEST_PID = 1 << 22
_DAYS = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)  # of a leap year: only differences count
_STAMP = re.compile(rb"[A-Z](\d\d)(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)")
_HEADER_RANK = re.compile(rb'"rank": (\d{1,6})\b')
_FAILED = re.compile(rb'"fail_type": "([\w.]{1,100})"')
_TORCH = re.compile(rb'"pytorch_version": "([^"\\]{1,100})"')
_LEAF = re.compile(rb"\n\t?[| ]*\+- ([A-Z][A-Z0-9_]*): ([^\n]*)")
_IDS = re.compile(rb"(___check_(?:type|obj)_id\([^\n]*), \d+\)")
_ADDRESS = re.compile(rb"\b(?:0x[0-9a-f]{6,}|\d{9,})\b")
_OWN_DEVICE = re.compile(rb"\b(device=|(?:cuda|xpu|hpu|npu):|index=)\d{1,4}\b")
_COMMENT = re.compile(rb"(?<![ \t])[ \t]*+#[^\n]*+")
_BLANK = re.compile(rb"\n[ \t]*+(?=\n)")
_COLLECTIVE = re.compile(
    rb'\n[ \t]*+\w++(?:: "([^"\n]{0,200})")? = (?:torch\.ops\.)?'
    rb"([\w.]{0,100}(?:c10d|_functional_collectives|dtensor)[\w.]{0,100})\(([^\n]{0,500})"
)
_CONSTANT = re.compile(rb"'[^'\n]{0,100}'|(?<![\w.\[])-?\d{1,9}(?![\w.\]])|\[[\d, ]{0,200}\]")
_GROUP = re.compile(rb"'(\d{1,9}|[0-9a-f]{32,64})'")
_REASON_PREFIX = re.compile(r"^\s*\d+/\d+: ")
_DIGEST_BYTES = 8


@dataclass(slots=True)
class _Process:
    """A process while its records are read."""

    facts: dict[str, Any]
    strings: dict[int, str]
    groups: dict[bytes, bytes] = field(default_factory=dict)
    call: int = 0
    frame: tuple[str, str | None, int | None] = ("an unnamed frame", None, None)
    frames: dict[int | None, tuple[str, str | None, int | None]] = field(default_factory=dict)
    records: int = 0
    events: list[DigestEvent] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    left_out: int = 0
    began: bytes = b""
    ended: bytes = b""


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


def mark_of(*parts: str | bytes) -> str:
    """A hash of texts that is the same in every Python process."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "replace")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def stamp_of(line: bytes) -> float | None:
    """Seconds since the beginning of the year out of the head of a record."""
    found = _STAMP.match(line)
    if found is None:
        return None
    month, day, hour, minute = (int(found[number]) for number in range(1, 5))
    return (_DAYS[(month - 1) % 12] + day) * 86400.0 + hour * 3600 + minute * 60 + float(found[5])


class _Reader:
    def __init__(self, log: str, room_bytes: int) -> None:
        self.log = log
        self.room_bytes = room_bytes
        self.processes: dict[bytes, _Process] = {}
        self.seen: dict[DigestEvent, DigestEvent] = {}
        self.cut_off = False
        name = RANK_NAME.search(os.path.basename(log))  # noqa: PTH119 - a name, not a path of ours
        self.rank = int(name[1]) if name else None

    def take(self, piece: Piece) -> None:
        number, kind, name, rest = piece.match.groups()
        process = self.processes.get(number)
        if process is None:
            if len(self.processes) >= _MOST_PROCESSES:
                return
            process = self._begin(number, rest)
        process.records += 1
        # Only the head is cut out: a buffer of megabytes stands behind the match.
        process.ended = piece.match.string[piece.match.start() + 1 : piece.match.start() + 32]
        process.began = process.began or process.ended
        if piece.last and _is_cut(piece):
            self.cut_off = True
            return
        handler = _ARTIFACTS.get(name) if kind == b"artifact" and name is not None else _KINDS.get(kind)
        if handler is None or len(rest) > _LARGEST_HEADER_BYTES:
            return
        with suppress(BadRecordError, RecursionError):  # such records are counted and named where the log is read in full
            handler(self, process, Record(piece, decode(kind), process.records - 1))

    def _begin(self, number: bytes, rest: bytes) -> _Process:
        pid = int(number) if len(number) < 19 else 0
        first = next(iter(self.processes.values()), None)
        rank = _HEADER_RANK.search(rest[-512:])
        facts: dict[str, Any] = {"pid": pid if 0 < pid < _LARGEST_PID else None}
        facts["rank"] = self.rank if self.rank is not None else int(rank[1]) if rank else None
        if first is not None:
            facts["parent_pid"] = first.facts["pid"]
        self.processes[number] = process = _Process(facts, {} if first is None else dict(first.strings))
        return process

    def add(self, process: _Process, record: Record, kind: EventKind, what: str, *parts: str | bytes, values: tuple[str, ...] = ()) -> None:
        """One event of the frame that the record belongs to."""
        self.room_bytes -= EVENT_BYTES
        if len(process.events) >= _MOST_EVENTS or self.room_bytes < 0:
            process.left_out += 1
            return
        name, file, line = process.frames.get(as_id(record.header.get("frame_id")), process.frame)
        mark = mark_of(kind, *parts, name, _short(file), str(line))
        event = DigestEvent(kind, mark, f"{name}: {what}"[:_MOST_TEXT] if what else name[:_MOST_TEXT], file, line, values)
        if event not in self.seen:
            self.seen[event] = event
            self.room_bytes -= len(event.what) + sum(map(len, values))
        process.events.append(self.seen[event])
        process.times.append(stamp_of(process.ended) or 0.0)
        process.places.append((record.payload_offset, record.payload_length))
        process.calls.append(process.call)
        rank = _HEADER_RANK.search(record.rest[-512:]) if process.facts["rank"] is None else None
        if rank is not None:
            process.facts["rank"] = int(rank[1])

    def finished(self) -> Iterator[Digest]:
        for process in self.processes.values():
            yield Digest(
                log=self.log,
                **process.facts,
                began=stamp_of(process.began),
                ended=stamp_of(process.ended),
                records=process.records,
                cut_off=self.cut_off,
                events=tuple(process.events),
                times=tuple(process.times),
                places=tuple(process.places),
                calls=tuple(process.calls),
                left_out=process.left_out,
            )


def _is_cut(piece: Piece) -> bool:
    """Whether the last record of a log is half written."""
    record = Record(piece, decode(piece.match[2] or b""), 0)
    try:
        record.payload()
    except BadRecordError:
        return True
    return record.mismatch


def _short(file: str | None) -> str:
    """The end of a path: machines may have the program in different folders."""
    return "/".join((file or "").replace("\\", "/").split("/")[-2:])


def _string(_: _Reader, process: _Process, record: Record) -> None:
    pair = as_list(record.value)
    if len(pair) == 2 and isinstance(pair[0], str) and as_id(pair[1]) is not None and len(process.strings) < _MOST_STRINGS:
        process.strings[pair[1]] = pair[0][:_MOST_TEXT]


def _start(reader: _Reader, process: _Process, record: Record) -> None:
    stack = as_list(as_dict(record.value).get("stack"))
    code = as_dict(stack[-1]) if stack else {}
    number = as_id(code.get("filename"))
    frame = (as_text(code.get("name")) or "an unnamed frame")[:_MOST_TEXT], process.strings.get(-1 if number is None else number)
    process.frame = (*frame, as_id(code.get("line")))
    if len(process.frames) < _MOST_EVENTS:
        process.frames[as_id(record.header.get("frame_id"))] = process.frame
    reader.add(process, record, "frame", "")


def _break(reader: _Reader, process: _Process, record: Record) -> None:
    said = parse_break(record.text())
    where = said.torch_frame or (said.stack[-1] if said.stack else None)
    kind = said.reason.gb_id or said.reason.gb_type
    at = "" if where is None else f" at {_short(where.file)}:{where.line}"
    reader.add(process, record, "break", f"graph break {kind}{at}", kind, at)


def _recompile(reader: _Reader, process: _Process, record: Record) -> None:
    text = record.text()
    if text.startswith("["):
        text = next((one for one in as_list(record.json()) if isinstance(one, str)), "")
    reason = _REASON_PREFIX.sub("", text.partition("\n")[0]).partition("  #")[0].strip()
    plain = _without_ids(reason.encode("utf-8", "replace"))
    reader.add(process, record, "recompile", f"recompiled: {decode(plain)}", plain)


def _guards(reader: _Reader, process: _Process, record: Record) -> None:
    leaves = _LEAF.findall(record.raw_payload())
    values = value_guards((decode(kind), decode(body)) for kind, body in leaves if kind.endswith((b"_MATCH", b"_CHECK")))
    codes = {code.encode("utf-8", "replace") for code in values}
    plain = sorted(_bare_guards(leaves, codes))
    reader.add(process, record, "guards", f"{len(leaves)} guards", b"\n".join(plain), *sorted(map(_source, values)), values=values)


def _bare_guards(leaves: list[tuple[bytes, bytes]], without: set[bytes]) -> Iterator[bytes]:
    for kind, body in leaves:
        code = body.partition(b"  # ")[0].strip()
        if code not in without:
            yield kind + b" " + _without_ids(code)


def guard_lines(payload: bytes) -> list[str]:
    """The guards of a payload as they are compared, with their values."""
    return sorted(decode(one) for one in _bare_guards(_LEAF.findall(payload), set()))


def graph_lines(payload: bytes) -> list[str]:
    """The lines of a graph as they are compared, but for the names of process groups."""
    return [line.strip() for line in decode(_bare_graph(payload)).split("\n") if line.strip()]


def _bare_graph(text: bytes) -> bytes:
    return _plain(_BLANK.sub(b"", _COMMENT.sub(b"", text)) if b"#" in text else text)


def _source(code: str) -> str:
    """What a guard on a value looks at, without the value."""
    return code.partition(" == ")[0]


def _plain(code: bytes) -> bytes:
    """Text of a guard or graph without addresses and without the number of the rank's own device."""
    return _ADDRESS.sub(b"*", _OWN_DEVICE.sub(rb"\1*", code))


def _without_ids(code: bytes) -> bytes:
    """The code of a guard, up to a length that no honest one has, also without the identities of types and objects."""
    return _plain(_IDS.sub(rb"\1)", code[:_MOST_CODE]))


def _graph(reader: _Reader, process: _Process, record: Record) -> None:
    text = untab(record.raw_payload())
    bare = _bare_graph(text)
    if b"c10d" in bare or b"_collectives" in bare:
        bare = _GROUP.sub(lambda found: _group(process, found[1]), bare)
    reader.add(process, record, "graph", f"graph of {bare.count(b' = ')} operations", bare)
    _collectives(reader, process, record, text)


def _later_graph(reader: _Reader, process: _Process, record: Record) -> None:
    raw = record.raw_payload()
    if b"c10d" in raw or b"_collectives" in raw:
        _collectives(reader, process, record, untab(raw))


def _collectives(reader: _Reader, process: _Process, record: Record, text: bytes) -> None:
    if b"c10d" not in text and b"_collectives" not in text:
        return
    for shape, target, arguments in _COLLECTIVE.findall(_COMMENT.sub(b"", text)):
        name = decode(target).removesuffix(".default").rpartition(".")[2]
        if name == "wait_tensor":
            continue
        constants = b", ".join(_CONSTANT.findall(_GROUP.sub(lambda found: _group(process, found[1]), arguments)))
        said = decode(_plain(b" ".join((shape, constants))))
        reader.add(process, record, "collective", f"{record.kind}: {name} {said}", record.kind, name, said)


def _group(process: _Process, name: bytes) -> bytes:
    """A process group by when it was first used: its name differs between ranks of different groups."""
    if len(process.groups) >= _MOST_PROCESSES * 64:
        return b"'group'"
    return process.groups.setdefault(name, b"'group %d'" % len(process.groups))


def _schedule(reader: _Reader, process: _Process, record: Record) -> None:
    """`inductor_collective_schedule` (torch 2.9 and newer): the collectives in the order in which inductor runs them."""
    for one in as_list(record.json()):
        if isinstance(one, str):
            reader.add(process, record, "collective", f"schedule: {one}", "schedule", one)


def _metrics(reader: _Reader, process: _Process, record: Record) -> None:
    line = record.rest
    if process.facts.get("torch") is None and (version := _TORCH.search(line)):
        process.facts["torch"] = decode(version[1])
    failed = _FAILED.search(line)
    if failed is not None:
        reader.add(process, record, "failure", f"compilation failed with {decode(failed[1])}", failed[1])


def _environment(_: _Reader, process: _Process, record: Record) -> None:
    facts = record.object()
    for name, value in (("parent_pid", as_id(facts.get("ppid"))), ("rank", as_id(facts.get("rank")))):
        if value is not None and (name != "rank" or process.facts["rank"] is None):
            process.facts[name] = value
    for name in ("torch", "python", "started_at", "device"):
        if (text := as_text(facts.get(name))) is not None:
            process.facts[name] = text[:_MOST_TEXT]
    size = as_text(as_dict(facts.get("env")).get("WORLD_SIZE")) or ""
    if size.isascii() and size.isdigit() and len(size) < 7:
        process.facts["world_size"] = int(size)


def _config(_: _Reader, process: _Process, record: Record) -> None:
    facts = record.object()
    if (device := as_text(facts.get("device"))) is not None:
        process.facts.setdefault("device", device[:_MOST_TEXT])
    areas = {area: as_dict(facts.get(area)) for area in ("dynamo", "functorch", "inductor")}
    process.facts["options"] = mark_of(*(f"{area}.{name}={value!r}" for area in areas for name, value in sorted(areas[area].items())))


def _version(_: _Reader, process: _Process, record: Record) -> None:
    if (text := as_text(record.object().get("pytorch_version"))) is not None:
        process.facts.setdefault("torch", text[:_MOST_TEXT])


def _entry(_: _Reader, process: _Process, record: Record) -> None:
    call = as_id(record.object().get("call"))
    process.call = call if call is not None and call < 1 << 40 else process.call


def _exit(_: _Reader, process: _Process, record: Record) -> None:
    process.facts["finished"] = True


def _problem(_: _Reader, process: _Process, record: Record) -> None:
    facts = record.object()
    if facts.get("kind") == "uncaught" and process.facts.get("error") is None:
        process.facts["error"] = (as_text(facts.get("text")) or "an exception").strip().rpartition("\n")[2][:_MOST_TEXT]


_Handler = Callable[[_Reader, _Process, Record], None]
_KINDS: dict[bytes, _Handler] = {
    b"str": _string,
    b"dynamo_start": _start,
    b"dynamo_cpp_guards_str": _guards,
    b"dynamo_output_graph": _graph,
    b"compilation_metrics": _metrics,
    b"aot_forward_graph": _later_graph,
    b"aot_backward_graph": _later_graph,
    b"aot_inference_graph": _later_graph,
}
_ARTIFACTS: dict[bytes, _Handler] = {
    b"dynamo_graph_break_reason": _break,
    b"recompile_reasons": _recompile,
    b"inductor_collective_schedule": _schedule,
    b"torch_version": _version,
    b"dynadiag_environment": _environment,
    b"dynadiag_config": _config,
    b"dynadiag_entry": _entry,
    b"dynadiag_exit": _exit,
    b"dynadiag_problem": _problem,
}
