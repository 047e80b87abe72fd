"""A child forked for each question, so that a crash, a hang or a poisoned process ends with it. The parent must never initialise CUDA."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.errors import OutputError
from dynadiag.json_lines import Speaker, parsed
from dynadiag.private_view.recovery import recover
from dynadiag.private_view.view import View, enter
from dynadiag.scratch import make_scratch
from dynadiag.torch_compat.dynamo.guard_timing import check_guards_untimed

Tell = Callable[[dict[str, Any]], None]
_GRACE_S = 5
_END_S = 60.0  # for a child that has told all: it only ends, but a loaded machine may be slow to let it
_MESSAGES_LIMIT = 64 << 20
_OUTPUT_BYTES = 20_000  # the 100 frames that faulthandler prints at most
START_WITHOUT_GC = "import gc, runpy, sys; gc.disable(); runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
"""As `-m`, but garbage is not looked for until the worker calls `keep_for_children`: importing torch's compiler leaves none, and spends a
seventh on it."""


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


def keep_for_children() -> None:
    """Collect garbage again, but look no more at what is there now: nor does a child, whose copies of those pages that saves."""
    gc.freeze()
    gc.enable()


def run_forked(work: Callable[[Tell], None], *, timeout_s: float, view: View | None = None) -> ChildReport:
    """Run `work` in a forked child with a process group, a folder and an inductor cache of its own; all is killed after `timeout_s`.

    With a `view` the user's files are afterwards as they were.
    """
    return start_forked(work, timeout_s=timeout_s, view=view).wait()


def start_forked(
    work: Callable[[Tell], None], *, timeout_s: float, environment: Mapping[str, str] | None = None, view: View | None = None
) -> Child:
    """Start `work` as `run_forked` does and do not wait for it. `environment` holds variables for the child alone.

    Raises OutputError when there is no room for it.
    """
    try:
        folder = make_scratch("child")
    except OSError as error:
        raise OutputError(f"cannot create a folder for a child process: {error.strerror or error}") from error
    try:
        return _start(work, timeout_s, folder, environment or {}, view)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _start(work: Callable[[Tell], None], timeout_s: float, folder: Path, environment: Mapping[str, str], view: View | None) -> Child:
    reading, writing = os.pipe()
    parent = os.getpid()
    began = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python warns of threads: those of torch wait (torch.set_num_threads(1) in the worker), and the child calls none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.environ.update(environment)
        end_with_parent(parent)
        _be_child(work, writing, reading, timeout_s, folder, view)
    os.close(writing)
    return Child(pid=pid, reading=reading, folder=folder, began=began, deadline=began + timeout_s, view=view)


running: set[int] = set()
"""The children that run now, by their process ids."""


def end_running() -> None:
    """Kill all children: for an interrupt, which is not to wait for them."""
    for pid in list(running):
        _kill(pid)


class Child:
    """A running child. Several may run at a time: whoever waits for one reads what the others tell, so that none is held up by it."""

    def __init__(self, *, pid: int, reading: int, folder: Path, began: float, deadline: float, view: View | None = None) -> None:
        self._pid, self._reading, self._folder, self._began, self._deadline = pid, reading, folder, began, deadline
        self._view = view
        self._raw = b""
        self._told_at: float | None = None
        self._report: ChildReport | None = None
        running.add(pid)

    @property
    def told(self) -> bool:
        """Whether it has told all that it had to tell."""
        return self._told_at is not None

    def wait(self, others: Sequence[Child] = ()) -> ChildReport:
        """What it told, when it has ended or its time is over."""
        try:
            while not self.told and listen((self, *others), until=self._deadline):
                pass
        except BaseException:
            self.end()
            raise
        return self.end()

    def end(self) -> ChildReport:
        """What it told until now; what still runs of it is killed."""
        if self._report is None:
            os.close(self._reading)
            running.discard(self._pid)
            try:
                self._report = self._reaped()
                if self._view is not None:  # what a child that was killed had no time for
                    recover(Path(self._view.undo))
            finally:
                shutil.rmtree(self._folder, ignore_errors=True)
        return self._report

    def _reaped(self) -> ChildReport:
        status, cpu_s, ended = _reap(self._pid, _END_S if self.told else None)
        return ChildReport(
            messages=_parsed(self._raw),
            exit_status=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) and self.told and ended else None,
            timed_out=not self.told,
            output=_tail(self._folder / "output"),
            wall_s=(self._told_at or time.monotonic()) - self._began,
            cpu_s=cpu_s,
        )

    def fileno(self) -> int:
        """For `select`."""
        return self._reading

    def read(self) -> None:
        """Read what is there; at the end of it the child has told all."""
        piece = os.read(self._reading, 1 << 16)
        self._raw += piece
        if not piece or len(self._raw) > _MESSAGES_LIMIT:
            self._told_at = time.monotonic()


def listen(children: Sequence[Child], *, until: float) -> bool:
    """Read once what any of the children tells; False when none did until that time (of `time.monotonic`)."""
    ready = select.select([child for child in children if not child.told], [], [], max(until - time.monotonic(), 0.0))[0]
    for child in ready:
        child.read()
    return bool(ready)


def end_with_parent(parent: int) -> None:
    """In the child: the kernel kills it when its parent dies (`prctl(2)`, PR_SET_PDEATHSIG; Linux). Elsewhere its alarm does, later."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _be_child(work: Callable[[Tell], None], writing: int, reading: int, timeout_s: float, folder: Path, view: View | None) -> None:
    """In the child: never returns."""
    status = 1
    # What the parent left to be collected is not ours to end: a process group of gloo waited for its threads for ever (torch 2.15).
    gc.freeze()
    try:
        os.setsid()
        os.close(reading)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # Should the parent be killed, the child ends by itself.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(timeout_s) + 2 * _GRACE_S)
        _redirect(folder)
        ended = None if view is None else enter(view.and_passed(folder))
        if ended is not None:
            os._exit(ended.follow())
        _mend_thread_pool()
        check_guards_untimed()
        work(Speaker(writing).say)
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may escape into the parent's code
        with contextlib.suppress(Exception):
            Speaker(writing).say({"broken": traceback.format_exc()})
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _mend_thread_pool() -> None:
    """Let one thread make torch's thread pool anew, which a fork loses, for work in one thread, as the worker of the verb does it.

    OpenMP's threads are lost too: where the parent has used them, a matrix product of 64 x 64 in the child would wait for them for ever
    (seen on torch 2.15). And else the first backward makes the pool: its device threads all at once, of which some find none and abort the
    process ("Invalid thread pool!", aten/src/ATen/ParallelOpenMP.cpp; seen in 1 of 10 to 1 of 20 children on torch 2.11 and 2.15).
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


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
    return tuple(message for line in raw.splitlines() if (message := parsed(line)) is not None)


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_OUTPUT_BYTES:].decode("utf-8", "replace")
    except OSError:
        return ""
