"""One task as a process of its own, within its limits: what it did, and what its report says, as a row."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dynadiag.files import read_small, write_inside
from dynadiag.json_lines import parsed
from dynadiag.record.processes import end_orphans
from dynadiag.scratch import scratch
from dynadiag.sweep.inside.subject import CANNOT
from dynadiag.sweep.rows import Finding, Status, TaskRow
from dynadiag.sweep.tasks import Task

_MARK = "DYNADIAG_TASK"
"""The variable that tells whose task a process is."""
_LOOK_S = 0.5
_GRACE_S = 20.0
_LONGEST_REPORT = 256 << 20
_TAIL_BYTES = 1 << 16
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_RESULTS = {verb: f"{verb}.json" for verb in ("parity", "bench", "fix", "minify", "start", "numerics")}
"""The file with the result of a verb whose exit status 1 is its verdict and no failure."""
_INNER = re.compile(r": got (\w+\(.{,400}?\)) (?:Hint|Developer debug context): ")
OUTPUT = "output.txt"
"""What the task printed, in its folder."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a task may use: seconds, and bytes of all its processes together."""

    timeout_s: float
    memory_bytes: int


class GivenUpError(Exception):
    """The sweep was given up while the task ran, and the task was ended."""


def perform(
    task: Task,
    folder: Path,
    limits: Limits,
    gpus: tuple[str, ...] | None = None,
    given_up: Callable[[], bool] = lambda: False,
) -> TaskRow:
    """Run the task to its end, with its files in `folder`; whatever happens to it is the row that comes back.

    `gpus` are the ids of the GPUs that it gets; None leaves the environment as it is. Raises OSError where `folder` cannot be written, and
    GivenUpError after ending the task once `given_up()`.
    """
    started = datetime.now(UTC)
    with scratch("sweep") as temporary:
        said = temporary / OUTPUT
        with said.open("wb") as stream:
            ended = _run(_command(task, folder, limits), task, stream, limits, gpus, given_up)
        tail = _tail(said)
    folder.mkdir(parents=True, exist_ok=True)
    write_inside(folder, OUTPUT, tail)
    report = _read(folder / _RESULTS.get(task.verb, "report.json"))
    status, reason = _status(task, ended, report, tail)
    return _row(task, ended, None if status == "skipped" else report, status=status, reason=reason, started=started)


@dataclass(frozen=True)
class _Ended:
    exit_status: int | None
    signal: int | None
    wall_s: float
    cpu_s: float
    memory_kb: int
    cut: Status | None
    gpus: str | None


def _command(task: Task, folder: Path, limits: Limits) -> list[str]:
    """The verb with its options; of a script that is not finished in time, `explain` still says what was recorded.

    `fix`, `bench` and `minify` run in the interpreter of their program, which needs dynadiag then.
    """
    script, *rest = task.words
    own = [sys.executable, "-m", "dynadiag", task.verb, "--out", str(folder)]
    there = [task.arm.python, *own[1:]]
    if task.verb == "run":
        return [task.arm.python, script, *rest]
    if task.verb == "explain":
        return [*own, "--quiet", "--python", task.arm.python, "--timeout", str(limits.timeout_s), *task.options, script, *rest]
    if task.verb in ("parity", "start"):
        return [*own, "--python", task.arm.python, script, *rest]
    if task.verb == "minify":
        return [*there, "--quiet", "--jobs", "1", script, *rest]
    return [*there, script, *rest] if task.verb in ("fix", "numerics") else [*there, script, "--", *rest]


def _run(command: list[str], task: Task, stream: Any, limits: Limits, gpus: tuple[str, ...] | None, given_up: Callable[[], bool]) -> _Ended:
    begun = time.monotonic()
    mark = f"{os.getpid()}-{os.urandom(8).hex()}"
    environment = {**os.environ, _MARK: mark}
    if gpus is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=task.cwd, env=environment, start_new_session=True
    )
    # `explain` ends the script itself at the limit; what does not end then is ended here.
    allowed_s = limits.timeout_s + (_GRACE_S if task.verb == "explain" else 0.0)
    cut: Status | None = None
    most_kb = 0
    try:
        with _watched(child) as ended_within:
            while not ended_within(_LOOK_S):
                if given_up():
                    raise GivenUpError
                used_kb = memory_of_session(child.pid)
                most_kb = max(most_kb, used_kb)
                if used_kb * 1024 > limits.memory_bytes:
                    cut = "out_of_memory"
                elif time.monotonic() - begun > allowed_s:
                    cut = "timeout"
                if cut is not None:
                    _end(child.pid, ended_within, gently=cut == "timeout")
    except BaseException:  # the sweep was given up, in this thread or in that of the engine: the task goes with it
        _signal_session(child.pid, signal.SIGKILL)
        child.wait()
        _end_strays(mark)
        raise
    _, code, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(code)
    _signal_session(child.pid, signal.SIGKILL)  # what it left behind
    _end_strays(mark)
    status = child.returncode
    return _Ended(
        exit_status=status if status >= 0 else None,
        signal=-status if status < 0 else None,
        wall_s=time.monotonic() - begun,
        cpu_s=used.ru_utime + used.ru_stime,
        memory_kb=max(most_kb, used.ru_maxrss),
        cut=cut,
        gpus=environment.get("CUDA_VISIBLE_DEVICES") if task.arm.gpus else None,  # ours, or those that Ray gave to its worker
    )


@contextlib.contextmanager
def _watched(child: subprocess.Popen[bytes]) -> Iterator[Any]:
    """A callable that waits so many seconds for the end of the child, and says whether it has ended; it does not reap it."""
    descriptor = os.pidfd_open(child.pid)
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    try:
        yield lambda seconds: bool(poller.poll(seconds * 1000))
    finally:
        os.close(descriptor)


def _end(session: int, ended_within: Any, *, gently: bool) -> None:
    if gently:
        _signal_session(session, signal.SIGTERM)
        if ended_within(_GRACE_S):
            return
    _signal_session(session, signal.SIGKILL)
    ended_within(_GRACE_S)


def _end_strays(mark: str) -> None:
    """End what left the session of the task, such as a daemon: the environment stays with it."""
    end_orphans(None, [os.fsencode(f"{_MARK}={mark}")], first=signal.SIGKILL, grace_s=_GRACE_S)


def memory_of_session(session: int) -> int:
    """Kilobytes that the processes of a session have in memory; pages that they share count once for each."""
    return _PAGE_KB * sum(pages for _, of, pages in _processes() if of == session)


def _signal_session(session: int, number: int) -> None:
    """Signal every process of the session, whatever group it has made for itself."""
    for pid, of, _ in list(_processes()):
        if of == session:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _processes() -> Iterator[tuple[int, int, int]]:
    """Pid, session and resident pages of every process that may be seen (proc(5), /proc/pid/stat)."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat", "rb") as stream:  # noqa: PTH123 - thousands of them
                fields = stream.read().rpartition(b")")[2].split()
            yield int(entry.name), int(fields[3]), int(fields[21])
        except (OSError, IndexError, ValueError):
            continue


def _tail(path: Path) -> bytes:
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        return stream.read()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return parsed(read_small(path, _LONGEST_REPORT))
    except OSError:
        return None


def _status(task: Task, ended: _Ended, report: dict[str, Any] | None, tail: bytes) -> tuple[Status, str | None]:
    """How it ended, and why not well. The words come from what the task printed last."""
    if ended.cut == "out_of_memory":
        return "out_of_memory", f"ended at {ended.memory_kb / 1e6:.1f} GB, over its limit"
    if ended.cut == "timeout" or (report is not None and report.get("run", {}).get("timed_out")):
        return "timeout", f"not finished after {ended.wall_s:.0f} s"
    if ended.signal is not None or (ended.exit_status or 0) > 128:
        number = ended.signal or (ended.exit_status or 0) - 128
        name = signal.Signals(number).name if number in set(map(int, signal.Signals)) else str(number)
        return "crashed", f"ended by {name}"
    if ended.exit_status == 0 or (ended.exit_status == 1 and task.verb in _RESULTS and report is not None):
        return "done", None
    last = _last_line(tail)
    return ("skipped" if ended.exit_status == CANNOT else "failed"), last or f"exit status {ended.exit_status}"


def _last_line(tail: bytes) -> str | None:
    lines = [line.strip() for line in tail.decode(errors="replace").splitlines() if line.strip()]
    skipped = [line for line in lines if line.startswith("skipped: ")]
    raised = [line for line in lines if ":" in line and line.split(":")[0].rpartition(".")[2].endswith(("Error", "Exception", "Interrupt"))]
    chosen = skipped or raised or lines
    if not chosen:
        return None
    said = chosen[-1].removeprefix("skipped: ")
    # Dynamo names every failure of a fake implementation alike, and says what it was further on (torch 2.9 to 2.15).
    inner = _INNER.findall(" ".join(lines)) if said.endswith("when making fake tensor call") else ()
    return f"{said}: {inner[-1]}"[:500] if inner else said[:500]


def _row(task: Task, ended: _Ended, report: dict[str, Any] | None, *, status: Status, reason: str | None, started: datetime) -> TaskRow:
    versions = dict(task.versions)
    summary = ((report or {}).get("summary") or {}) if task.verb == "explain" else {}
    work = (report or {}).get("compiled_work") or {}
    return TaskRow(
        key=task.key,
        subject=task.subject,
        suite=task.suite,
        arm=task.arm.name,
        verb=task.verb,
        settings=task.arm.settings,
        dynadiag=versions.get("dynadiag"),
        torch=versions.get("torch"),
        python=versions.get("python"),
        library=versions.get(task.suite),
        status=status,
        reason=reason,
        verdict=_verdict(task.verb, report) if status == "done" else None,
        exit_status=ended.exit_status,
        signal=ended.signal,
        started_at=started.isoformat(timespec="milliseconds"),
        wall_s=round(ended.wall_s, 3),
        cpu_s=round(ended.cpu_s, 3),
        memory_mb=round(ended.memory_kb / 1000, 1),
        host=platform.node(),
        gpus=ended.gpus,
        graphs=summary.get("graphs"),
        break_sites=summary.get("graph_break_sites"),
        recompiles=summary.get("recompiles"),
        fallbacks=summary.get("fallbacks"),
        mutations=summary.get("mutations"),
        compile_s=summary.get("compile_s"),
        compiled_share=work.get("share"),
        findings=tuple(_findings(report)) if task.verb == "explain" else (),
    )


def _verdict(verb: str, result: dict[str, Any] | None) -> str | None:
    """What a verb other than `explain` found, in a few words."""
    if result is None:
        return None
    if verb == "bench":
        said = (
            f"{item.get('arm')} {item.get('verdict')} {_times(item.get('speedup'))}".strip() for item in result.get("comparisons") or ()
        )
        return ", ".join(said)[:300] or None
    summary = result.get("summary") or {}
    if verb == "minify":
        proven = "proven" if result.get("proven") else "not proven"
        return f"{result.get('kind')}: {_size(result.get('size_before'))} to {_size(result.get('size_after'))}, {proven}"
    if verb == "start":
        return f"{result.get('missed')} of {len(result.get('compilations') or ())} compilations not warm"
    if verb == "numerics":
        return ", ".join(f"{summary.get(name)} {word}" for name, word in _NUMERICS.items())
    if verb == "fix":
        return f"{summary.get('cured')} of {summary.get('findings')} cured"
    return (
        f"{summary.get('findings')} differences in {summary.get('compared')} of {summary.get('graphs')} graphs"
        if verb == "parity"
        else None
    )


_NUMERICS = {"faults": "faults", "rounding": "within rounding", "equal": "equal", "skipped": "not compared"}


def _size(size: Any) -> str:
    """The size of a graph or a script, as `minify.json` has it."""
    counts = size if isinstance(size, dict) else {}
    return next((f"{counts[unit]} {unit}" for unit in ("nodes", "statements") if isinstance(counts.get(unit), int)), "unknown size")


def _times(speedup: Any) -> str:
    return f"{speedup:.2f}x" if isinstance(speedup, (int, float)) else ""


def _findings(report: dict[str, Any] | None) -> Iterator[Finding]:
    for item in (report or {}).get("findings") or ():
        where, cost = item.get("where") or {}, item.get("cost") or {}
        yield Finding(
            code=str(item.get("code")),
            severity=str(item.get("severity")),
            fingerprint=item.get("fingerprint"),
            title=str(item.get("title"))[:500],
            file=where.get("file"),
            line=where.get("line"),
            cost=cost.get("value"),
            unit=cost.get("unit"),
        )
