"""A process of ours that is asked in JSON lines: started, asked, listened to and ended in one way, whatever it does. No torch here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from dynadiag.json_lines import LineReader, parsed

_TAIL_BYTES = 4000
_LEAVE_S = 5.0


class WorkerEndedError(Exception):
    """The other side has closed its end: the process is over, or will be soon."""


class Channel:
    """Messages go into the descriptor `asking` (None: nothing is asked) and come from `answering`; a line that is no message is skipped."""

    def __init__(self, asking: int | None, answering: int) -> None:
        self._asking, self._answering = asking, answering
        self._lines = LineReader(answering)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send one message. Raises WorkerEndedError where nobody reads it."""
        assert self._asking is not None
        left = json.dumps(message).encode() + b"\n"
        try:
            while left:
                left = left[os.write(self._asking, left) :]
        except BrokenPipeError:
            raise WorkerEndedError from None

    def hear(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """The next message; None when none came in time. Raises WorkerEndedError when there is no more."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.line(None if until is None else max(0.0, until - time.monotonic()))
            except EOFError:
                raise WorkerEndedError from None
            if line is None:
                return None
            if (message := parsed(line)) is not None:
                return message

    def ask(self, message: Mapping[str, Any], timeout_s: float | None = None) -> dict[str, Any] | None:
        """Send a message and give what comes next, as `tell` and `hear` do."""
        self.tell(message)
        return self.hear(timeout_s)

    def messages(self) -> Iterator[dict[str, Any]]:
        """All messages to the last one."""
        with contextlib.suppress(WorkerEndedError):
            while (message := self.hear()) is not None:
                yield message

    def stop_asking(self) -> None:
        """Close the side that is written to: whoever reads it sees the end."""
        if self._asking is not None:
            with contextlib.suppress(OSError):
                os.close(self._asking)
            self._asking = None

    def close(self) -> None:
        """Close both sides."""
        self.stop_asking()
        with contextlib.suppress(OSError):
            os.close(self._answering)


class Worker(Channel):
    """A started process; what it and others print goes into the open file `log`. Use `close` in the end, whatever happened.

    It is asked on its stdin and answers on its stdout. A function as `command` is for one in which a program of the user runs, to which
    these belong: it is given the numbers of two descriptors, to read from and to write to. With `is_asked` False nothing is asked.
    `alone_in`: a process group or a session of its own, which is ended as a whole. Raises OSError where it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str] | Callable[[int, int], Sequence[str]],
        *,
        log: IO[bytes],
        environment: Mapping[str, str],
        is_asked: bool = True,
        alone_in: Literal["group", "session"] | None = None,
    ) -> None:
        answering, write_end = os.pipe()
        read_end, asking = os.pipe() if is_asked else (None, None)
        super().__init__(asking, answering)
        self._is_alone = alone_in is not None
        how: dict[str, Any] = {"start_new_session": alone_in == "session", "process_group": 0 if alone_in == "group" else None}
        theirs = [number for number in (read_end, write_end) if number is not None]
        try:
            if callable(command):
                assert read_end is not None
                words = command(read_end, write_end)
                how |= {"stdin": subprocess.DEVNULL, "stdout": log, "pass_fds": theirs}
            else:
                words = command
                how |= {"stdin": subprocess.DEVNULL if read_end is None else read_end, "stdout": write_end}
            self._process: subprocess.Popen[bytes] = subprocess.Popen(words, stderr=log, env=dict(environment), **how)
        except BaseException:
            super().close()
            raise
        finally:
            for number in theirs:
                os.close(number)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit status, negative for a signal; None where it still runs after that time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int, *, to_all: bool = False) -> None:
        """Signal it, or all of its process group where it has one of its own; one that is gone is left alone."""
        with contextlib.suppress(ProcessLookupError):
            if to_all and self._is_alone:
                os.killpg(self.pid, number)
            else:
                self._process.send_signal(number)

    def kill(self) -> None:
        """End the process, and where it is alone in its group what it started."""
        self.send_signal(signal.SIGKILL, to_all=True)
        self._process.wait()

    def close(self, patience_s: float = _LEAVE_S) -> None:
        """Let it see that nothing more comes, end it if it does not leave, and close the pipes."""
        self.stop_asking()
        self.wait(patience_s)
        self.kill()
        super().close()


def end_of(log: Path) -> str:
    """The end of what was printed into a file."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def last_line_of(log: Path) -> str:
    """The last line of a file in which something stands; empty where there is none."""
    return next((line.strip() for line in reversed(end_of(log).split("\n")) if line.strip()), "")
