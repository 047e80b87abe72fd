"""Who has a file open for writing, except the run that is looked after."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from typing import Final

_STATUS: Final = re.compile(rb"^(Name|PPid):\s*(.*)$", re.MULTILINE)
_FLAGS: Final = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
_MOST_PARENTS: Final = 100


def other_writer(descriptor: int) -> str | None:
    """A process ("tee, process 12") that has the file of a descriptor open for writing; None where there is none that we may see.

    Neither this process, nor what it or its parent has started, counts. The descriptor must be for reading only.
    """
    if not _is_written(descriptor):
        return None
    wanted = os.fstat(descriptor)
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and _has_open_for_writing(name, (wanted.st_dev, wanted.st_ino)) and not _is_ours(name):
            return f"{_status(name).get('Name', '?')}, process {name}"
    return None


def _is_written(descriptor: int) -> bool:
    """Whether anybody may have it open for writing: the kernel gives no read lease then (fcntl(2), F_SETLEASE)."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:  # not for files of others, nor on each file system
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _has_open_for_writing(process: str, node: tuple[int, int]) -> bool:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{process}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                found = os.stat(f"/proc/{process}/fd/{name}")  # noqa: PTH116
                if (found.st_dev, found.st_ino) == node and _is_for_writing(process, name):
                    return True
    return False


def _is_for_writing(process: str, descriptor: str) -> bool:
    with open(f"/proc/{process}/fdinfo/{descriptor}", "rb") as stream:  # noqa: PTH123
        flags = _FLAGS.search(stream.read())
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _is_ours(process: str) -> bool:
    ours = {str(os.getpid()), str(os.getppid())} - {"1"}
    for _ in range(_MOST_PARENTS):
        parent = _status(process).get("PPid", "0")
        if parent in ours or process == str(os.getpid()):
            return True
        if parent in ("0", "1"):
            return False
        process = parent
    return False


def _status(process: str) -> dict[str, str]:
    try:
        with open(f"/proc/{process}/status", "rb") as stream:  # noqa: PTH123
            return {key.decode(): value.decode("utf-8", "replace").strip() for key, value in _STATUS.findall(stream.read())}
    except OSError:
        return {}
