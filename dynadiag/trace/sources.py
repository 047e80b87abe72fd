"""What a path stands for: a program to run, or a recording to read, and then its logs: a run directory, a log, or a folder of logs."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from dynadiag.errors import UnreadableInputError
from dynadiag.files import read_small
from dynadiag.masking import masked_arguments
from dynadiag.model.run import RunInfo
from dynadiag.process_identity import state_of
from dynadiag.trace.tlparse_log import TlparseLog, is_tlparse_log
from dynadiag.trace.values import BadRecordError, as_bool, as_dict, as_int, as_text, as_texts, decode, parse_json

MARKER = "dynadiag-run.json"
WANTED = f"a run directory ({MARKER}), TORCH_TRACE logs (dedicated_log_torch_trace_*.log) or a text log of torch.compile"
_TRACE_NAME = re.compile(r"^dedicated_log_torch_trace.*\.log(\.gz)?$")
_LOG_NAME = re.compile(r"\.(log|txt|out|err)(\.gz)?$")
_DEEPEST = 4
_MOST_FILES = 10_000
_MOST_LISTED = 200_000
_MARKER_BYTES = 4 << 20
_POINTER_BYTES = 4096
_MOST_STOPPED = 100
_MOST_ROWS = 40
_ROW_CHARACTERS = 80
_MOST_FOLDERS = 1000
_START_BYTES = 4096
_STOPPED_NAME = re.compile(r"^stopped_(\d{1,7})_([A-Z0-9]{2,16})$")

_PROGRAM_SUFFIXES = frozenset({".py", ".pyw", ".pyc", ".pyz", ".zip"})
_RUNS = "dynadiag-runs"
_RECORDING_SUFFIXES = frozenset({".log", ".txt", ".json", ".jsonl", ".gz", ".out", ".err"})
_LOG_LINE = re.compile(rb"^(?:\[[^\]\n]{1,40}\]:?\s*)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ ", re.MULTILINE)
_SNIFFED_BYTES = 1 << 16
STDIN = Path("-")
"""A program that comes from stdin, as in `python -`."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The logs to read, in order, and what the supervisor wrote about the run."""

    logs: tuple[Path, ...]
    info: RunInfo
    notes: tuple[str, ...] = ()
    is_run: bool = False
    folder: Path | None = None


def find_sources(path: str | os.PathLike[str]) -> Sources:
    """The logs behind a path; UnreadableInputError in one line when there are none."""
    place = recording_at(Path(path))
    try:
        mode = place.stat().st_mode
    except (OSError, ValueError) as error:
        raise UnreadableInputError(f"cannot read {shown(place)}: {_why(error)}") from None
    if stat.S_ISREG(mode):
        return Sources((_absolute(place),), RunInfo())
    if not stat.S_ISDIR(mode):
        raise UnreadableInputError(f"cannot read {shown(place)}: it is neither a file nor a folder")
    return _from_folder(_absolute(place))


def shown(path: Path) -> str:
    """A path for a message: on one line and without control characters."""
    return "".join(char if char.isprintable() else "?" for char in str(path))


def _why(error: OSError | ValueError) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else "the name is not valid"


def _absolute(path: Path) -> Path:
    return path if path.is_absolute() else Path.cwd() / path


def recording_at(path: Path) -> Path:
    """The run directory that a text file called `latest` names (where links cannot be made), if it lies beside it; else the path itself."""
    try:
        if path.name != "latest" or not path.is_file() or path.stat().st_size > _POINTER_BYTES:
            return path
        name = decode(path.read_bytes()).strip()
        beside = path.with_name(name) if name and name == Path(name).name and "\0" not in name else path
        return beside if beside.is_dir() else path
    except (OSError, ValueError):
        return path


def _from_folder(folder: Path) -> Sources:
    try:
        info, notes = _run_info(folder)
        found = list(islice(_files(folder, 0), _MOST_LISTED))
        files = sorted(found, key=lambda file: (str(file.parent), name_order(file.name)))
    except OSError as error:
        raise UnreadableInputError(f"cannot read {shown(folder)}: {_why(error)}") from None
    runs = [] if info is not None else list(dict.fromkeys(file.parent for file in files if file.name == MARKER))
    if runs:
        apart = [file for file in files if not any(run in file.parents for run in runs)]
        if not any(_TRACE_NAME.match(file.name) for file in apart):
            return _one_of(runs, folder)
        files, notes = apart, (*notes, f"{len(runs)} run directories in {shown(folder)} are left out: pass one to read it")
    traces = [file for file in files if _TRACE_NAME.match(file.name)]
    logs = traces or [file for file in files if _LOG_NAME.search(file.name)]
    if not logs and info is None:
        raise UnreadableInputError(f"no logs in {shown(folder)}; looked for {WANTED}")
    if len(logs) > _MOST_FILES:
        notes = (*notes, f"{_MOST_FILES:,} of {len(logs):,} logs are read; the others are left out")
    return Sources(tuple(logs[:_MOST_FILES]), info or RunInfo(), notes, is_run=info is not None, folder=folder)


def _one_of(runs: list[Path], folder: Path) -> Sources:
    """The only run in a folder. Several are told apart and not read: they are other programs, or the same at other times."""
    if len(runs) == 1:
        return _from_folder(runs[0])
    rows = tuple(_row(run, folder) for run in runs[-_MOST_ROWS:])
    left_out = (f"and {len(runs) - _MOST_ROWS} before these",) if len(runs) > _MOST_ROWS else ()
    message = f"{shown(folder)} contains {len(runs)} runs: pass one of them, for example {shown(runs[-1])}"
    raise UnreadableInputError(message, slug="several-runs", details=(*left_out, *rows))


def _row(run: Path, folder: Path) -> str:
    """Which run, what it ran, when, how it ended."""
    info, command, status = run_in_words(run)
    return f"{run.relative_to(folder)}  {command}  {info.started_at or '-'}  {status}"


def run_in_words(run: Path) -> tuple[RunInfo, str, str]:
    """What is known of a run directory, what it ran in short, and how it ended."""
    try:
        info = _run_info(run)[0] or RunInfo()
    except OSError:
        info = RunInfo()
    states = {"still running": info.running, "dynadiag was killed": info.killed, "not ended": info.unended}
    status = next((text for text, applies in states.items() if applies), None)
    if status is None:
        status = f"exit {info.exit_status}" if info.exit_status is not None else "no exit status"
    command = " ".join(Path(word).name if number == 0 else word for number, word in enumerate(info.command or ())) or "-"
    short = command if len(command) <= _ROW_CHARACTERS else f"{command[:_ROW_CHARACTERS]}..."
    return info, short, status


def name_order(name: str) -> list[tuple[int, int, str]]:
    """Sorts rank_2 before rank_10."""
    parts = re.split(r"(\d{1,17})", name)
    return [(0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part) for part in parts]


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """The regular files in a folder and below; links, pipes and devices are left alone: a folder may be a stranger's."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth < _DEEPEST and not entry.name.startswith("."):
                        yield from _files(Path(entry.path), depth + 1)
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
            except OSError:
                continue


def _run_info(folder: Path) -> tuple[RunInfo | None, tuple[str, ...]]:
    """What the marker file says; None when there is none, and a note when it cannot be read."""
    marker = folder / MARKER
    if not os.path.lexists(marker):
        return None, ()
    try:
        data = read_small(marker, _MARKER_BYTES)
    except OSError as error:
        return None, (f"{MARKER} is not read: {error.strerror}",)
    try:
        values = parse_json(decode(data), "not JSON")
    except BadRecordError:
        return RunInfo(directory=str(folder)), (f"{MARKER} is damaged: what the supervisor recorded is not known",)
    return _info(folder, as_dict(values)), ()


def _info(folder: Path, values: Mapping[str, Any]) -> RunInfo:
    flags = {field.name for field in fields(RunInfo) if field.default is False}
    found: dict[str, Any] = {name: as_bool(values.get(name)) or False for name in flags}
    found.update({name: as_text(values.get(name)) for name in ("dynadiag", "cwd", "started_at", "ended_at", "signal")})
    if found["running"]:
        state = state_of(as_dict(values.get("supervisor")))
        found |= {"running": state == "alive", "killed": state == "dead", "unended": state == "elsewhere"}
    return RunInfo(
        directory=str(folder),
        command=masked_arguments(as_texts(values.get("command"))) or None,
        exit_status=as_int(values.get("exit_status")),
        stopped=tuple(dict.fromkeys((*as_texts(values.get("stopped"))[:_MOST_STOPPED], *_stopped(folder)))),
        own=as_texts(values.get("own"))[:_MOST_FOLDERS],
        libraries=as_texts(values.get("libraries"))[:_MOST_FOLDERS],
        **found,
    )


def _stopped(folder: Path) -> list[str]:
    """What `record/writer.py` left where a log could not be written any more: empty files whose names hold a pid and an error."""
    found = sorted(match.groups() for entry in folder.iterdir() if (match := _STOPPED_NAME.match(entry.name)))
    return [stop_text(int(pid), getattr(errno, name, None)) for pid, name in found[:_MOST_STOPPED]]


def stop_text(pid: int, number: int | None) -> str:
    """The line for a process whose log could not be written to its end."""
    return f"recording stopped in process {pid}: {os.strerror(number) if isinstance(number, int) else 'its log could not be written'}"


class OpenLog:
    """A log opened for reading: plain, gzip, or tlparse's JSON lines; `position` is how far into the file on disk we are."""

    def __init__(self, path: str | Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        self.raw = os.fdopen(descriptor, "rb", buffering=0)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            self.raw.close()
            raise OSError(0, "it is not a regular file")
        self.size = os.fstat(descriptor).st_size
        start = self.raw.read(_START_BYTES)
        self.raw.seek(0)
        self.broken: str | None = None
        self.tlparse = TlparseLog(self.raw, str(path)) if is_tlparse_log(start) else None
        self.packed = start.startswith(b"\x1f\x8b") or self.tlparse is not None  # its text is not what lies on the disk
        self.stream: BinaryIO = self.raw
        if self.packed:
            self.stream = self.tlparse or gzip.GzipFile(fileobj=io.BufferedReader(self.raw))  # type: ignore[assignment]

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes of the log's text; what can no longer be read ends it, and `broken` says why."""
        try:
            return self.stream.read1(size) if isinstance(self.stream, gzip.GzipFile) else self.stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            self.broken = getattr(error, "strerror", None) or "it is damaged"
            return b""

    def read_small(self, most: int) -> bytes | None:
        """The whole text if it has at most so many bytes, else None; reading begins at its front again."""
        blocks, left = [], most + 1
        while left > 0 and (block := self.read(min(left, 1 << 20))):
            blocks.append(block)
            left -= len(block)
        self.stream.seek(0)
        return b"".join(blocks) if left > 0 and self.broken is None else None

    @property
    def position(self) -> int:
        """Bytes of the file on disk that were read."""
        return self.raw.tell()

    def __enter__(self) -> OpenLog:
        return self

    def __exit__(self, *exc: object) -> None:
        self.raw.close()


def is_recording(path: Path) -> bool:
    """Whether `path` is to be read (a run directory, a folder of logs, a log) rather than run.

    A folder with `__main__.py` and a file named like Python are programs, as `python PATH` sees them, but not a run directory or a folder
    with torch's own logs: those may be a stranger's. A file without a telling name is a recording when it has lines in the form of torch's
    logs. A path that does not exist, and a `latest` that names no run, raise `UnreadableInputError`.
    """
    if path == STDIN:
        return False
    if not path.exists():
        raise UnreadableInputError(f"no such file or folder: {path} (a script, a run directory or a log was expected)")
    if path.is_dir():
        return not (path / "__main__.py").exists() or _holds_recording(path)
    if path.suffix in _PROGRAM_SUFFIXES:
        return False
    if recording_at(path) != path:
        return True
    if path.name == "latest" and (_absolute(path).parent.name == _RUNS or any(path.parent.glob(f"*/{MARKER}"))):
        raise UnreadableInputError(f"{shown(path)} does not name a run next to it: pass the run directory itself")
    return path.suffix in _RECORDING_SUFFIXES or _has_log_lines(path)


def _holds_recording(folder: Path) -> bool:
    return (folder / MARKER).exists() or any(_TRACE_NAME.match(entry.name) for entry in islice(folder.iterdir(), _MOST_LISTED))


def _has_log_lines(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return _LOG_LINE.search(file.read(_SNIFFED_BYTES)) is not None
    except OSError as error:
        raise UnreadableInputError(f"cannot read {path}: {error.strerror or error}") from error
