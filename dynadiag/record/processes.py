"""The processes of a recorded program: waiting without polling, and ending all of them, also those that left its group."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path

_GRACE_S = 5.0
_STEP_S = 0.05


def wait(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until the child has ended or the seconds have passed; whether it has ended."""
    if child.poll() is not None:
        return True
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        return _wait_by_polling(child, seconds)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(seconds * 1000)
    finally:
        os.close(descriptor)
    return child.poll() is not None


def _wait_by_polling(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group; one that is gone is no error."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def end_all(child: subprocess.Popen[bytes], mark: bytes | None, *, first: int = signal.SIGTERM, grace_s: float = _GRACE_S) -> None:
    """End the child, its group and every process whose environment has the exact entry `mark`: `first`, and SIGKILL after `grace_s`.

    `mark` must be unique to this run; None means that only the group is ended.
    """
    _signal_everywhere(child, mark, first)
    deadline = time.monotonic() + grace_s
    wait(child, grace_s)
    while _marked(mark) and time.monotonic() < deadline:
        time.sleep(_STEP_S)
    _signal_everywhere(child, mark, signal.SIGKILL)
    child.wait()


def _signal_everywhere(child: subprocess.Popen[bytes], mark: bytes | None, number: int) -> None:
    signal_group(child.pid, number)
    for pid in _marked(mark):
        try:
            if os.getpgid(pid) != child.pid or number == signal.SIGKILL:
                os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _marked(mark: bytes | None) -> list[int]:
    """Processes that the program started: workers of torchrun are in sessions of their own, the environment stays with them (Linux)."""
    if not mark:
        return []
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0") and not _is_zombie(entry):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def _is_zombie(entry: Path) -> bool:
    return (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] == "Z"
