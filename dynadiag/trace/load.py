"""Reads logs into a `Run`: file by file, record by record, in one pass."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from dynadiag.digests.lines import RANK_NAME
from dynadiag.errors import UnreadableInputError
from dynadiag.model.run import CompileKey, Process, Run
from dynadiag.trace import mutation_records, own_records, room, torch_records
from dynadiag.trace.builders import ProcessBuilder, RunBuilder, finish
from dynadiag.trace.digest import bytes_told, is_cut
from dynadiag.trace.metrics import quick_event
from dynadiag.trace.pasted_text import LARGEST_PASTED
from dynadiag.trace.rank_logs import Progress, RankLogs, compare_ranks
from dynadiag.trace.records import Piece, Record, holds_record, scan
from dynadiag.trace.room import LeftOutError
from dynadiag.trace.sources import WANTED, OpenLog, Sources, find_sources, shown
from dynadiag.trace.text_log import TextReader
from dynadiag.trace.values import BadRecordError, as_id, decode

_LARGEST_PID = 1 << 22
_MOST_NAMES = 10_000
_ARTIFACTS = {**torch_records.BY_ARTIFACT, **own_records.BY_ARTIFACT, **mutation_records.BY_ARTIFACT}
_BY_KEY = {name.encode(): handler for name, handler in {**torch_records.BY_KEY, **mutation_records.BY_KEY}.items()}
_BY_ARTIFACT = {name.encode(): handler for name, handler in _ARTIFACTS.items()}
# What is still counted of a frame that is not kept.
_EVENTS = {b"dynamo_graph_break_reason": "graph break events", b"recompile_reasons": "recompiles", b"dynamo_output_graph": "graphs"}
_OF_FRAMES = frozenset((torch_records.start, torch_records.graph_break, torch_records.recompile, torch_records.guards))
_COMPILE_ID = re.compile(  # at the end of a header without `compiled_autograd_id`
    rb'"rank": \d{1,9}, "frame_id": (\d{1,18}), "frame_compile_id": (\d{1,18}), "attempt": \d{1,9}(?:, "has_payload": (?:null|"\w*"))?\}\Z'
)
_CONTEXT_BYTES = 512  # the compile context and the rank come last in a header, which can have many kilobytes
_LARGEST_HEADER_BYTES = 16 << 20


def load(path: str | os.PathLike[str], *, workers: int = 1, progress: Progress | None = None) -> Run:
    """The run that lies at a path: a run directory of ours, one log of torch's trace or of plain text, or a folder of such logs.

    Of many ranks those that are alike by their digests are read once (`trace.rank_logs`), with as many `workers`, which are fresh Python
    processes: they import `__main__`, so a script that asks for them needs the guard that `multiprocessing` asks for.

    `progress` is called with the bytes read so far and the bytes in all. Records that cannot be used are counted in `Process.skipped`.
    Raises UnreadableInputError when nothing there can be read.
    """
    found = find_sources(path)
    ranks = compare_ranks(found.logs, workers=workers, progress=progress)
    sources = replace(found, logs=ranks.logs)
    run = RunBuilder()
    for note in (*sources.notes, *ranks.notes):
        run.note(note)
    _read_all(run, sources, progress)
    # Not where a program was killed while it wrote, or still writes, nor where the recorder has left word of it.
    if run.cut and not found.info.stopped and (not found.is_run or found.info.exit_status == 0):
        sources = replace(sources, info=replace(found.info, stopped=tuple(run.cut)))
    run.ranks = ranks.comparison
    _add_alike(run, ranks)
    if not run.processes and not sources.is_run:
        raise UnreadableInputError(_nothing(Path(path), sources))
    return finish(run, sources)


def _add_alike(run: RunBuilder, ranks: RankLogs) -> None:
    """The ranks that were not read, by their digests, behind the processes that were."""
    read = {process.log: process.index for process in reversed(run.processes)}
    for digest, log in ranks.alike:
        if log in read and run.room.take("processes"):
            run.alike.append(
                Process(
                    index=len(run.processes) + len(run.alike),
                    log=digest.log,
                    pid=digest.process.pid,
                    parent_pid=digest.process.parent_pid,
                    rank=digest.process.rank,
                    torch=digest.process.torch,
                    python=digest.process.python,
                    device=digest.process.device,
                    started_at=digest.process.started_at,
                    records=digest.records,
                    finished=digest.process.finished,
                    alike=read[log],
                )
            )


def _nothing(path: Path, sources: Sources) -> str:
    if len(sources.logs) == 1:
        empty = _size(sources.logs[0]) == 0
        return f"{shown(path)} is empty" if empty else f"{shown(path)} contains no record of torch.compile; looked for {WANTED}"
    return f"none of the {len(sources.logs)} logs in {shown(path)} contains a record of torch.compile; looked for {WANTED}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_all(run: RunBuilder, sources: Sources, progress: Progress | None) -> None:
    total = sum(map(_size, sources.logs))
    before = 0
    for log in sources.logs:
        cut = len(run.cut)
        try:
            with OpenLog(log) as stream:
                reader = _LogReader(run, str(log))
                reader.read(stream, _teller(progress, before, total, stream))
                broken = stream.broken
                for note in () if stream.tlparse is None else stream.tlparse.notes():
                    run.note(note)
                if len(run.cut) == cut and not stream.packed:
                    run.cut.extend(_end_missing(log, stream.size, reader))
        except OSError as error:
            broken = error.strerror or str(error)
        if broken is not None:
            if len(sources.logs) == 1 and not run.processes:
                raise UnreadableInputError(f"cannot read {shown(log)}: {broken}")
            run.note(f"{shown(Path(log.name))} could not be read completely")
            run.cut.append(f"{shown(Path(log.name))} could not be read completely")
        before += _size(log)
    if progress is not None:
        progress(total, total)


def _end_missing(log: Path, size: int, reader: _LogReader) -> Iterator[str]:
    """What says that a log of ours was cut behind a whole record, which nothing in it shows.

    Its process writes a record at its normal exit. Where there is none (`os._exit`, a kill), the digest beside it says how long it was.
    """
    told = bytes_told(log)
    name = shown(Path(log.name))
    if size < told:
        yield f"the end of {name} is missing"
    elif not told and any("pid" in process_builder.facts and not process_builder.finished for process_builder in reader.by_number.values()):
        yield f"the end of {name} may be missing: it has no end record, and no digest says how long it was"


def _teller(progress: Progress | None, before: int, total: int, stream: OpenLog) -> Callable[[int], None]:
    def tell(_: int) -> None:
        if progress is not None:
            progress(min(before + stream.position, total), total)

    return tell


class _LogReader:
    """Reads one log; a log of several processes (forked, or put together by hand) gives one `Process` each."""

    def __init__(self, run: RunBuilder, log: str) -> None:
        self.run = run
        self.log = log
        self.by_number: dict[bytes, ProcessBuilder] = {}
        self.first: ProcessBuilder | None = None
        self.text = TextReader(run, log)
        self.previous = b""
        self.names: dict[bytes, str] = {}
        self.mismatches = 0
        self.cut_off = False
        self.left = bytearray()

    def read(self, stream: OpenLog, on_read: Callable[[int], None]) -> None:
        """Reads the log from its beginning to its end."""
        data = stream.read_small(LARGEST_PASTED)
        if data is not None and not holds_record(data):
            self.text.pasted(data)
            on_read(len(data))
            return
        by_number = self.by_number
        for piece in scan(stream, on_read):
            number, kind, name, _ = piece.match.groups()
            self.cut_off |= piece.last and kind is not None and is_cut(piece)
            if kind is None:
                self._no_record(piece)
                continue
            process = by_number.get(number) or self._process(number)
            if process is None:
                self.run.room.left["records"] += 1
                continue
            process.records += 1
            if kind != b"chromium_event" or not self._event(process, piece):
                self._record(process, piece, kind, name)
        self.text.end()
        name = shown(Path(self.log.rpartition(os.sep)[2]))
        if self.cut_off and stream.broken is None:
            self.run.note(f"the last record of {name} is cut off: the program was still writing it, or ended while it wrote")
            self.run.cut.append(f"the last record of {name} is cut off")
        if self.mismatches:
            self.run.note(f"{self.mismatches} payloads in {name} do not match their checksums (edited or damaged); used as they are")

    def _no_record(self, piece: Piece) -> None:
        if not piece.kept:
            self.run.note(f"a line of more than {_LARGEST_HEADER_BYTES >> 20} MB was left out")
        elif self.first is None:
            self.text.lines(piece.line, piece.offset)

    def _event(self, process: ProcessBuilder, piece: Piece) -> bool:
        """The short way for the records that make up most of a log; False when one looks unusual.

        Hundreds of events in a row carry the same compile id, so its frame is looked up once.
        """
        match = piece.match
        found = quick_event(match.string, match.end() + 1, piece.end) if piece.kept else None
        if found is None:
            return False
        kind, raw_name, at = found
        name = self.names.get(raw_name) or self._name(raw_name)
        if kind == b"B":
            process.clock.begin(name, at)
        elif kind == b"E":
            context = match[4].partition(b'"has_payload"')[0]
            if context != process.event_context or process.event_epoch != process.epoch:
                try:
                    frame = self.run.known_frame(process, Record(piece, "chromium_event", 0).header)
                except BadRecordError:
                    return False
                process.event_frame = frame.id if frame else None
                process.event_context, process.event_epoch = (context, process.epoch) if frame else (None, -1)
            process.clock.end(name, at, process.event_frame, self.run.room)
        return True

    def _name(self, raw: bytes) -> str:
        if len(self.names) > _MOST_NAMES:
            self.names.clear()
        return self.names.setdefault(raw, decode(raw))

    def _process(self, raw: bytes) -> ProcessBuilder | None:
        """The process with a new number, or None when there is no room for one more.

        Old torch wrote thread numbers instead of pids, which do not tell processes apart.
        """
        number = int(raw) if len(raw) < 19 else _LARGEST_PID
        is_pid = 0 < number < _LARGEST_PID
        if self.first is not None and not is_pid:
            found = self.first
        elif len(self.run.processes) >= room.MOST_PROCESSES:
            self._left_out(number)
            return None
        else:
            found = self._new_process(number if is_pid else None)
        if len(self.by_number) < _MOST_NAMES:
            self.by_number[raw] = found
        return found

    def _left_out(self, number: int) -> None:
        """One more process that is only counted; which those are is kept in a bit each."""
        if not self.left:
            self.left = bytearray(_LARGEST_PID // 8)
        place, bit = divmod(number % _LARGEST_PID, 8)
        if not self.left[place] >> bit & 1:
            self.left[place] |= 1 << bit
            self.run.room.left["processes"] += 1

    def _new_process(self, pid: int | None) -> ProcessBuilder:
        process = ProcessBuilder(len(self.run.processes), self.log, pid or 0)
        rank = RANK_NAME.search(Path(self.log).name)
        if pid is not None:
            process.facts["pid"] = pid
        if rank:
            process.facts["rank"] = int(rank.group(1))
        if self.first is not None:
            process.inherited = self.first.strings
        self.first = self.first or process
        self.run.room.take("processes")
        self.run.processes.append(process)
        return process

    def _record(self, process: ProcessBuilder, piece: Piece, kind: bytes, name: bytes | None) -> None:
        line = piece.match[0]
        if line == self.previous:
            process.skip("repeated record")
            return
        self.previous = line
        artifact = kind == b"artifact"
        handler = _BY_ARTIFACT.get(name or b"") if artifact else _BY_KEY.get(kind)
        if handler is None:
            process.ignore(decode((name if artifact else kind) or b"?"), self.run.room)
            if not line.rstrip().endswith(b"}"):
                self._bad(process, piece, "header is not JSON")
            return
        try:
            if len(line) > _LARGEST_HEADER_BYTES:
                raise BadRecordError("header is too long")
            record = Record(piece, kind.decode(), process.records - 1)
            if "rank" not in process.facts and b'"rank"' in line[-_CONTEXT_BYTES:]:
                self._note_rank(process, record)
            if self.run.room.left["frames"] and handler in _OF_FRAMES:
                self._pass_over(process, line)
            handler(self.run, process, record)
            if record.mismatch:
                self._mismatch(piece)
        except BadRecordError as error:
            self._bad(process, piece, error.reason)
        except LeftOutError:
            event = _EVENTS.get(name or kind)
            if event is not None:
                self.run.room.left[event] += 1

    def _pass_over(self, process: ProcessBuilder, line: bytes) -> None:
        """LeftOutError for a record of a frame that is only counted, before anything else of it is read."""
        found = _COMPILE_ID.search(line)
        if found is not None:
            frame, again = int(found[1]), int(found[2])
            if (frame, again, None) not in process.latest:  # which has all that are in `process.frames`
                self.run.new_frame(process, CompileKey(process.index, process.epoch, frame, again, None))

    def _mismatch(self, piece: Piece) -> None:
        self.cut_off |= piece.last
        self.mismatches += not piece.last

    def _bad(self, process: ProcessBuilder, piece: Piece, reason: str) -> None:
        """A record that cannot be used. At the end of a log it is half written: the program still runs, or ended while it wrote."""
        self.cut_off |= piece.last
        if not piece.last:
            process.skip(reason)

    def _note_rank(self, process: ProcessBuilder, record: Record) -> None:
        rank = as_id(record.header.get("rank"))
        if rank is not None:
            process.facts["rank"] = rank
