"""A small process beside ours that outlives it for a moment: when dynadiag is killed, it ends what dynadiag had started.

It also sees the Ctrl-C that a terminal sends to the program's process group alone, because it joins that group.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from dynadiag.scratch import OWNER, sweep

_MAIN = Path(__file__).with_name("guardian_main.py")
_PATIENCE_S = 10.0
_active: Guardian | None = None


class Guardian:
    """The other process, and what it is told. One that cannot be started, or was killed, costs its services and nothing else."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._unanswered = 0
        self._presses = 0
        self._patience_s = _PATIENCE_S
        self._child: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_MAIN)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                bufsize=0,
                process_group=0,
            )
        if self.descriptor is not None:
            os.set_blocking(self.descriptor, False)

    @property
    def descriptor(self) -> int | None:
        """Readable when Ctrl-C was pressed, or something was done; None without a guardian."""
        return self._child.stdout.fileno() if self._child is not None and self._child.stdout is not None else None

    def watch(self, group: int, marks: list[str]) -> None:
        """If we die: end this process group, and each process whose environment has one of these entries. Count its Ctrl-C from now on."""
        self._tell({"group": group, "marks": marks})
        self.settle()

    def forget(self) -> None:
        """The program has ended by itself."""
        self._tell({"group": None, "marks": []})

    def presses(self, *, settled: bool = False) -> int:
        """How often Ctrl-C was pressed since the last question; `settled` waits for those that the other process has not looked at yet."""
        if settled:
            self._tell({})
            self.settle()
        self._read()
        found, self._presses = self._presses, 0
        return found

    def settle(self) -> None:
        """Wait until all is done that it was told: it listens, and is in the group. One that takes too long is not waited for again."""
        end = time.monotonic() + self._patience_s
        while (descriptor := self.descriptor) is not None and self._unanswered:
            left_s = end - time.monotonic()
            if left_s <= 0:
                self._patience_s = 0.0
                return
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.poll(left_s * 1000)
            self._read()

    def _read(self) -> None:
        if self.descriptor is None:
            return
        try:
            found = os.read(self.descriptor, 1 << 10)
        except BlockingIOError:
            return
        self._presses += found.count(b"i")
        self._unanswered -= found.count(b".")
        if not found:
            self._lose()

    def keep(self, mark: str, *, kill: bool = False) -> None:
        """If we die, whatever happens in between: end each process whose environment has this entry; `kill`: without asking it first."""
        self._tell({"keep": mark, "kill": kill})

    def expect(self, marks: list[str]) -> None:
        """If we die from now on: end each process whose environment has one of these entries. What is about to start has them."""
        self._tell({"group": None, "marks": marks})

    def dismiss(self) -> None:
        """We end by ourselves: whatever still runs may, and what our dead children left goes."""
        if os.getpid() == self._owner:
            self._tell({"bye": True})
            sweep()

    def _tell(self, what: dict[str, Any]) -> None:
        try:
            if self._child is not None and self._child.stdin is not None:
                self._child.stdin.write(json.dumps(what).encode() + b"\n")
                self._unanswered += 1
        except OSError:
            self._lose()

    def _lose(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()


def guarded(*, outlived: bool = True) -> Guardian:
    """The guardian of this process, started when there is none. All that we start from now on inherits a variable that marks it as ours.

    `outlived` says whether what still runs may outlive us when we end by ourselves; False: it never may, and is killed at once. What is a
    dynadiag itself has a guardian of its own, which then ends whatever that had started.
    """
    global _active
    if _active is None or _active._owner != os.getpid():
        mark = f"{os.getpid()}-{os.urandom(8).hex()}"
        os.environ[OWNER] = mark
        _active = Guardian()
        _active.keep(f"{OWNER}={mark}", kill=not outlived)
        if outlived:
            atexit.register(_active.dismiss)
    return _active
