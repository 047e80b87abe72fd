"""Child processes and we: one JSON object a line. The standard library alone, since it runs in interpreters of others too."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

_PIECE_BYTES = 1 << 16


class Speaker:
    """Says messages to the process that started this one; `default` makes of a value what JSON can hold."""

    def __init__(self, descriptor: int = 1, *, default: Callable[[Any], Any] | None = None) -> None:
        self._descriptor = descriptor
        self._default = default

    def take_stdout(self) -> None:
        """From now on stdout is ours: what others print goes to stderr, since half a line of theirs would spoil one of ours.

        A forked child has it no more: who waits for the end of our lines need not wait for its end.
        """
        sys.stdout.flush()
        self._descriptor = os.dup(1)
        os.dup2(2, 1)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        os.close(self._descriptor)
        self._descriptor = 2

    def say(self, message: Mapping[str, Any]) -> None:
        """One line. Where nobody listens any more it goes nowhere."""
        left = json.dumps(message, default=self._default).encode() + b"\n"
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._descriptor)


def leave(status: int) -> NoReturn:
    """End a process of ours: exit handlers run and what was printed is written, but nothing is freed object by object.

    That would take an interpreter that has imported torch about a second.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a full disk, a closed stream, none at all
            stream.flush()
    os._exit(status)


class LineReader:
    """Whole lines from the descriptor of a pipe, each waited for as long as the reader likes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = b""

    def line(self, timeout_s: float | None) -> bytes | None:
        """The next line without its end; None when it did not come within that many seconds. Raises EOFError when there is no more."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._read:
            left_s = None if until is None else max(until - time.monotonic(), 0.0)
            if not _readable(self._descriptor, left_s):
                return None
            piece = os.read(self._descriptor, _PIECE_BYTES)
            if not piece:
                raise EOFError
            self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        return line


def _readable(descriptor: int, timeout_s: float | None) -> bool:
    """`poll`, since `select` takes no descriptor from 1,024 on."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if timeout_s is None else timeout_s * 1000))


def value_of(text: bytes | str) -> Any:
    """The value of a JSON text; ValueError also for one that is nested so deep that Python's reader gives up."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def parsed(line: bytes | str) -> dict[str, Any] | None:
    """The message of a line; None for a line that is none."""
    try:
        message = value_of(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
