"""An arm's process, seen from the one that holds the baton."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dynadiag
from dynadiag.errors import DynadiagError, TorchUnsupportedError, UsageError
from dynadiag.files import extended
from dynadiag.json_lines import LineReader, parsed
from dynadiag.private_view.choosing import command_in, warn_of
from dynadiag.private_view.recovery import recover
from dynadiag.private_view.view import View
from dynadiag.record.supervisor import signal_name

_MAIN = "dynadiag.bench.inside.main"
_TAIL_BYTES = 4000
_LEAVE_S = 5.0


class ArmFailedError(DynadiagError):
    """An arm's process crashed, hung, ran out of memory, or its program raised; `status` is what its row says."""

    slug = "arm-failed"

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class ArmProcess:
    """A started process that does one command at a time. Its output goes to `log`; use `close` in the end, whatever happened.

    It imports the modules of the names `early` first, before it has a command. With a `view` the user's files are as they were when it has
    ended.
    """

    def __init__(
        self, *, python: str, log: Path, environment: Mapping[str, str], early: Sequence[str] = (), view: View | None = None
    ) -> None:
        command_read, self._commands = os.pipe()
        self._replies, reply_write = os.pipe()
        root = str(Path(dynadiag.__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH", ""), root]))
        self._log, self._view = log, view
        command = [python, "-P", "-m", _MAIN, str(command_read), str(reply_write), *early]
        self._lines = LineReader(self._replies)
        with os.fdopen(extended(log), "ab") as output:
            try:
                self._child = subprocess.Popen(
                    command if view is None else command_in(view, command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(command_read, reply_write),
                    env={**environment, "PYTHONPATH": path},
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(f"{python} cannot be started: {error.strerror}") from None
            finally:
                os.close(command_read)
                os.close(reply_write)

    def ask(self, command: Mapping[str, Any], *, timeout_s: float, on_phase: Callable[[str], None] = lambda _phase: None) -> Any:
        """The result of one command. Raises ArmFailedError; UsageError or TorchUnsupportedError for what no other arm would do better."""
        try:
            os.write(self._commands, (json.dumps(command) + "\n").encode())
        except BrokenPipeError:
            raise self._ended() from None
        deadline = time.monotonic() + timeout_s
        while True:
            if (message := parsed(self._line(deadline, timeout_s))) is None:
                continue
            if "phase" in message:
                on_phase(message["phase"])
            elif "error" in message:
                raise _failure(message)
            else:
                return message["result"]

    def _line(self, deadline: float, timeout_s: float) -> bytes:
        try:
            line = self._lines.line(max(0.0, deadline - time.monotonic()))
        except EOFError:
            raise self._ended() from None
        if line is None:
            self.kill()
            raise ArmFailedError("timeout", f"did not answer within {timeout_s:.0f} s and was ended")
        return line

    def _ended(self) -> ArmFailedError:
        try:
            status = self._child.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return ArmFailedError("crashed", "closed its side of the pipe")
        if status < 0:
            return ArmFailedError("crashed", f"was ended by {signal_name(-status)}")
        return ArmFailedError("crashed", f"exited with status {status}{self._last_words()}")

    def _last_words(self) -> str:
        lines = self.tail().split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {said[:200]}" if said else ""

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._child.poll() is not None

    def tail(self) -> str:
        """The end of what the process printed."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return log.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def kill(self) -> None:
        """End the process and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        if self._view is not None:
            warn_of(recover(Path(self._view.undo)))

    def close(self) -> None:
        """Ask it to leave, end it if it does not, and close the pipes."""
        if self._child.poll() is None:
            with contextlib.suppress(OSError):
                os.write(self._commands, b'{"do": "quit"}\n')
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_LEAVE_S)
        self.kill()
        os.close(self._commands)
        os.close(self._replies)


class ArmEndedError(ArmFailedError):
    """The script ended before the call that was waited for; `calls` says how many calls of it there were."""

    def __init__(self, message: str, calls: int) -> None:
        super().__init__("crashed", message)
        self.calls = calls


def _failure(message: Mapping[str, Any]) -> DynadiagError:
    kind, text = message["error"], message["text"]
    if kind == "ended":
        return ArmEndedError(text, int(message["calls"]))
    if kind == "usage":
        return UsageError(text)
    if kind == "torch-unsupported":
        return TorchUnsupportedError(text)
    if kind == "out-of-memory":
        return ArmFailedError("oom", f"out of memory: {text}")
    return ArmFailedError("crashed", text)


def default_python() -> str:
    """The interpreter that arms run in unless another is named."""
    return sys.executable
