"""Reads logs into a `Run`: file by file, record by record, in one pass."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path

from dynadiag.errors import UnreadableInputError
from dynadiag.model.run import Run
from dynadiag.trace import own_records, torch_records
from dynadiag.trace.drafts import ProcessDraft, RunDraft
from dynadiag.trace.finish import finish
from dynadiag.trace.records import Header, Piece, Record, match_header, scan
from dynadiag.trace.sources import WANTED, OpenLog, Sources, find_sources, shown
from dynadiag.trace.text_log import TextReader
from dynadiag.trace.values import BadRecordError, as_id, decode

Progress = Callable[[int, int], None]

_LARGEST_PID = 1 << 22
_RANK_NAME = re.compile(r"_rank_(\d{1,6})[_.]")
_BY_KEY = {name.encode(): handler for name, handler in torch_records.BY_KEY.items()}
_BY_ARTIFACT = {name.encode(): handler for name, handler in {**torch_records.BY_ARTIFACT, **own_records.BY_ARTIFACT}.items()}
_LARGEST_HEADER_BYTES = 16 << 20


def load(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Run:
    """The run that lies at a path: a run directory of ours, one log of torch's trace or of plain text, or a folder of such logs.

    `progress` is called with the bytes read so far and the bytes in all. Records that cannot be used are counted in `Process.skipped`.
    Raises UnreadableInputError when nothing there can be read.
    """
    sources = find_sources(path)
    run = RunDraft()
    for note in sources.notes:
        run.note(note)
    _read_all(run, sources, progress)
    if not run.processes and not sources.is_run:
        raise UnreadableInputError(_nothing(Path(path), sources))
    return finish(run, sources)


def _nothing(path: Path, sources: Sources) -> str:
    if len(sources.logs) == 1:
        empty = _size(sources.logs[0]) == 0
        return f"{shown(path)} is empty" if empty else f"nothing in {shown(path)} is a record of torch.compile; looked for {WANTED}"
    return f"none of the {len(sources.logs)} logs in {shown(path)} holds a record of torch.compile; looked for {WANTED}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_all(run: RunDraft, sources: Sources, progress: Progress | None) -> None:
    total = sum(map(_size, sources.logs))
    before = 0
    for log in sources.logs:
        try:
            with OpenLog(log) as stream:
                _LogReader(run, str(log)).read(stream, _teller(progress, before, total, stream))
        except (OSError, EOFError, zlib.error) as error:
            if len(sources.logs) == 1 and not run.processes:
                why = getattr(error, "strerror", None) or "it is damaged"
                raise UnreadableInputError(f"cannot read {shown(log)}: {why}") from None
            run.note(f"{shown(Path(log.name))} could not be read to its end")
        before += _size(log)
    if progress is not None:
        progress(total, total)


def _teller(progress: Progress | None, before: int, total: int, stream: OpenLog) -> Callable[[int], None]:
    def tell(_: int) -> None:
        if progress is not None:
            progress(min(before + stream.position, total), total)

    return tell


class _LogReader:
    """Reads one log; a log of several processes (forked, or put together by hand) gives one `Process` each."""

    def __init__(self, run: RunDraft, log: str) -> None:
        self.run = run
        self.log = log
        self.by_number: dict[bytes, ProcessDraft] = {}
        self.first: ProcessDraft | None = None
        self.text = TextReader(run, log)
        self.previous = b""
        self.mismatches = 0

    def read(self, stream: OpenLog, on_read: Callable[[int], None]) -> None:
        """Reads the log from its beginning to its end."""
        for piece in scan(stream, on_read):
            header = match_header(piece.line)
            if header is None:
                self._no_record(piece)
            elif piece.line == self.previous and header.kind != b"chromium_event":
                self._process(header).skip("repeated record")
            else:
                self.previous = piece.line
                self._record(piece, header)
        self.text.end()
        if self.mismatches:
            name = shown(Path(self.log.rpartition(os.sep)[2]))
            self.run.note(f"{self.mismatches} payloads in {name} do not match their checksums (edited or damaged); used as they are")

    def _no_record(self, piece: Piece) -> None:
        if piece.payload is None or len(piece.line) > _LARGEST_HEADER_BYTES:
            self.run.note(f"a line of more than {_LARGEST_HEADER_BYTES >> 20} MB was left out")
            return
        if self.first is None:
            self.text.line(decode(piece.line), piece.offset, len(piece.line))

    def _process(self, header: Header) -> ProcessDraft:
        """The process that wrote a record; old torch wrote thread numbers instead of pids, which do not tell processes apart."""
        found = self.by_number.get(header.number)
        if found is not None:
            return found
        number = int(header.number) if len(header.number) < 19 else _LARGEST_PID
        is_pid = 0 < number < _LARGEST_PID
        if not is_pid and self.first is not None:
            found = self.first
        else:
            found = self._new_process(number if is_pid else None)
        if len(self.by_number) < 10_000:
            self.by_number[header.number] = found
        return found

    def _new_process(self, pid: int | None) -> ProcessDraft:
        process = ProcessDraft(len(self.run.processes), self.log, pid or 0)
        rank = _RANK_NAME.search(Path(self.log).name)
        if pid is not None:
            process.facts["pid"] = pid
        if rank:
            process.facts["rank"] = int(rank.group(1))
        if self.first is not None:
            process.strings.update(self.first.strings)
        self.first = self.first or process
        self.run.processes.append(process)
        return process

    def _record(self, piece: Piece, header: Header) -> None:
        process = self._process(header)
        process.records += 1
        artifact = header.kind == b"artifact"
        handler = _BY_ARTIFACT.get(header.name or b"") if artifact else _BY_KEY.get(header.kind)
        if handler is None:
            process.ignore(decode((header.name if artifact else header.kind) or b"?"))
            if not piece.line.rstrip().endswith(b"}"):
                process.skip("header is not JSON")
            return
        try:
            if len(piece.line) > _LARGEST_HEADER_BYTES:
                raise BadRecordError("header is too long")
            record = Record(piece, header.start, header.kind.decode(), process.records - 1)
            self._note_rank(process, record)
            handler(self.run, process, record)
            self.mismatches += record.mismatch
        except BadRecordError as error:
            process.skip(error.reason)

    def _note_rank(self, process: ProcessDraft, record: Record) -> None:
        if "rank" in process.facts or b'"rank"' not in record.line:
            return
        rank = as_id(record.header.get("rank"))
        if rank is not None:
            process.facts["rank"] = rank
