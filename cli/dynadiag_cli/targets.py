"""What a path on the command line is: a program to run, or a recording to read."""

from __future__ import annotations

import re
from pathlib import Path

from dynadiag.errors import UnreadableInputError
from dynadiag.trace.sources import recording_at

_PROGRAM_SUFFIXES = frozenset({".py", ".pyw", ".pyc", ".pyz", ".zip"})
_RECORDING_SUFFIXES = frozenset({".log", ".txt", ".json", ".jsonl", ".gz", ".out", ".err"})
_LOG_LINE = re.compile(rb"^(?:\[[^\]\n]{1,40}\]:?\s*)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ ", re.MULTILINE)
_SNIFFED_BYTES = 1 << 16
STDIN = Path("-")
"""A program that comes from stdin, as in `python -`."""


def is_recording(path: Path) -> bool:
    """Whether `path` is to be read (a run directory, a folder of logs, a log) rather than run.

    A folder with `__main__.py` and a file named like Python are programs, as `python PATH` sees them; a file without a telling name is a
    recording when it has lines in the form of torch's logs. A path that does not exist raises `UnreadableInputError`.
    """
    if path == STDIN:
        return False
    if not path.exists():
        raise UnreadableInputError(f"no such file or folder: {path} (a script, a run directory or a log was expected)")
    if path.is_dir():
        return not (path / "__main__.py").exists()
    if path.suffix in _PROGRAM_SUFFIXES:
        return False
    if recording_at(path) != path:
        return True
    return path.suffix in _RECORDING_SUFFIXES or _has_log_lines(path)


def _has_log_lines(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return _LOG_LINE.search(file.read(_SNIFFED_BYTES)) is not None
    except OSError as error:
        raise UnreadableInputError(f"cannot read {path}: {error.strerror or error}") from error
