"""Which process, of which start of which machine: a pid alone is soon another process, and another machine has the same pids."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

State = Literal["alive", "dead", "elsewhere"]
STARTER = "DYNADIAG_STARTER"
"""The variable with the pid of a process between dynadiag and the program that it starts; its child is that program, others inherit it."""
_PROC = Path("/proc")
_START_FIELD = 22 - 3  # of `/proc/PID/stat`, counted from the state, which follows the name in brackets (proc(5))


def identity(pid: int | None = None) -> dict[str, Any]:
    """A process of this machine, this one by default: pid, start (ticks since boot), boot, pid namespace; None for what is not known."""
    pid = os.getpid() if pid is None else pid
    found = _state_and_start(pid)
    return {"pid": pid, "start": found[1] if found else None, **_here()}


def state_of(process: Mapping[str, Any]) -> State:
    """Whether a process as `identity` gave it runs; "elsewhere" when that cannot be seen from here: another machine, boot or container."""
    pid, start = process.get("pid"), process.get("start")
    here = _here()
    known = isinstance(pid, int) and isinstance(start, int) and pid > 0 and all(isinstance(value, str) for value in here.values())
    if not known or any(process.get(name) != value for name, value in here.items()):
        return "elsewhere"
    found = _state_and_start(int(pid))  # type: ignore[arg-type]
    return "alive" if found is not None and found[1] == start and found[0] not in "ZX" else "dead"


def _here() -> dict[str, str | None]:
    return {"boot": _text(_PROC / "sys/kernel/random/boot_id"), "namespace": _link(_PROC / "self/ns/pid")}


def _state_and_start(pid: int) -> tuple[str, int] | None:
    fields = (_text(_PROC / str(pid) / "stat") or "").rpartition(")")[2].split()
    try:
        return fields[0], int(fields[_START_FIELD])
    except (IndexError, ValueError):
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return None


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None
