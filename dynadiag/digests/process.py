"""The records of one process to the events that ranks are compared by, one record at a time."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dynadiag.digests import texts

MOST_EVENTS = 20_000
_MOST_STRINGS = 100_000
MOST_GROUPS = 64
_MOST_TEXT = 300
_LARGEST_JSON_BYTES = 1 << 20
_LARGEST_PAYLOAD_BYTES = 32 << 20
_LARGEST_ID = 1 << 63
_ADDED_LATER = b"dynadiag_probe"  # written when the process has ended, so that it tells nothing about when
_CONTEXT_BYTES = 512  # ids and rank come last in a header, which can have many kilobytes
_RANK = re.compile(rb'"rank": (\d{1,6})\b')
_FRAME_ID = re.compile(rb'"frame_id": (\d{1,18})\b')
_FAILED = re.compile(rb'"fail_type": "([\w.]{1,100})"')
_TORCH = re.compile(rb'"pytorch_version": "([^"\\]{1,100})"')
_REASON_PREFIX = re.compile(r"^\s*\d+/\d+: ")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_Frame = tuple[str, "str | None", "int | None"]


class Event(NamedTuple):
    """One thing that happened while compiling (`dynadiag.model.digest.DigestEvent`), with where its payload lies in the log.

    `time` is in seconds since the beginning of the year, `offset` and `length` in bytes; `call` is the number of the call that it happened
    in (0: not known), `records` how many records the log has up to here, and `check` the CRC-32 of the payload.
    """

    kind: str
    mark: str
    what: str
    file: str | None
    line: int | None
    values: tuple[str, ...]
    time: float
    offset: int
    length: int
    call: int
    records: int
    check: int


class Entry:
    """One record as it lies in a log: kind and name of its header, the header from its brace on, and its payload when asked for."""

    __slots__ = ("kind", "length", "name", "offset", "payload", "rest", "stamp")

    def __init__(
        self, kind: bytes, name: bytes | None, rest: bytes, stamp: bytes, offset: int, length: int, payload: Callable[[], bytes]
    ) -> None:
        self.kind = kind
        self.name = name
        self.rest = rest
        self.stamp = stamp
        self.offset = offset
        self.length = length
        self.payload = payload


class ProcessDigest:
    """Takes the records of a process in order; what they say of it is in `facts`, and `emit` is called with each event.

    A record that cannot be used is passed over: it is counted and named where the log is read in full.
    """

    def __init__(self, emit: Callable[[Event], None], facts: dict[str, Any], *, strings: Mapping[int, str] | None = None) -> None:
        self.facts = facts
        self.strings = dict(strings or {})
        self.records = 0
        self.began = b""
        self.ended = b""
        self._emit = emit
        self._groups: dict[bytes, bytes] = {}  # what each process group is called here
        self._call = 0
        self._frame: _Frame = ("an unnamed frame", None, None)
        self._frames: dict[int | None, _Frame] = {}

    def take(self, entry: Entry, *, whole: bool = True) -> None:
        """One more record; one that is not `whole` (the last of a log, cut off) is only counted."""
        self.records += 1
        if entry.name != _ADDED_LATER:
            self.ended = entry.stamp
        self.began = self.began or entry.stamp
        handler = _ARTIFACTS.get(entry.name) if entry.kind == b"artifact" and entry.name is not None else _KINDS.get(entry.kind)
        if not whole or handler is None or len(entry.rest) > _LARGEST_JSON_BYTES or entry.length > _LARGEST_PAYLOAD_BYTES:
            return
        try:
            handler(self, entry)
        except (ValueError, RecursionError):  # JSON that is none, or a payload that was too long to keep
            return

    def add(self, entry: Entry, kind: str, what: str, *parts: str | bytes, values: tuple[str, ...] = ()) -> None:
        """One event of the frame that the record belongs to."""
        numbers = _FRAME_ID.findall(entry.rest[-_CONTEXT_BYTES:])
        frame = self._frames.get(int(numbers[-1]) if numbers else None, self._frame)
        said = f"{frame[0]}: {what}"[:_MOST_TEXT] if what else frame[0][:_MOST_TEXT]
        self._emit_at(entry, kind, said, frame, *parts, values=values)

    def _emit_at(self, entry: Entry, kind: str, said: str, frame: _Frame, *parts: str | bytes, values: tuple[str, ...] = ()) -> None:
        name, file, line = frame
        place = () if kind.startswith("collective") else (name, texts.short_path(file), str(line))  # in whichever frame
        mark = texts.mark_of(kind, *parts, *place)
        check = zlib.crc32(entry.payload()) if entry.length else 0
        time = texts.stamp_of(entry.stamp) or 0.0
        self._emit(Event(kind, mark, said, file, line, values, time, entry.offset, entry.length, self._call, self.records, check))
        if self.facts.get("rank") is None:
            self.facts["rank"] = rank_in(entry.rest)

    # -- what the records say

    def _string(self, entry: Entry) -> None:
        pair = _list(_header(entry).get("str"))
        if len(pair) == 2 and isinstance(pair[0], str) and _id(pair[1]) is not None and len(self.strings) < _MOST_STRINGS:
            self.strings[pair[1]] = pair[0][:_MOST_TEXT]

    def _start(self, entry: Entry) -> None:
        stack = _list(_dict(_header(entry).get("dynamo_start")).get("stack"))
        code = _dict(stack[-1]) if stack else {}
        number = _id(code.get("filename"))
        file = self.strings.get(-1 if number is None else number)
        self._frame = ((_text(code.get("name")) or "an unnamed frame")[:_MOST_TEXT], file, _id(code.get("line")))
        if len(self._frames) < MOST_EVENTS:
            numbers = _FRAME_ID.findall(entry.rest[-_CONTEXT_BYTES:])
            self._frames[int(numbers[-1]) if numbers else None] = self._frame
        self.add(entry, "frame", "")

    def _break(self, entry: Entry) -> None:
        kind, at = texts.break_mark(_payload_text(entry))
        self.add(entry, "break", f"graph break {kind}{at}", kind, at)

    def _recompile(self, entry: Entry) -> None:
        text = _payload_text(entry)
        if text.startswith("["):
            text = next((name for name in map(_text, _list(_json(entry))) if name is not None), "")
        reason = _REASON_PREFIX.sub("", text.partition("\n")[0]).partition("  #")[0].strip()
        plain = texts.without_ids(reason.encode("utf-8", "replace"))
        self.add(entry, "recompile", f"recompiled: {plain.decode('utf-8', 'replace')}", plain)

    def _guards(self, entry: Entry) -> None:
        number, values, parts = texts.guards_mark(entry.payload())
        self.add(entry, "guards", f"{number} guards", *parts, values=values)

    def _graph(self, entry: Entry) -> None:
        text = texts.untab(entry.payload())
        bare = texts.bare_graph(text, self._group)
        self.add(entry, "graph", f"graph of {bare.count(b' = ')} operations", bare)
        self._collectives(entry, text)

    def _later_graph(self, entry: Entry) -> None:
        raw = entry.payload()
        if texts.has_collectives(raw):
            self._collectives(entry, texts.untab(raw))

    def _collectives(self, entry: Entry, text: bytes) -> None:
        if texts.has_collectives(text):
            kind, where = _LAYERS[entry.kind]
            for name, said in texts.collectives_in(text, self._group):
                self.add(entry, kind, f"{name} {said} in {where}", name, said)

    def _group(self, name: bytes) -> bytes:
        """A process group by when it was first used: its name (in the fact `groups`) differs between ranks of different groups."""
        if name not in self._groups and len(self._groups) < MOST_GROUPS:
            self._groups[name] = b"'group %d'" % len(self._groups)
            self.facts["groups"] = (*self.facts.get("groups", ()), name.decode("ascii", "replace"))
        return self._groups.get(name, b"'group'")

    def _schedule(self, entry: Entry) -> None:
        """`inductor_collective_schedule` (torch 2.9 and newer): the collectives in the order in which inductor runs them."""
        for item in _list(_json(entry)):
            if (text := _text(item)) is not None:
                self.add(entry, "collective_schedule", f"{text} in inductor's schedule", text)

    def _metrics(self, entry: Entry) -> None:
        if self.facts.get("torch") is None and (version := _TORCH.search(entry.rest)):
            self.facts["torch"] = version[1].decode("utf-8", "replace")
        failed = _FAILED.search(entry.rest)
        if failed is not None:
            self.add(entry, "failure", f"compilation failed with {failed[1].decode('utf-8', 'replace')}", failed[1])

    def _environment(self, entry: Entry) -> None:
        facts = _dict(_json(entry))
        for name, value in (("parent_pid", _id(facts.get("ppid"))), ("rank", _id(facts.get("rank")))):
            if value is not None and (name != "rank" or self.facts.get("rank") is None):
                self.facts[name] = value
        for name in ("torch", "python", "started_at", "device"):
            if (text := _text(facts.get(name))) is not None:
                self.facts[name] = text[:_MOST_TEXT]
        size = _text(_dict(facts.get("env")).get("WORLD_SIZE")) or ""
        if size.isascii() and size.isdigit() and len(size) < 7:
            self.facts["world_size"] = int(size)

    def _config(self, entry: Entry) -> None:
        facts = _dict(_json(entry))
        if (device := _text(facts.get("device"))) is not None:
            self.facts.setdefault("device", device[:_MOST_TEXT])
        areas = {area: _dict(facts.get(area)) for area in ("dynamo", "functorch", "inductor")}
        settings = (f"{area}.{name}={value!r}" for area in areas for name, value in sorted(areas[area].items()))
        self.facts["options"] = texts.mark_of(*settings)

    def _version(self, entry: Entry) -> None:
        if (text := _text(_dict(_json(entry)).get("pytorch_version"))) is not None:
            self.facts.setdefault("torch", text[:_MOST_TEXT])

    def _function(self, entry: Entry) -> None:
        """The source of a function of the program's: what another checkout has other."""
        facts = _dict(_json(entry))
        file, name, text, line = _text(facts.get("file")), _text(facts.get("name")), _text(facts.get("text")), _id(facts.get("line"))
        if file is not None and name is not None and text is not None:
            self._emit_at(entry, "source", f"{name[:_MOST_TEXT]}: its source", (name[:_MOST_TEXT], file[:_MOST_TEXT], line), text)

    def _entry(self, entry: Entry) -> None:
        call = _id(_dict(_json(entry)).get("call"))
        self._call = call if call is not None and call < 1 << 40 else self._call

    def _exit(self, _: Entry) -> None:
        self.facts["finished"] = True

    def _problem(self, entry: Entry) -> None:
        facts = _dict(_json(entry))
        if facts.get("kind") == "uncaught" and self.facts.get("error") is None:
            self.facts["error"] = (_text(facts.get("text")) or "an exception").strip().rpartition("\n")[2][:_MOST_TEXT]


def rank_in(rest: bytes) -> int | None:
    """The rank that a header names."""
    found = _RANK.search(rest[-_CONTEXT_BYTES:])
    return int(found[1]) if found else None


def _header(entry: Entry) -> Mapping[str, Any]:
    return _dict(json.loads(entry.rest.decode("utf-8", "replace")))


def _payload_text(entry: Entry) -> str:
    return texts.untab(entry.payload()).decode("utf-8", "replace")


def _json(entry: Entry) -> Any:
    if entry.length > _LARGEST_JSON_BYTES:
        raise ValueError
    return json.loads(_payload_text(entry))


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return _clean(value) if isinstance(value, str) else None


def _clean(text: str) -> str:
    """Half of a surrogate pair could not be written as UTF-8 later."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def _id(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _LARGEST_ID else None


# Collectives are compared layer by layer: each has all of them, or those that the layers above it hide (DTensors').
_LAYERS = {
    b"dynamo_output_graph": ("collective", "Dynamo's graph"),
    b"aot_forward_graph": ("collective_forward", "AOTAutograd's forward graph"),
    b"aot_inference_graph": ("collective_forward", "AOTAutograd's forward graph"),
    b"aot_backward_graph": ("collective_backward", "AOTAutograd's backward graph"),
}
_Handler = Callable[[ProcessDigest, Entry], None]
_KINDS: dict[bytes, _Handler] = {
    b"str": ProcessDigest._string,
    b"dynamo_start": ProcessDigest._start,
    b"dynamo_cpp_guards_str": ProcessDigest._guards,
    b"dynamo_output_graph": ProcessDigest._graph,
    b"compilation_metrics": ProcessDigest._metrics,
    b"aot_forward_graph": ProcessDigest._later_graph,
    b"aot_backward_graph": ProcessDigest._later_graph,
    b"aot_inference_graph": ProcessDigest._later_graph,
}
_ARTIFACTS: dict[bytes, _Handler] = {
    b"dynamo_graph_break_reason": ProcessDigest._break,
    b"recompile_reasons": ProcessDigest._recompile,
    b"inductor_collective_schedule": ProcessDigest._schedule,
    b"torch_version": ProcessDigest._version,
    b"dynadiag_environment": ProcessDigest._environment,
    b"dynadiag_config": ProcessDigest._config,
    b"dynadiag_call": ProcessDigest._entry,
    b"dynadiag_entry": ProcessDigest._entry,
    b"dynadiag_function": ProcessDigest._function,
    b"dynadiag_exit": ProcessDigest._exit,
    b"dynadiag_problem": ProcessDigest._problem,
}
