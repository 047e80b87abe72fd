"""Starting the program as a child, passing signals on, ending it when asked, and saying in the run directory how it went."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import dynadiag
from dynadiag.errors import OutputError, UsageError
from dynadiag.masking import masked_arguments, secret_values
from dynadiag.model import RunInfo
from dynadiag.private_view.choosing import command_in, warn_of
from dynadiag.private_view.recovery import recover
from dynadiag.private_view.view import View
from dynadiag.process_identity import identity
from dynadiag.record import directory as run_directory
from dynadiag.record import processes
from dynadiag.record.environment import utc_now, working_directory
from dynadiag.record.guardian import Guardian, guarded
from dynadiag.record.project import project_of
from dynadiag.record.settings import VARIABLE, Settings
from dynadiag.record.stability import StabilityWatch
from dynadiag.record.target import RecordOptions, Target, command_of
from dynadiag.record.terminal import Terminal, stdin_is_terminal
from dynadiag.record.writer import PREFIX, WARNED_VARIABLE
from dynadiag.scratch import OWNER

_BOOTSTRAP = Path(__file__).resolve().parents[1] / "bootstrap"
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTSTP", "SIGCONT")
_LOOK_S = 1.0
_TIMED_OUT = 124
_INTERRUPTED = 130
_ENDING = frozenset(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))


@dataclass(frozen=True, slots=True)
class RecordResult:
    """How the program ended. `directory` is None when nothing could be recorded; `exit_status` is what our own process should return.

    `told_to_end` is the signal by which somebody asked us to end (SIGTERM, SIGHUP, SIGQUIT), which the program was given too.
    """

    directory: Path | None
    exit_status: int
    signal: str | None = None
    timed_out: bool = False
    interrupted: bool = False
    stopped_stable: bool = False
    warnings: tuple[str, ...] = ()
    told_to_end: int | None = None


@dataclass
class _Progress:
    """What happens while the program runs."""

    interrupts: int = 0
    timed_out: bool = False
    stopped_stable: bool = False
    warnings: list[str] = field(default_factory=list)
    group: int | None = None
    early_signals: list[int] = field(default_factory=list)
    terminal: Terminal = field(default_factory=Terminal)
    guardian: Guardian = field(default_factory=guarded)
    woken: int | None = None
    asked_to_stop: bool = False
    interrupted_at: float | None = None
    told_to_end: int | None = None

    def started(self, group: int, mark: str | None) -> None:
        """The program runs: what came before goes to its process group now. The terminal's Ctrl-C goes there once somebody counts it."""
        self.guardian.watch(group, [mark] if mark else [])
        if stdin_is_terminal():
            self.terminal.lend(group)
        self.group = group
        for number in self.early_signals:
            processes.signal_group(group, number)

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        """A signal handler."""
        if number == signal.SIGINT:
            self.interrupts += 1
        if number in _ENDING:
            self.told_to_end = number
        if self.group is None:
            self.early_signals.append(number)
            return
        self.asked_to_stop |= number == signal.SIGTSTP
        if number == signal.SIGCONT and stdin_is_terminal():
            self.terminal.lend(self.group)
        processes.signal_group(self.group, number)

    def wait(self, child: subprocess.Popen[bytes], seconds: float) -> bool:
        """Wait for the end of the program, a signal, or Ctrl-C; whether it has ended. A program that is stopped stops us too."""
        wakers = [item for item in (self.woken, self.guardian.descriptor) if item is not None]
        ended = processes.wait(child, seconds, wakers)
        if self.woken is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self.woken, 1 << 10)
        self.interrupts += self.guardian.presses()
        if not ended and (number := processes.stopped_by(child)) is not None and self.woken is not None:
            self.terminal.follow_stop(child.pid, number, asked=self.asked_to_stop)
            self.asked_to_stop = False
        return ended

    def explain_interrupt(self) -> None:
        """Say what a second Ctrl-C does, once, to who pressed it a second ago and sees the program go on."""
        now = time.monotonic()
        if self.interrupts == 1 and self.interrupted_at is None:
            self.interrupted_at = now
        elif self.interrupts == 1 and now - (self.interrupted_at or now) >= _LOOK_S:
            self.interrupted_at = float("inf")
            self.say("the script continues after Ctrl-C; a second one ends it")

    def over(self) -> None:
        """The program has ended."""
        self.guardian.forget()
        self.terminal.close()

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.say(text)

    def say(self, text: str) -> None:
        """The terminal may belong to the program now, and `stty tostop` stops whoever else writes there."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        with contextlib.suppress(OSError, ValueError):  # a closed descriptor, a terminal that hung up
            print(f"dynadiag: {text}", file=sys.stderr, flush=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def record(target: Target, options: RecordOptions) -> RecordResult:
    """Run a program unchanged and record what torch.compile does in all its processes.

    Raises UsageError, UnreadableInputError or OutputError before the program starts. A directory that cannot be written gives one warning
    and the program runs unrecorded. Exit status: the program's own, 128+n for a signal, 124 after `timeout_s`, 130 when interrupted, 0
    after `stop_when_stable_s`.
    """
    command = command_of(target, options.python)
    project = project_of(Path(target.argv[0]).absolute() if target.kind == "script" else None)
    progress = _Progress()
    directory = _make_directory(target, options, progress)
    if options.announce and directory is not None:
        progress.say(f"recording to {from_here(directory)}/")
    info = RunInfo(
        directory=None if directory is None else str(directory),
        dynadiag=dynadiag.__version__,
        command=masked_arguments(command, secret_values(os.environ)),
        cwd=working_directory(),
        started_at=utc_now(),
        running=True,
        own=project.own,
        libraries=project.libraries,
    )
    _write_info(directory, info, progress)
    mark = None if directory is None else _settings(directory, options).dumps()
    with _signals_passed_on(progress) as ignored:
        progress.guardian.expect([f"{VARIABLE}={mark}"] if mark else [])
        progress.guardian.settle()
        child = _start(_in_view(command, options.view, directory), mark, ignored, options)
        try:
            progress.started(child.pid, mark and f"{VARIABLE}={mark}")
            _watch_over(child, directory, options, progress)
        finally:
            progress.over()
            if options.view is not None:  # what a process that was killed had no time for
                warn_of(recover(Path(options.view.undo)))
    return _finish(child, directory, info, progress)


def from_here(directory: Path) -> str:
    """The directory as somebody in the current folder types it."""
    here = working_directory()
    near = here is not None and directory.is_relative_to(here)
    name = str(directory.relative_to(here) if near and here is not None else directory)
    return shlex.quote(name) if name.isprintable() else ascii(name)


def _make_directory(target: Target, options: RecordOptions, progress: _Progress) -> Path | None:
    try:
        if options.out is not None:
            return run_directory.chosen_directory(options.out, force=options.force).resolve()
        base = working_directory()
        if base is None and options.required:
            raise OutputError("the current folder was deleted: --out DIR gives the recording a place")
        if base is None:
            progress.warn("the current folder was deleted: the script runs unrecorded, without a report; --out DIR gives them a place")
            return None
        return run_directory.new_directory(Path(base), target.argv[0]).resolve()
    except OSError as error:
        failed = f"cannot write {error.filename or options.out or 'the recording'}: {error.strerror}"
        if options.required:
            raise OutputError(failed) from error
        progress.warn(f"{failed}; the script runs unrecorded, without a report")
        return None


def _write_info(directory: Path | None, info: RunInfo, progress: _Progress) -> None:
    if directory is None:
        return
    try:
        run_directory.write_marker(directory, asdict(info) | {"supervisor": identity()})
    except OSError as error:
        progress.warn(f"cannot write {directory}: {error.strerror}; the script continues")


def _start(command: list[str], settings: str | None, ignored: Sequence[int], options: RecordOptions) -> subprocess.Popen[bytes]:
    """The program, with the signals ignored that we found ignored and had to listen to (the others it inherits as they are)."""
    environment = {name: value for name, value in os.environ.items() if name not in (WARNED_VARIABLE, OWNER)} | {**options.environment}
    if settings is not None:
        environment[VARIABLE] = settings
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_BOOTSTRAP), os.environ.get("PYTHONPATH"))))
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        with contextlib.nullcontext() if options.output is None else options.output.open("wb") as output:
            return subprocess.Popen(
                command,
                env=environment,
                process_group=0,
                stdout=2 if output is None and options.stdout_to_stderr else output,
                stderr=None if output is None else subprocess.STDOUT,
                preexec_fn=partial(_ignore, ignored) if ignored else None,
            )
    except OSError as error:
        raise UsageError(f"cannot start {command[0]}: {error.strerror}") from error


def _in_view(command: list[str], view: View | None, directory: Path | None) -> list[str]:
    return command if view is None else command_in(view if directory is None else view.and_passed(directory), command)


def _ignore(numbers: Sequence[int]) -> None:
    """In the child, before it becomes the program."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def _settings(directory: Path, options: RecordOptions) -> Settings:
    return Settings(
        str(directory),
        os.getpid(),
        options.log_cap_bytes,
        options.cost,
        dynadiag.__version__,
        parity_calls=options.parity_calls,
        parity_cap_bytes=options.parity_cap_bytes,
        project=None if options.project is None else str(options.project),
        key_parts=options.key_parts,
    )


def _watch_over(child: subprocess.Popen[bytes], directory: Path | None, options: RecordOptions, progress: _Progress) -> None:
    """Wait for the end of the program; end it when its time is over, nothing new compiles, or Ctrl-C is pressed twice."""
    mark = None if directory is None else f"{VARIABLE}={_settings(directory, options).dumps()}".encode()
    began = time.monotonic()
    stability = StabilityWatch(directory, options.stop_when_stable_s) if directory and options.stop_when_stable_s else None
    while not progress.wait(child, _next_look_s(began, options)):
        if options.timeout_s is not None and time.monotonic() - began >= options.timeout_s:
            progress.timed_out = True
        elif stability is not None and stability.is_stable():
            progress.stopped_stable = True
        elif progress.interrupts < 2:
            progress.explain_interrupt()
            continue
        processes.end_all(child, mark)
    progress.interrupts += progress.guardian.presses(settled=True)
    if child.returncode == -signal.SIGINT:
        progress.interrupts += 1
    if progress.interrupts or progress.timed_out or progress.stopped_stable:
        processes.end_all(child, mark, grace_s=2.0)


def _next_look_s(began: float, options: RecordOptions) -> float:
    """Never longer than a second: without a pidfd a signal does not end the wait (PEP 475), and a second Ctrl-C must be noticed."""
    left_s = _LOOK_S if options.timeout_s is None else began + options.timeout_s - time.monotonic()
    return max(0.0, min(_LOOK_S, left_s))


@contextmanager
def _signals_passed_on(progress: _Progress) -> Iterator[Sequence[int]]:
    """Ctrl-C and other signals reach the program's group instead of ending us; in place before the program starts.

    What we found ignored (`nohup`, a shell's background job) stays ignored, for us and for the program; SIGCHLD alone we cannot ignore: the
    exit status would be lost. Gives the signals that the program ignores and we do not.
    """
    numbers = [getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name)]
    before: dict[int, Any] = {}
    with ExitStack() as stack:
        try:
            before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
            before |= {number: signal.signal(number, progress.pass_on) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
            progress.woken = stack.enter_context(_wakeup())
        except ValueError:  # not the main thread: nothing to pass on, the interrupt goes there
            before = {}
        try:
            yield [number for number, handler in before.items() if handler == signal.SIG_IGN]
        finally:
            progress.woken = None
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def _wakeup() -> Iterator[int]:
    """A descriptor that can be read as soon as a signal came."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


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
    facts = asdict(info) | {"ended_at": utc_now(), "exit_status": exit_status, "signal": name, "timed_out": progress.timed_out}
    facts |= {"interrupted": interrupted, "stopped_stable": progress.stopped_stable, "running": False, "stopped": _unwritable(directory)}
    _write_info(directory, RunInfo(**facts), progress)
    return RecordResult(
        directory,
        exit_status,
        name,
        progress.timed_out,
        interrupted,
        progress.stopped_stable,
        tuple(progress.warnings),
        told_to_end=progress.told_to_end,
    )


def _unwritable(directory: Path | None) -> tuple[str, ...]:
    """A line for each log that its process took the right to write from (`record/writer.py`): there was no room left even for a name."""
    try:
        logs = [] if directory is None else sorted(directory.glob(f"{PREFIX}*.log"))
        cut = [log.name for log in logs if not log.stat().st_mode & stat.S_IWUSR]
    except OSError:
        return ()
    return tuple(f"recording stopped: {name} could not be written completely" for name in cut)


def signal_name(number: int) -> str:
    """The signal's name; real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
