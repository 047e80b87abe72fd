"""The logs of a run written again without private details: records taken apart, redacted, and put together as torch writes them.

The report of a bundle is built from these logs, so its pages and pictures cannot show more than they do.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from dynadiag.digests.lines import RANK_NAME
from dynadiag.digests.texts import untab
from dynadiag.errors import UnreadableInputError
from dynadiag.files import new_file, read_small, write_inside
from dynadiag.share.involved import LEFT_OUT, Involved
from dynadiag.share.redaction import Redactor
from dynadiag.trace.records import Piece, scan
from dynadiag.trace.sources import MARKER, OpenLog, Sources, shown
from dynadiag.trace.values import BadRecordError, decode, parse_json

_BYTECODE = re.compile(r"_BYTECODE$")
_SOURCES = ("dynadiag_function", "dynadiag_library_function", "dynadiag_source")
_MARKER_BYTES = 4 << 20
_PRIVATE_FACTS = ("seal", "supervisor", "guardian", "format")


@dataclass
class LogWriter:
    """Writes the logs of a recording into another folder; `left_out` counts the records that stay behind, by what they are."""

    redactor: Redactor
    involved: Involved
    left_out: dict[str, int] = field(default_factory=dict)
    _offsets: dict[int, int] = field(default_factory=dict)

    def write(self, sources: Sources, folder: Path) -> list[str]:
        """The names of the new logs in the folder: a number each, never a name of the recording. Raises OSError, UnreadableInputError."""
        for log in sources.logs:
            for header, payload, _ in self._records(log):
                self.redactor.learn_value(header) if isinstance(header, dict) else self.redactor.learn(header)
                self._learn_payload(payload)
        names = []
        for number, log in enumerate(sources.logs):
            name = log_name(number, log)
            with new_file(folder, name) as stream:
                self._write_log(log, stream)
            names.append(name)
        return names

    def _learn_payload(self, payload: str) -> None:
        value = _json(payload)
        self.redactor.learn(payload) if value is None else self.redactor.learn_value(value)

    def _records(self, log: Path) -> Iterator[tuple[Any, str, Piece]]:
        """Header (JSON, or the text of lines that are no record), payload and where they lie."""
        try:
            with OpenLog(log) as stream:
                for piece in scan(stream, lambda _: None):
                    header = _header(piece)
                    if piece.kept:
                        yield header, decode(untab(piece.payload().replace(b"\r\n", b"\n"))) if isinstance(header, dict) else "", piece
                    else:
                        self._count("a record too long to be read")
        except OSError as error:
            raise UnreadableInputError(f"cannot read {shown(log)}: {error.strerror or error}") from None

    def _write_log(self, log: Path, stream: IO[bytes]) -> None:
        self._offsets.clear()
        self.involved.strings.clear()
        for header, payload, piece in self._records(log):
            if not isinstance(header, dict):
                text = self.redactor.text(self.involved.text(header), "log")
                stream.write(text.encode("utf-8", "backslashreplace") + b"\n")
                continue
            where = _where(header)
            if isinstance(header.get("str"), list) and len(header["str"]) == 2 and isinstance(header["str"][1], int):
                self.involved.strings[header["str"][1]] = str(header["str"][0])
            if _BYTECODE.search(where):
                self._count("bytecode")
                continue
            if where in _SOURCES and not self._has_kept_source(payload):
                self._count("source of another function")
                continue
            self._write_record(header, payload, piece, where, stream)

    def _write_record(self, header: dict[str, Any], payload: str, piece: Piece, where: str, stream: IO[bytes]) -> None:
        body = self._payload(payload, where)
        head = self.redactor.value(self.involved.value(header), where)
        if payload and isinstance(header.get("has_payload"), str):
            head["has_payload"] = hashlib.md5(body.encode("utf-8", "backslashreplace"), usedforsecurity=False).hexdigest()
        line = decode(piece.line)
        stamp = self.redactor.text(line[: line.index("] {") + 2] if "] {" in line else "", where)
        stream.write(f"{stamp}{json.dumps(head)}\n".encode("utf-8", "backslashreplace"))
        self._offsets[piece.base + piece.payload_start] = stream.tell()
        if payload:
            tabbed = body.replace("\n", "\n\t")
            stream.write(f"\t{tabbed}\n".encode("utf-8", "backslashreplace"))

    def _payload(self, payload: str, where: str) -> str:
        value = _json(payload)
        if value is None:
            return self.redactor.text(self.involved.text(payload), where)
        changed = self.redactor.value(self.involved.value(value), where)
        if where == "dynadiag_probe" and isinstance(changed, dict):  # says where in the log the text of its graph is
            changed["text_offset"] = self._offsets.get(changed.get("text_offset", -1), -1)
        return payload if changed == value else json.dumps(changed, indent=0 if payload.startswith(("{\n", "[\n")) else None)

    def _has_kept_source(self, payload: str) -> bool:
        facts = _json(payload)
        return isinstance(facts, dict) and self.involved.value(facts).get("text") != LEFT_OUT

    def _count(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1


def log_name(number: int, log: Path) -> str:
    """The name of a log in a bundle: what it is, its rank and a number, and nothing of its own name, which is any text."""
    if not log.name.startswith("dedicated_log_torch_trace"):
        return f"log_{number}.log"
    rank = RANK_NAME.search(log.name)
    return f"dedicated_log_torch_trace_{f'rank_{rank[1]}_' if rank else ''}{number}.log"


def write_marker(sources: Sources, folder: Path, redactor: Redactor) -> None:
    """What the supervisor wrote about the run, where it did."""
    if sources.folder is None or not (sources.folder / MARKER).is_file():
        return
    try:
        facts = json.loads(read_small(sources.folder / MARKER, _MARKER_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(facts, dict):
        redactor.learn_value(facts)
        kept = {name: value for name, value in facts.items() if name not in _PRIVATE_FACTS}
        write_inside(folder, MARKER, json.dumps({"format": facts.get("format"), **redactor.value(kept, MARKER)}, indent=1) + "\n")


def _header(piece: Piece) -> Any:
    if piece.match[2] is None:
        return decode(piece.line)
    try:
        header = parse_json(decode(piece.match[4]), "header is not JSON")
    except BadRecordError:
        header = None
    return header if isinstance(header, dict) else decode(piece.line)


def _where(header: dict[str, Any]) -> str:
    """The kind of a record, for the list of what was removed; of an artifact's name, which is any text, only those of ours and torch's."""
    kind = next(iter(header), "record")
    if kind != "artifact" or not isinstance(header[kind], dict):
        return kind if re.fullmatch(r"[a-z_]{1,60}", kind) else "record"
    name = str(header[kind].get("name"))
    return (
        name if re.fullmatch(r"dynadiag_[a-z_]{1,40}|dynamo_[a-z_]{1,40}", name) else "X_BYTECODE" if _BYTECODE.search(name) else "artifact"
    )


def _json(text: str) -> Any:
    """JSON objects and lists; None for what is none."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
