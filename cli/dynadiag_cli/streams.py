"""stdin, stdout and stderr of our own process, whatever state we were started in. The script gets them as they were."""

from __future__ import annotations

import io
import os
import select
import sys


def mend_streams() -> None:
    """Fill closed descriptors (`>&-`) with /dev/null, so that no file of ours gets their number, and let stderr never raise.

    What is opened here is closed in the programs that we start: a script finds its descriptors closed, as without us. A terminal that
    hung up or a stderr whose reader is gone costs our words, not the exit status of the script; nor is a stdout whose reader has read
    enough an error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, and is not inherited
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        was = sys.stdout
        buffer = io.BufferedWriter(_EndsQuietly(1, "w", closefd=False))
        sys.stdout = io.TextIOWrapper(buffer, encoding=was.encoding, errors=was.errors, line_buffering=was.line_buffering)
    if sys.stderr is sys.__stderr__:
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        to_stderr = io.BufferedWriter(_NeverRaises(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(to_stderr, encoding=encoding, errors="backslashreplace", line_buffering=True)


class _EndsQuietly(io.FileIO):
    """stdout until its reader goes away (`| head`), which is nobody's error: what is left is dropped."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            drop_stdout()
            return len(memoryview(data))  # type: ignore[arg-type]


def drop_stdout() -> None:
    """Let what is left for stdout go nowhere: Python would complain again when it flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class _NeverRaises(io.FileIO):
    """A file that takes everything, also what it cannot write; it waits for a pipe that does not block."""

    def write(self, data: object, /) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        try:
            while (written := super().write(view)) is None:
                select.select([], [self], [], 1.0)
        except (OSError, ValueError):
            return len(view)
        return written
