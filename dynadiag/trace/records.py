"""Cuts a log into records: the header line of torch's trace format and where its tab-indented payload lies.

The format is `torch._logging._internal.TorchLogsFormatter` with trace=True (torch 2.11 and 2.15):
`V<MMDD> <time> <pid> <file>:<line>] <JSON>`, then each payload line behind a tab.
Lines that are no such header are handed on as plain text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from dynadiag.trace.values import BadRecordError, as_dict, decode, parse_json

BLOCK_BYTES = 4 << 20
LARGEST_RECORD_BYTES = 48 << 20

_LINE = re.compile(rb"\n(?=[^\t])([^\n]*)")
_HEADER = re.compile(
    rb"[VIWEC]\d{4} \d\d:\d\d:\d\d(?:[.,]\d+)? (\d+) ?[^\n]*?\] "
    rb'(?=\{\s*"(\w[^"\\]*)"\s*:\s*(?:\{\s*"name"\s*:\s*"([^"\\]*)")?)'
)


class Stream(Protocol):
    """What is needed of a log that is read once from the front."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes, none at the end."""
        ...


@dataclass(slots=True)
class Piece:
    """One line that is no payload, with the payload behind it; `payload` is None when it was too long to keep."""

    line: bytes
    offset: int
    payload: bytes | memoryview | None
    payload_offset: int
    payload_length: int


class Header:
    """A line that is a record header; `kind` is its first key, `name` the artifact's name."""

    __slots__ = ("kind", "name", "number", "start")

    def __init__(self, match: re.Match[bytes]) -> None:
        self.number = match.group(1)
        self.kind = match.group(2)
        self.name = match.group(3)
        self.start = match.end()


def match_header(line: bytes) -> Header | None:
    """The header in this line, or None for a line of plain text."""
    match = _HEADER.match(line)
    return Header(match) if match else None


class Record:
    """One record of the trace: its header as JSON and its payload on demand."""

    __slots__ = ("_header", "_piece", "_start", "index", "kind", "mismatch")

    def __init__(self, piece: Piece, start: int, kind: str, index: int) -> None:
        self._piece = piece
        self._start = start
        self._header: dict[str, Any] | None = None
        self.kind = kind
        self.index = index
        self.mismatch = False

    @property
    def header(self) -> dict[str, Any]:
        """The header; BadRecordError when it is no JSON object."""
        if self._header is None:
            header = parse_json(decode(self._piece.line[self._start :]), "header is not JSON")
            if not isinstance(header, dict):
                raise BadRecordError("header is not a JSON object")
            self._header = header
        return self._header

    @property
    def value(self) -> Any:
        """What the header holds under the record's kind."""
        return self.header.get(self.kind)

    @property
    def context(self) -> bytes:
        """The header's bytes before the payload's checksum: kind and compile context, the same for many records of one compilation."""
        return self._piece.line[self._start :].partition(b'"has_payload"')[0]

    @property
    def line(self) -> bytes:
        """The header line as it lies in the log."""
        return self._piece.line

    @property
    def payload_offset(self) -> int:
        """Where the payload begins in the log, in bytes."""
        return self._piece.payload_offset

    @property
    def payload_length(self) -> int:
        """Length of the payload in the log with its tabs, in bytes."""
        return self._piece.payload_length

    def raw_payload(self) -> bytes:
        """The payload as it lies in the log, every line behind a tab; the line ends of Windows are made plain."""
        if self._piece.payload is None:
            raise BadRecordError("payload is too long")
        payload = bytes(self._piece.payload)
        return payload.replace(b"\r\n", b"\n").removesuffix(b"\r") if self._piece.line.endswith(b"\r") else payload

    def checked_payload(self) -> bytes:
        """The payload as it lies in the log; `mismatch` tells whether it differs from what torch wrote (`has_payload`, an MD5)."""
        payload = self.raw_payload()
        wanted = self.header.get("has_payload")
        if isinstance(wanted, str):
            self.mismatch = hashlib.md5(untab(payload), usedforsecurity=False).hexdigest() != wanted
        return payload

    def text(self) -> str:
        """The payload without its tabs."""
        return decode(untab(self.checked_payload()))

    def json(self) -> Any:
        """The payload as JSON."""
        return parse_json(self.text(), "payload is not JSON")

    def object(self) -> dict[str, Any]:
        """The payload as a JSON object."""
        return dict(as_dict(self.json()))


def untab(payload: bytes) -> bytes:
    """A payload as torch was given it: the tab in front of every line taken away."""
    return payload[1:].replace(b"\n\t", b"\n") if payload.startswith(b"\t") else payload


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

    def _piece(self, match: re.Match[bytes], end: int) -> Piece:
        start = min(match.end() + 1, end)
        if end > start and self.buffer[end - 1 : end] == b"\n" and end == len(self.buffer):
            end -= 1
        payload = memoryview(self.buffer)[start:end]
        return Piece(match.group(1), self.base + match.start() + 1, payload, self.base + start, end - start)

    def _drop_before(self, position: int) -> None:
        self.buffer = self.buffer[position:]
        self.base += position

    def pieces(self) -> Iterator[Piece]:
        """Every line that is no payload, with its payload, in the order of the file."""
        more = self._grow()
        while True:
            last: re.Match[bytes] | None = None
            for match in _LINE.finditer(self.buffer):
                if last is not None:
                    yield self._piece(last, match.start())
                last = match
            if not more:
                if last is not None:
                    yield self._piece(last, len(self.buffer))
                return
            self._drop_before(last.start() if last is not None else max(0, len(self.buffer) - 1))
            if len(self.buffer) > LARGEST_RECORD_BYTES:
                yield self._huge()
            more = self._grow()

    def _huge(self) -> Piece:
        """The record at the front of the buffer, read to its end without keeping it; a header line that is too long comes back empty."""
        newline = self.buffer.find(b"\n", 1)
        line = self.buffer[1:newline] if newline > 0 else b""
        offset = self.base + 1
        start = self.base + (newline if newline > 0 else 0) + 1
        while True:
            match = _LINE.search(self.buffer, 1)
            self._drop_before(match.start() if match else len(self.buffer) - 1)
            if match or not self._grow():
                return Piece(line, offset, None, start, max(0, self.base - start))


def scan(stream: Stream, on_read: Callable[[int], None]) -> Iterator[Piece]:
    """Every line that is no payload, with its payload, in the order of the file; `on_read` is told the bytes read."""
    return _Scanner(stream, on_read).pieces()
