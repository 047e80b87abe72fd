"""The processes of a recorded program: waiting without polling, and ending all of them, also those that left its group."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dynadiag.process_identity import identity, state_of

_GRACE_S = 5.0
_STEP_S = 0.05


def wait(child: subprocess.Popen[bytes], seconds: float, wakers: Sequence[int] = ()) -> bool:
    """Wait until the child has ended, a descriptor in `wakers` can be read, or the seconds have passed; whether the child has ended."""
    if child.poll() is not None:
        return True
    try:
        descriptor = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        return _wait_by_polling(child, seconds)
    try:
        poller = select.poll()
        for number in (descriptor, *wakers):
            poller.register(number, select.POLLIN)
        poller.poll(seconds * 1000)
    finally:
        os.close(descriptor)
    return child.poll() is not None


def stopped_by(child: subprocess.Popen[bytes]) -> int | None:
    """The signal that has stopped the child since the last question."""
    try:
        found = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG)
    except ChildProcessError:
        return None
    return found.si_status if found is not None else None


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
    marks = [mark] if mark else []
    _signal_everywhere(child.pid, marks, first)
    deadline = time.monotonic() + grace_s
    wait(child, grace_s)
    while _marked(marks) and time.monotonic() < deadline:
        time.sleep(_STEP_S)
    _signal_everywhere(child.pid, marks, signal.SIGKILL)
    child.wait()


def end_orphans(group: int | None, marks: Sequence[bytes], *, first: int = signal.SIGTERM, grace_s: float) -> None:
    """The same for processes that are not our children: a group, and those with one of the entries in their environment.

    One that is ending has no environment any more while it still counts as alive, so each that was found is waited for.
    """
    found = [identity(pid) for pid in _marked(marks)]
    _signal_everywhere(group, marks, first)
    deadline = time.monotonic() + grace_s
    while (_marked(marks) or _group_exists(group) or _any_alive(found)) and time.monotonic() < deadline:
        time.sleep(_STEP_S)
    _signal_everywhere(group, marks, signal.SIGKILL)
    deadline = time.monotonic() + grace_s
    while _any_alive(found) and time.monotonic() < deadline:
        time.sleep(_STEP_S)


def _any_alive(processes: Sequence[Mapping[str, Any]]) -> bool:
    return any(state_of(process) == "alive" for process in processes)


def _group_exists(group: int | None) -> bool:
    try:
        if group is not None:
            os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return group is not None


def _signal_everywhere(group: int | None, marks: Sequence[bytes], number: int) -> None:
    if group is not None:
        signal_group(group, number)
    for pid in _marked(marks):
        try:
            if os.getpgid(pid) != group or number == signal.SIGKILL:
                os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _marked(marks: Sequence[bytes]) -> list[int]:
    """Processes that the program started: workers of torchrun are in sessions of their own, the environment stays with them (Linux)."""
    if not marks:
        return []
    found = []
    wanted = set(marks)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if not wanted.isdisjoint((entry / "environ").read_bytes().split(b"\0")) and not _is_zombie(entry):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def _is_zombie(entry: Path) -> bool:
    return (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] == "Z"
