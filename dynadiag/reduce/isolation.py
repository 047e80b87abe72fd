"""A child forked for each question, so that a crash, a hang or a poisoned process ends with it. The parent must never initialise CUDA."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Tell = Callable[[dict[str, Any]], None]
_GRACE_S = 5
_MESSAGES_LIMIT = 64 << 20
_OUTPUT_BYTES = 20_000  # the 100 frames that faulthandler prints at most


@dataclass(frozen=True, kw_only=True)
class ChildReport:
    """What a child told, in order, and how it ended. `output` is the end of what it printed; `cpu_s` that of it and its own children."""

    messages: tuple[dict[str, Any], ...]
    exit_status: int | None
    signal: str | None
    timed_out: bool
    output: str
    wall_s: float
    cpu_s: float


def run_forked(work: Callable[[Tell], None], *, timeout_s: float) -> ChildReport:
    """Run `work` in a forked child with a process group, a folder and an inductor cache of its own; all is killed after `timeout_s`."""
    folder = Path(tempfile.mkdtemp(prefix="dynadiag-child-"))
    try:
        return _run_forked(work, timeout_s, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_forked(work: Callable[[Tell], None], timeout_s: float, folder: Path) -> ChildReport:
    reading, writing = os.pipe()
    began = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python warns of threads: those of torch wait (torch.set_num_threads(1) in the worker), and the child calls none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _be_child(work, writing, reading, timeout_s, folder)
    os.close(writing)
    try:
        raw, in_time = _read(reading, began + timeout_s)
    except BaseException:
        _kill(pid)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(reading)
    status, cpu_s, ended = _reap(pid, None if not in_time else _GRACE_S)
    return ChildReport(
        messages=_parsed(raw),
        exit_status=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        signal=signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) and in_time and ended else None,
        timed_out=not in_time,
        output=_tail(folder / "output"),
        wall_s=time.monotonic() - began,
        cpu_s=cpu_s,
    )


def _be_child(work: Callable[[Tell], None], writing: int, reading: int, timeout_s: float, folder: Path) -> None:
    """In the child: never returns."""
    status = 1
    try:
        os.setsid()
        os.close(reading)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # Should the parent be killed, the child ends by itself.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(timeout_s) + 2 * _GRACE_S)
        _redirect(folder)
        _mend_thread_pool()

        def tell(message: dict[str, Any]) -> None:
            os.write(writing, json.dumps(message).encode() + b"\n")

        work(tell)
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may escape into the parent's code
        with contextlib.suppress(Exception):
            os.write(writing, json.dumps({"broken": traceback.format_exc()}).encode() + b"\n")
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _mend_thread_pool() -> None:
    """Let one thread make torch's thread pool anew, which a fork loses.

    Else the first backward does it: its device threads all at once, of which some find none and abort the process ("Invalid thread pool!",
    aten/src/ATen/ParallelOpenMP.cpp; seen in 1 of 10 to 1 of 20 children on torch 2.11 and 2.15).
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch.get_num_threads())


def _redirect(folder: Path) -> None:
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, errors="replace") for number in (1, 2))
    faulthandler.enable(2)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    os.chdir(folder)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(reading: int, deadline: float) -> tuple[bytes, bool]:
    """All that the child tells; False when its time was over first."""
    raw = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return raw, False
        if not select.select([reading], [], [], left)[0]:
            return raw, False
        piece = os.read(reading, 1 << 16)
        if not piece or len(raw) > _MESSAGES_LIMIT:
            return raw, True
        raw += piece


def _reap(pid: int, patience_s: float | None) -> tuple[int, float, bool]:
    """Wait for the end of the child, not for ever, and kill its group. Gives its status, its CPU seconds, whether it ended by itself."""
    ended = False
    for _ in _ticks(patience_s or 0.0):
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            ended = True
            break
    _kill(pid)
    if not ended:
        _, status, usage = os.wait4(pid, 0)
    return status, usage.ru_utime + usage.ru_stime, ended


def _ticks(patience_s: float) -> Iterator[None]:
    end, pause = time.monotonic() + patience_s, 0.0005
    while time.monotonic() < end:
        yield
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _parsed(raw: bytes) -> tuple[dict[str, Any], ...]:
    messages = []
    for line in raw.splitlines():
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                messages.append(message)
    return tuple(messages)


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_OUTPUT_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
