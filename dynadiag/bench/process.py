"""An arm's process, seen from the one that holds the baton."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dynadiag
from dynadiag.children.worker import Worker, WorkerEndedError, last_line_of
from dynadiag.errors import DynadiagError, TorchUnsupportedError, UsageError
from dynadiag.files import extended
from dynadiag.private_view.choosing import command_in, warn_of
from dynadiag.private_view.recovery import recover
from dynadiag.private_view.view import View
from dynadiag.record.supervisor import signal_name

_MAIN = "dynadiag.bench.inside.main"
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
        root = str(Path(dynadiag.__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH", ""), root]))
        self._log, self._view = log, view

        def command(reading: int, writing: int) -> Sequence[str]:
            words = [python, "-P", "-m", _MAIN, str(reading), str(writing), *early]
            return words if view is None else command_in(view, words)

        with os.fdopen(extended(log), "ab") as output:
            try:
                self._worker = Worker(command, log=output, environment={**environment, "PYTHONPATH": path}, alone_in="session")
            except OSError as error:
                raise UsageError(f"{python} cannot be started: {error.strerror}") from None

    def ask(self, command: Mapping[str, Any], *, timeout_s: float, on_phase: Callable[[str], None] = lambda _phase: None) -> Any:
        """The result of one command. Raises ArmFailedError; UsageError or TorchUnsupportedError for what no other arm would do better."""
        deadline = time.monotonic() + timeout_s
        try:
            message = self._worker.ask(command, timeout_s)
            while message is not None and "phase" in message:
                on_phase(message["phase"])
                message = self._worker.hear(deadline - time.monotonic())
        except WorkerEndedError:
            raise self._ended() from None
        if message is None:
            self.kill()
            raise ArmFailedError("timeout", f"did not answer within {timeout_s:.0f} s and was ended")
        if "error" in message:
            raise _failure(message)
        return message["result"]

    def _ended(self) -> ArmFailedError:
        status = self._worker.wait(_LEAVE_S)
        if status is None:
            self.kill()
            return ArmFailedError("crashed", "closed its side of the pipe")
        if status < 0:
            return ArmFailedError("crashed", f"was ended by {signal_name(-status)}")
        last = last_line_of(self._log)
        return ArmFailedError("crashed", f"exited with status {status}{f': {last[:200]}' if last else ''}")

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._worker.has_ended

    def kill(self) -> None:
        """End the process and what it started."""
        self._worker.kill()
        self._put_back()

    def close(self) -> None:
        """Ask it to leave, end it if it does not, and close the pipes."""
        if not self.has_ended:
            with contextlib.suppress(WorkerEndedError):
                self._worker.tell({"do": "quit"})
        self._worker.wait(_LEAVE_S)  # before its pipe is closed, at which it ends at once
        self._worker.close(patience_s=0.0)
        self._put_back()

    def _put_back(self) -> None:
        if self._view is not None:
            warn_of(recover(Path(self._view.undo)))


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
