"""Starting the program as a child, passing signals on, ending it when asked, and saying in the run directory how it went."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

import dynadiag
from dynadiag.errors import UsageError
from dynadiag.model import RunInfo
from dynadiag.process_identity import identity
from dynadiag.record import directory as run_directory
from dynadiag.record import processes
from dynadiag.record.environment import working_directory
from dynadiag.record.settings import VARIABLE, Settings
from dynadiag.record.stability import StabilityWatch
from dynadiag.record.target import RecordOptions, Target, command_of
from dynadiag.record.terminal import foreground
from dynadiag.record.writer import PREFIX, WARNED_VARIABLE

_BOOTSTRAP = Path(__file__).resolve().parents[1] / "bootstrap"
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")
_LOOK_S = 1.0
_TIMED_OUT = 124
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class RecordResult:
    """How the program ended. `directory` is None when nothing could be recorded; `exit_status` is what our own process should return."""

    directory: Path | None
    exit_status: int
    signal: str | None = None
    timed_out: bool = False
    interrupted: bool = False
    stopped_stable: bool = False
    warnings: tuple[str, ...] = ()


@dataclass
class _Progress:
    """What happens while the program runs."""

    interrupts: int = 0
    timed_out: bool = False
    stopped_stable: bool = False
    warnings: list[str] = field(default_factory=list)
    group: int | None = None
    early_signals: list[int] = field(default_factory=list)

    def started(self, group: int) -> None:
        """The program runs: what came before goes to its process group now."""
        self.group = group
        for number in self.early_signals:
            processes.signal_group(group, number)

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        """A signal handler."""
        if number == signal.SIGINT:
            self.interrupts += 1
        if self.group is None:
            self.early_signals.append(number)
        else:
            processes.signal_group(self.group, number)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        with contextlib.suppress(OSError, ValueError):  # a closed descriptor, a terminal that hung up
            print(f"dynadiag: {text}", file=sys.stderr, flush=True)


def record(target: Target, options: RecordOptions) -> RecordResult:
    """Run a program unchanged and record what torch.compile does in all its processes.

    Raises UsageError, UnreadableInputError or OutputError before the program starts. A directory that cannot be written gives one warning
    and the program runs unrecorded. Exit status: the program's own, 128+n for a signal, 124 after `timeout_s`, 130 when interrupted, 0
    after `stop_when_stable_s`.
    """
    command = command_of(target, options.python)
    progress = _Progress()
    directory = _make_directory(target, options, progress)
    info = RunInfo(
        directory=None if directory is None else str(directory),
        dynadiag=dynadiag.__version__,
        command=tuple(command),
        cwd=working_directory(),
        started_at=_now(),
        running=True,
    )
    _write_info(directory, info, progress)
    with _signals_passed_on(progress):
        child = _start(command, directory, options)
        progress.started(child.pid)
        with foreground(child.pid):
            _watch_over(child, directory, options, progress)
    return _finish(child, directory, info, progress)


def _make_directory(target: Target, options: RecordOptions, progress: _Progress) -> Path | None:
    try:
        if options.out is not None:
            return run_directory.chosen_directory(options.out, force=options.force).resolve()
        base = working_directory()
        if base is None:
            progress.warn("the current folder was deleted: the script runs unrecorded, without a report; --out DIR names a place for them")
            return None
        return run_directory.new_directory(Path(base), target.argv[0]).resolve()
    except OSError as error:
        progress.warn(f"cannot write {error.filename or options.out}: {error.strerror}; the script runs unrecorded, without a report")
        return None


def _write_info(directory: Path | None, info: RunInfo, progress: _Progress) -> None:
    if directory is None:
        return
    try:
        run_directory.write_marker(directory, asdict(info) | {"supervisor": identity()})
    except OSError as error:
        progress.warn(f"cannot write {directory}: {error.strerror}; the script goes on")


def _start(command: list[str], directory: Path | None, options: RecordOptions) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    environment.pop(WARNED_VARIABLE, None)
    if directory is not None:
        environment[VARIABLE] = _settings(directory, options).dumps()
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_BOOTSTRAP), os.environ.get("PYTHONPATH"))))
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        return subprocess.Popen(command, env=environment, process_group=0)
    except OSError as error:
        raise UsageError(f"cannot start {command[0]}: {error.strerror}") from error


def _settings(directory: Path, options: RecordOptions) -> Settings:
    return Settings(
        str(directory),
        os.getpid(),
        options.log_cap_bytes,
        options.cost,
        dynadiag.__version__,
        parity_calls=options.parity_calls,
        parity_cap_bytes=options.parity_cap_bytes,
    )


def _watch_over(child: subprocess.Popen[bytes], directory: Path | None, options: RecordOptions, progress: _Progress) -> None:
    """Wait for the end of the program; end it when its time is over, nothing new compiles, or Ctrl-C is pressed twice."""
    mark = None if directory is None else f"{VARIABLE}={_settings(directory, options).dumps()}".encode()
    began = time.monotonic()
    stability = StabilityWatch(directory, options.stop_when_stable_s) if directory and options.stop_when_stable_s else None
    while not processes.wait(child, _next_look_s(began, options)):
        if options.timeout_s is not None and time.monotonic() - began >= options.timeout_s:
            progress.timed_out = True
        elif stability is not None and stability.is_stable():
            progress.stopped_stable = True
        elif progress.interrupts < 2:
            continue
        processes.end_all(child, mark)
    if child.returncode == -signal.SIGINT:
        progress.interrupts += 1
    if progress.interrupts or progress.timed_out or progress.stopped_stable:
        processes.end_all(child, mark, grace_s=2.0)


def _next_look_s(began: float, options: RecordOptions) -> float:
    """Never longer than a second: a signal does not end the wait (PEP 475), and a second Ctrl-C must be noticed."""
    left_s = _LOOK_S if options.timeout_s is None else began + options.timeout_s - time.monotonic()
    return max(0.0, min(_LOOK_S, left_s))


@contextmanager
def _signals_passed_on(progress: _Progress) -> Iterator[None]:
    """Ctrl-C and other signals reach the program's group instead of ending us; in place before the program starts."""
    numbers = [getattr(signal, name) for name in ("SIGINT", *_PASSED_ON) if hasattr(signal, name)]
    before = {}
    try:
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGINT:
                before[number] = signal.signal(number, progress.pass_on)
    except ValueError:  # not the main thread: nothing to pass on, the interrupt goes there
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _finish(child: subprocess.Popen[bytes], directory: Path | None, info: RunInfo, progress: _Progress) -> RecordResult:
    status = child.returncode
    name = signal_name(-status) if status < 0 else None
    interrupted = progress.interrupts > 0
    exit_status = 128 - status if status < 0 else status
    if progress.stopped_stable:
        exit_status = 0
    if interrupted:
        exit_status = _INTERRUPTED
    if progress.timed_out:
        exit_status = _TIMED_OUT
    facts = asdict(info) | {"ended_at": _now(), "exit_status": exit_status, "signal": name, "timed_out": progress.timed_out}
    facts |= {"interrupted": interrupted, "stopped_stable": progress.stopped_stable, "running": False, "stopped": _unwritable(directory)}
    _write_info(directory, RunInfo(**facts), progress)
    return RecordResult(directory, exit_status, name, progress.timed_out, interrupted, progress.stopped_stable, tuple(progress.warnings))


def _unwritable(directory: Path | None) -> tuple[str, ...]:
    """A line for each log that its process took the right to write from (`record/writer.py`): there was no room left even for a name."""
    try:
        logs = [] if directory is None else sorted(directory.glob(f"{PREFIX}*.log"))
        cut = [log.name for log in logs if not log.stat().st_mode & stat.S_IWUSR]
    except OSError:
        return ()
    return tuple(f"recording stopped: {name} could not be written to its end" for name in cut)


def signal_name(number: int) -> str:
    """The signal's name; real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
