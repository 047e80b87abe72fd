"""Cuts a log into records: the header line of torch's trace format and where its tab-indented payload lies.

The format is `torch._logging._internal.TorchLogsFormatter` with trace=True (torch 2.11 and 2.15):
`V<MMDD> <time> <pid> <file>:<line>] <JSON>`, then each payload line behind a tab.
Lines that are no such header are handed on as plain text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from dynadiag.digests.texts import untab
from dynadiag.trace.metrics import trimmed
from dynadiag.trace.values import BadRecordError, as_dict, decode, parse_json

BLOCK_BYTES = 4 << 20
LARGEST_RECORD_BYTES = 48 << 20

# One match a record header: pid, kind and artifact name, then the rest of the line; or one for all lines up to the next payload or header.
_STAMP = rb"[VIWEC]\d{4} \d\d:\d\d:\d\d(?:[.,]\d{1,20})? "
_HEADER = _STAMP + rb'(\d{1,40}+) ?[^\n\]]*\] (?=\{\s*"(\w[^"\\\n]*)"\s*:\s*(?:\{\s*"name"\s*:\s*"([^"\\\n]*)")?)'
_NO_HEADER = rb"(?!" + _STAMP + rb'\d{1,40}+ ?[^\n\]]*\] \{\s*"\w[^"\\\n]*"\s*:)'
_LINE = re.compile(rb"\n(?=[^\t])(?:" + _HEADER + rb"([^\n]*)|[^\n]*(?:\n+(?=\n)|\n(?![\t\n])" + _NO_HEADER + rb"[^\n]+)*+)")


_ANY_RECORD = re.compile(rb"(?:\A|\n)" + _HEADER)


def holds_record(data: bytes) -> bool:
    """Whether a log has a record of torch's trace, so that it is no plain text."""
    return b'] {"' in data and any(found[2] is not None for found in _ANY_RECORD.finditer(data))


class Stream(Protocol):
    """What is needed of a log that is read once from the front."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes, none at the end."""
        ...


class Piece:
    """A record header with the payload behind it up to `end`, or lines that are neither.

    `kept` is False when it was too long to keep, `last` True for the end of the log, where a record may be half written.
    """

    __slots__ = ("base", "end", "kept", "last", "match")

    def __init__(self, match: re.Match[bytes], base: int, end: int, *, kept: bool = True, last: bool = False) -> None:
        self.match = match
        self.base = base
        self.end = end
        self.kept = kept
        self.last = last

    @property
    def line(self) -> bytes:
        """The header line, or the lines that are none, without their end."""
        return self.match.string[self.match.start() + 1 : min(self.match.end(), self.end)]

    @property
    def offset(self) -> int:
        """Where the line begins in the log, in bytes."""
        return self.base + self.match.start() + 1

    @property
    def payload_start(self) -> int:
        """Where the payload begins in the buffer that was read."""
        return min(self.match.end() + 1, self.end)

    def payload(self) -> bytes:
        """The payload as it lies in the log, every line behind a tab."""
        return self.match.string[self.payload_start : self.end]


class Record:
    """One record of the trace: its header as JSON and its payload on demand."""

    __slots__ = ("_header", "_piece", "index", "kind", "mismatch")

    def __init__(self, piece: Piece, kind: str, index: int) -> None:
        self._piece = piece
        self._header: dict[str, Any] | None = None
        self.kind = kind
        self.index = index
        self.mismatch = False

    @property
    def header(self) -> dict[str, Any]:
        """The header; BadRecordError when it is no JSON object."""
        if self._header is None:
            line = self._piece.match[4]
            header = parse_json(decode(trimmed(line) if self.kind.endswith("compilation_metrics") else line), "header is not JSON")
            if not isinstance(header, dict):
                raise BadRecordError("header is not a JSON object")
            self._header = header
        return self._header

    @property
    def value(self) -> Any:
        """What the header holds under the record's kind."""
        return self.header.get(self.kind)

    @property
    def line(self) -> bytes:
        """The header line as it lies in the log."""
        return self._piece.line

    @property
    def rest(self) -> bytes:
        """The header as it lies in the log, from its brace on."""
        return self._piece.match[4]

    @property
    def payload_offset(self) -> int:
        """Where the payload begins in the log, in bytes."""
        return self._piece.base + self._piece.payload_start

    @property
    def payload_length(self) -> int:
        """Length of the payload in the log with its tabs, in bytes."""
        return self._piece.end - self._piece.payload_start

    @property
    def has_checksum(self) -> bool:
        """Whether the header tells the MD5 of the payload."""
        return isinstance(self.header.get("has_payload"), str)

    def raw_payload(self) -> bytes:
        """The payload as it lies in the log, every line behind a tab; the line ends of Windows are made plain."""
        if not self._piece.kept:
            raise BadRecordError("payload is too long")
        payload = self._piece.payload()
        return payload.replace(b"\r\n", b"\n").removesuffix(b"\r") if self._piece.match[4].endswith(b"\r") else payload

    def payload(self) -> bytes:
        """The payload without its tabs; `mismatch` tells whether it differs from what torch wrote (`has_payload`, an MD5)."""
        payload = untab(self.raw_payload())
        wanted = self.header.get("has_payload")
        if isinstance(wanted, str):
            self.mismatch = hashlib.md5(payload, usedforsecurity=False).hexdigest() != wanted
        return payload

    def text(self) -> str:
        """The payload without its tabs."""
        return decode(self.payload())

    def json(self) -> Any:
        """The payload as JSON."""
        return parse_json(self.text(), "payload is not JSON")

    def object(self) -> dict[str, Any]:
        """The payload as a JSON object."""
        return dict(as_dict(self.json()))


class _Scanner:
    """Reads block by block; what stays is the unfinished record at the end of a block."""

    def __init__(self, stream: Stream, on_read: Callable[[int], None]) -> None:
        self.stream = stream
        self.on_read = on_read
        self.buffer = b"\n"
        self.base = -1  # file offset of buffer[0]; the first byte is ours, so that every line begins behind a newline

    def _grow(self) -> bool:
        chunk = self.stream.read(BLOCK_BYTES)
        if chunk:
            self.on_read(len(chunk))
            self.buffer += chunk
        return bool(chunk)

    def _drop_before(self, position: int) -> None:
        self.buffer = self.buffer[position:]
        self.base += position

    def pieces(self) -> Iterator[Piece]:
        """Every record with its payload, and the lines between records, in the order of the file."""
        more = self._grow()
        while True:
            last: re.Match[bytes] | None = None
            for match in _LINE.finditer(self.buffer):
                if last is not None:
                    yield Piece(last, self.base, match.start())
                last = match
            if not more:
                if last is not None:
                    yield Piece(last, self.base, len(self.buffer) - self.buffer.endswith(b"\n"), last=True)
                return
            base, keep = self.base, max(0, len(self.buffer) - 1) if last is None else last.start()
            if last is not None and last[2] is None and (begun := self.buffer.rfind(b"\n")) > keep:
                yield Piece(last, base, begun)  # the last of these lines may go on, or be the beginning of a header
                last, keep = None, begun
            self._drop_before(keep)
            if last is not None and len(self.buffer) > LARGEST_RECORD_BYTES:
                yield self._huge(last, base)
            more = self._grow()

    def _huge(self, line: re.Match[bytes], base: int) -> Piece:
        """The record at the front of the buffer, read to its end without keeping its payload; `base` is where the match's buffer began."""
        while True:
            match = _LINE.search(self.buffer, 1)
            self._drop_before(match.start() if match else len(self.buffer) - 1)
            if match or not self._grow():
                return Piece(line, base, self.base - base, kept=False)


def scan(stream: Stream, on_read: Callable[[int], None]) -> Iterator[Piece]:
    """Every record with its payload, and the lines between records, in the order of the file; `on_read` is told the bytes read."""
    return _Scanner(stream, on_read).pieces()
