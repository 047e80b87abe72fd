"""`raw.jsonl`, which tlparse writes: a log of torch's trace as JSON lines, with the payloads in files beside it, becomes the log again.

Seen in tlparse 0.4: the first line is the table of strings; the other ones are the headers of records with time, thread and source line as
further keys, and `payload_filename` ("-_0_0_0/dynamo_output_graph_3.txt"). Payloads that tlparse made HTML of are not what torch wrote,
and events of compile phases are left out. A name from the file is only looked up among the files that lie there.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from dynadiag.trace.values import BadRecordError, as_dict, as_int, as_text, decode, parse_json

_LONGEST_LINE = 64 << 20
_LARGEST_PAYLOAD = 48 << 20
_MOST_FILES = 200_000
_SNIFFED = 4096
_CONTEXT = ("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
_OTHERS = frozenset((*_CONTEXT, "has_payload", "lineno", "pathname", "thread", "timestamp", "payload_filename", "process", "stack"))
_TIME = re.compile(r"^\d{4}-(\d\d)-(\d\d)T(\d\d:\d\d:\d\d(?:\.\d{1,9})?)")
_MOST_KINDS = 8


def is_tlparse_log(data: bytes) -> bool:
    """Whether a file that begins so is one."""
    start = data[:_SNIFFED]
    return start.startswith(b'{"string_table":[') or (start.startswith(b"{") and b'"pathname":"' in start and b'"thread":' in start)


class TlparseLog(io.RawIOBase):
    """The log of torch that a `raw.jsonl` was made of, as far as its payloads are there; `missing` counts the other ones by kind."""

    def __init__(self, raw: io.FileIO, path: str) -> None:
        self._file = io.BufferedReader(raw)
        self._folder = Path(path).parent
        self._files: dict[str, str] | None = None
        self.missing: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._file.seek(0)
        self._lines = self._converted(self._file)
        self._ready = b""
        self.missing.clear()

    def read(self, size: int = -1, /) -> bytes:
        """About so many bytes of the log: whole lines, none at the end."""
        parts, length = [self._ready], len(self._ready)
        while (size < 0 or length < size) and (part := next(self._lines, None)) is not None:
            parts.append(part)
            length += len(part)
        data = b"".join(parts)
        data, self._ready = (data, b"") if size < 0 else (data[:size], data[size:])
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Only to its front."""
        if offset or whence:
            raise io.UnsupportedOperation("only from the front")
        self._begin()
        return 0

    def notes(self) -> Iterator[str]:
        """What of torch's log is not there."""
        yield "tlparse leaves the events of compile phases out of raw.jsonl: there is no compile time by phase"
        if self.missing:
            kinds = ", ".join(f"{name} {count}" for name, count in self.missing.most_common(_MOST_KINDS))
            why = "they are not beside it as torch wrote them (copy tlparse's whole folder, or read raw.log in it)"
            yield f"{self.missing.total()} records of raw.jsonl are left out, since their payloads are missing: {kinds}; {why}"

    def _converted(self, lines: io.BufferedReader[io.FileIO]) -> Iterator[bytes]:
        strings: list[Any] = []
        while line := lines.readline(_LONGEST_LINE):
            try:
                values = as_dict(parse_json(decode(line), "not JSON"))
            except BadRecordError:
                yield line if line.endswith(b"\n") else line + b"\n"
                continue
            if isinstance(table := values.get("string_table"), list):
                strings = table
                continue
            kind = next((key for key in values if key not in _OTHERS), None)
            if kind is None:
                continue
            yield from (_record(values, {"str": [text, number]}) for number, text in enumerate(strings))  # of the first thread
            strings = []
            header = {kind: _named_first(values[kind])} | {key: values[key] for key in _CONTEXT if key in values}
            yield from self._with_payload(values, header, kind)

    def _with_payload(self, values: Mapping[str, Any], header: dict[str, Any], kind: str) -> Iterator[bytes]:
        name, checksum = as_text(values.get("payload_filename")), as_text(values.get("has_payload"))
        if name is None and checksum is None:
            yield _record(values, header)
            return
        payload = self._payload(name, checksum)
        if payload is None:
            artifact = as_text(as_dict(values[kind]).get("name")) if kind == "artifact" else None
            self.missing[(artifact or kind)[:100]] += 1
            return
        same = hashlib.md5(payload, usedforsecurity=False).hexdigest() == checksum
        yield _record(values, header | ({"has_payload": checksum} if same else {}))
        yield b"\t" + payload.replace(b"\n", b"\n\t") + b"\n"

    def _payload(self, name: str | None, checksum: str | None) -> bytes | None:
        """What torch wrote, or the same JSON laid out anew; None where it is not there."""
        if self._files is None:
            self._files = dict(islice(_files_below(self._folder), _MOST_FILES))
        path = self._files.get(name or "")
        if path is None:
            return None
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - one of the files that were listed
                payload = file.read(_LARGEST_PAYLOAD + 1)
        except OSError:
            return None
        if len(payload) > _LARGEST_PAYLOAD:
            return None
        same = checksum is None or hashlib.md5(payload, usedforsecurity=False).hexdigest() == checksum
        return payload if same or path.endswith(".json") else None


def _files_below(folder: Path) -> Iterator[tuple[str, str]]:
    """The regular files in a folder and in the folders in it, by the names that tlparse gives them."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.path
                elif entry.is_dir(follow_symlinks=False):
                    with os.scandir(entry.path) as inner:
                        yield from (
                            (f"{entry.name}/{dir_entry.name}", dir_entry.path)
                            for dir_entry in inner
                            if dir_entry.is_file(follow_symlinks=False)
                        )
    except OSError:
        return


def _named_first(value: object) -> object:
    """Torch writes the name of an artifact first."""
    return {"name": value["name"], **value} if isinstance(value, dict) and "name" in value else value


def _record(values: Mapping[str, Any], header: dict[str, Any]) -> bytes:
    """A line as torch writes it."""
    time = _TIME.match(as_text(values.get("timestamp")) or "")
    stamp = f"{time[1]}{time[2]} {time[3]}" if time is not None else "0101 00:00:00.000000"
    place = f"{(as_text(values.get('pathname')) or 'torch').strip()}:{as_int(values.get('lineno')) or 0}"
    place = re.sub(r"[\]\s]", "_", place)[:300]
    return f"V{stamp} {max(0, as_int(values.get('thread')) or 0)} {place}] {json.dumps(header)}\n".encode("utf-8", "replace")
