"""A copy of this process, made at a call, that answers one question about it and ends; the program never learns of it.

The copy is made by the kernel's `clone` itself. After `fork` of the C library torch runs no backward in a child whose parent has run one
(`in_bad_autograd_fork` in torch/csrc/autograd/python_engine.cpp, 2.11 to 2.15); and a child that ends by no signal is not among those that
a program waits for. Linux alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import random
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from dynadiag.capture.reach import cuda_in_use
from dynadiag.torch_compat.trace.hooks import callback_switch

_CLONE = {"x86_64": 56, "aarch64": 220}
_OF_NO_SIGNAL = 0x40000000
"""`__WCLONE | __WALL` of wait(2): also children that end by no signal."""
_WAITING = ("threading.py", "thread.py", "queue.py", "selectors.py", "connection.py", "socket.py", "subprocess.py", "ssl.py")
_MOST_BYTES = 4 << 20
_LAST_STREAM = 2
_LOOK_EACH_S, _STILL_S = 0.5, 6.0
_LAST_STEPS_S = 60.0
"""For a copy that has closed its pipe, and only frees its memory: seconds on a machine with far more work than cores."""
_TEXT = 2000


def why_no_copy() -> str | None:
    """Why this process cannot be copied now, in words; None where it can."""
    if not sys.platform.startswith("linux") or platform.machine() not in _CLONE:
        return "a running process can be copied on Linux only (x86-64 and ARM)"
    if cuda_in_use():
        return "the process uses CUDA, of which no copy can be made"
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return "the process belongs to a group of torch.distributed, in which a copy would speak too"
    if threading.current_thread() is not threading.main_thread():
        return "the call is made in another thread than the main one"
    busy = next((thread.name for thread in threading.enumerate() if not _waits(thread)), None)
    return None if busy is None else f"another thread runs, whose locks a copy would keep ({busy[:80]})"


def _waits(thread: threading.Thread) -> bool:
    """Whether a thread holds nothing that a copy could need: it is this one, torch's own, or waits for something."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or thread is threading.current_thread():
        return True
    return os.path.basename(frame.f_code.co_filename) in _WAITING or f"{os.sep}torch{os.sep}" in frame.f_code.co_filename  # noqa: PTH119


class ProcessCopy:
    """A copy that works; what it says comes through the pipe `reading`. `why_not`: why nothing came, once it was waited for in vain."""

    def __init__(self, pid: int, reading: int) -> None:
        self.why_not = ""
        self.pid = pid
        self.reading = reading

    def wait(self, timeout_s: float, others: Sequence[ProcessCopy] = ()) -> bytes | None:
        """All that it said when it has ended; None where it broke, took too long or stood still, and was killed then.

        It stands still when neither it nor one of the `others`, which work for it, nor a child of theirs has computed for some seconds: a
        lock that another thread held when the copy was made is never given back there.
        """
        began, said, whole = time.monotonic(), b"", False
        poller = select.poll()
        poller.register(self.reading, select.POLLIN | select.POLLHUP)
        still_since, ticks = began, -1
        while len(said) < _MOST_BYTES and (now := time.monotonic()) - began < timeout_s and now - still_since < _STILL_S:
            if poller.poll(_LOOK_EACH_S * 1000):
                piece = os.read(self.reading, 1 << 16)
                said += piece
                if not piece:
                    whole = True
                    break
            elif (computed := sum(_ticks(copy.pid) for copy in (self, *others))) != ticks:
                still_since, ticks = time.monotonic(), computed
        status = self.end(grace_s=_LAST_STEPS_S if whole else 0.0)
        if whole and status == 0:
            return said
        why = "it stood still or took too long" if not whole else "it was killed"
        self.why_not = said.decode("utf-8", "replace")[-_TEXT:] if whole and said else why
        return None

    def end(self, *, grace_s: float = 0.0) -> int | None:
        """Its wait status; after `grace_s` it is killed. None where somebody else has waited for it."""
        with contextlib.suppress(OSError):
            os.close(self.reading)
        until = time.monotonic() + grace_s
        try:
            while True:
                found, status = os.waitpid(self.pid, os.WNOHANG | _OF_NO_SIGNAL)
                if found:
                    return status
                if time.monotonic() >= until:
                    os.kill(self.pid, signal.SIGKILL)
                    return os.waitpid(self.pid, _OF_NO_SIGNAL)[1]
                time.sleep(0.002)
        except (ChildProcessError, ProcessLookupError):
            return None


def _ticks(pid: int) -> int:
    """The CPU time of a process and its children in ticks of the kernel; a process that waits for the CPU counts as one that computes."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_bytes().split()]
    except (OSError, ValueError):
        return 0
    running = time.monotonic_ns() if fields[0] in (b"R", b"D") else 0
    return running + int(fields[11]) + int(fields[12]) + sum(map(_ticks, children))


def above_streams(descriptor: int) -> int:
    """The same file under a number that no standard stream has, which a copy opens anew: a program may have closed its own."""
    if descriptor > _LAST_STREAM:
        return descriptor
    higher = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LAST_STREAM + 1)
    os.close(descriptor)
    return higher


def copy_process(work: Callable[[int], None]) -> ProcessCopy:
    """Run `work(descriptor)` in a copy of this process as it is now, which ends with it; what it writes there is what the copy says.

    In the copy Dynamo is off, torch uses one thread (the others are not copied), nothing is printed or read, and no exit handler runs.
    """
    reading, writing = map(above_streams, os.pipe())
    drawn = random.getstate()
    parent = os.getpid()
    api = ctypes.pythonapi
    api.PyOS_BeforeFork()
    pid = ctypes.CDLL(None).syscall(_CLONE[platform.machine()], 0, 0, 0, 0, 0)
    if pid == 0:
        api.PyOS_AfterFork_Child()
        _be_copy(work, writing, reading, parent, drawn)
    api.PyOS_AfterFork_Parent()
    os.close(writing)
    if pid < 0:
        os.close(reading)
        raise OSError("the system makes no more processes")
    return ProcessCopy(pid, reading)


def run_in_new_thread(work: Callable[[], None]) -> None:
    """Run `work`, which raises nothing, in a thread that has just begun.

    In a copy OpenMP's threads are gone, and a kernel of Inductor that asks for them waits for ever; to a new thread OpenMP gives new ones.
    """
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def _be_copy(work: Callable[[int], None], writing: int, reading: int, parent: int, drawn: object) -> NoReturn:
    import torch

    status = 1
    try:
        callback_switch()(None)
        os.close(reading)
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)
        for which in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(which, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        sys.stdin, sys.stdout, sys.stderr = (open(os.devnull, mode) for mode in ("r", "w", "w"))  # noqa: SIM115, PTH123
        random.setstate(drawn)  # type: ignore[arg-type] # Python seeds it anew in a child
        torch.set_num_threads(1)
        work(writing)
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may escape into the code of the program
        with contextlib.suppress(OSError):
            os.write(writing, traceback.format_exc().encode())
    finally:
        os._exit(status)
