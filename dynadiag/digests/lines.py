"""The digest of a process as a file of JSON lines beside its log: a function of the records alone, whoever makes it.

Its first line names format, log and time. Then come, in the order of the records, `{"facts": {...}}` with facts that are new or
changed, the events of a record as `[time, offset, length, call, records, check, [kind, mark, what, file, line, values], ...]`
(`dynadiag.digests.process.Event`), and `{"at": [bytes, records, time]}` where a stretch of the log has none. The last two tell how much of
the log the lines so far stand for. All events of a record are one line, so that a process that is killed leaves all of them or none.
"""

from __future__ import annotations

import json
import re
from typing import Any

from dynadiag.digests.process import MOST_EVENTS, Entry, Event, ProcessDigest, rank_in
from dynadiag.digests.texts import stamp_of

FORMAT = 2
SUFFIX = ".digest"
RANK_NAME = re.compile(r"_rank_(\d{1,6})[_.]")
_HEAD = re.compile(  # the head of a record, as `dynadiag.trace.records` finds it in a whole log
    rb"[VIWEC]\d{4} \d\d:\d\d:\d\d(?:[.,]\d{1,20})? (\d{1,40}) ?[^\n\]]*\] "
    rb'(?=\{\s*"(\w[^"\\\n]*)"\s*:\s*(?:\{\s*"name"\s*:\s*"([^"\\\n]*)")?)'
)
_STAMP_BYTES = 31
_FAR_BYTES = 64 << 10
_LARGEST_PID = 1 << 22


def digest_name(log: str) -> str:
    """The name of the digest of a log."""
    return (log[:-4] if log.endswith(".log") else log) + SUFFIX


class DigestLines:
    """The lines for one record after the other; `log` is the name of the log, without its folder."""

    def __init__(self, log: str) -> None:
        self._log = log
        self._pid = b""
        self._end = 0
        self._told = 0
        self._events: list[Event] = []
        self._number = 0
        self._facts: dict[str, Any] = {}
        self._process = ProcessDigest(self._events.append, {})

    def take(self, data: bytes, offset: int) -> bytes | None:
        """The lines for the record with its line end that lies at an offset of the log; None when the digest ends before it.

        It does when the record is not the next one, so that one is missing, when it is of another process, and beyond `MOST_EVENTS`.
        """
        if offset != self._end or self._number > MOST_EVENTS:
            return None
        self._end += len(data)
        head = _HEAD.match(data)
        if head is None:
            return b""
        if self._pid not in (b"", head[1]):
            return None
        line = data.index(b"\n")
        place = min(line + 1, len(data) - 1)
        length = len(data) - 1 - place
        entry = Entry(head[2], head[3], data[head.end() : line], data[:_STAMP_BYTES], offset + place, length, lambda: data[place:-1])
        lines = [] if self._pid else [self._first(head[1], entry)]
        self._process.take(entry)
        return self._written(lines, entry)

    def _first(self, number: bytes, entry: Entry) -> str:
        self._pid = number
        self._process.facts.update(first_facts(number, self._log, entry.rest))
        return _json({"dynadiag_digest": FORMAT, "log": self._log, "began": stamp_of(entry.stamp)})

    def _written(self, lines: list[str], entry: Entry) -> bytes:
        facts, records = self._process.facts, self._process.records
        changed = {name: value for name, value in facts.items() if name not in self._facts or self._facts[name] != value}
        if changed:
            lines.append(_json({"facts": changed}))
            self._facts = dict(facts)
        if self._events:
            first = self._events[0]
            place = (first.time, first.offset, first.length, first.call, first.records, first.check)
            lines.append(_json([*place, *(event[:6] for event in self._events)]))
        self._number += len(self._events)
        if not self._events and (self._end - self._told >= _FAR_BYTES or entry.name == b"dynadiag_exit"):
            lines.append(_json({"at": [self._end, records, stamp_of(entry.stamp)]}))
        if self._events or (lines and lines[-1].startswith('{"at"')):
            self._told = self._end
        self._events.clear()
        return "".join(lines).encode("ascii")


def first_facts(number: bytes, log: str, rest: bytes) -> dict[str, Any]:
    """What the first record of a process says of it: its pid, and its rank by the name of the log or by the record's header."""
    pid = int(number) if len(number) < 19 else 0
    name = RANK_NAME.search(log)
    return {"pid": pid if 0 < pid < _LARGEST_PID else None, "rank": int(name[1]) if name else rank_in(rest)}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"
