"""A sweep from its matrix to its last row: what was done before is kept, what is missing runs, and each end is written at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dynadiag.errors import OutputError, UsageError
from dynadiag.files import make_folder_inside
from dynadiag.record.guardian import guarded
from dynadiag.sweep import engines, rows
from dynadiag.sweep.matrix import Matrix
from dynadiag.sweep.perform import Limits, perform
from dynadiag.sweep.rows import WELL, TaskRow, groups_of
from dynadiag.sweep.tasks import Task, tasks_of, to_minify

TASKS = "tasks"
"""The folder of a sweep that has one folder for each task, named by its key."""
_SHARE_OF_MEMORY = 0.9


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """How to run a sweep. `workers` tasks at a time; `shard` (i, n) takes the i-th of n parts; `retry` runs again what failed before.
    `minify` reduces one of each group of equal failures at the end.

    `engine` is local or ray; `address` is that of a Ray cluster, None for one on this machine.
    """

    workers: int
    engine: str = "local"
    address: str | None = None
    shard: tuple[int, int] = (1, 1)
    retry: bool = False
    minify: bool = False


@dataclass(frozen=True, kw_only=True)
class SweepState:
    """Where a sweep stands: all tasks of this shard, and their rows so far. `unwritten` says why tasks have no row."""

    folder: Path
    tasks: tuple[Task, ...]
    rows: tuple[TaskRow, ...]
    before: int
    unwritten: tuple[str, ...] = field(default=())

    @property
    def missing(self) -> int:
        """How many tasks have no row; `rows` may also have those of reductions, which are no tasks of the matrix."""
        return len({task.key for task in self.tasks} - {row.key for row in self.rows})

    @property
    def failed(self) -> tuple[TaskRow, ...]:
        """The rows of tasks that did not end well."""
        return tuple(row for row in self.rows if row.status not in WELL)


_Told = Callable[[SweepState, float | None], None]


def sweep(matrix: Matrix, folder: Path, options: SweepOptions, told: _Told) -> SweepState:
    """Run what has no row in `folder` yet. `told` hears of each end: where the sweep stands, and the seconds left as far as can be said.

    Raises UsageError, OutputError; KeyboardInterrupt after ending what was running: all rows are kept, and the same call goes on.
    """
    tasks = _shard(tasks_of(matrix), options.shard)
    if not tasks:
        raise UsageError("there are no tasks: no arm has one of the subjects")
    with _opened(folder):
        known = {row.key: row for row in rows.read(folder)} if (folder / rows.JOURNAL).exists() else {}
        done = {task.key: known[task.key] for task in tasks if task.key in known}
        done = {key: row for key, row in done.items() if not options.retry or row.status in WELL}
        missing = [task for task in tasks if task.key not in done]
        state = SweepState(folder=folder, tasks=tuple(tasks), rows=tuple(done.values()), before=len(done))
        told(state, None)
        guarded()
        state = _run(missing, state, matrix, options, told)
        if options.minify:
            failing = {task.key: task for task in tasks if task.verb in ("run", "explain")}
            cheapest = (
                min(group, key=lambda row: (row.cpu_s or 0.0, row.key))
                for group in groups_of(row for row in state.rows if row.key in failing)
            )
            reductions = [to_minify(failing[row.key]) for row in cheapest]
            state = replace(state, rows=(*state.rows, *(known[task.key] for task in reductions if task.key in known)))
            state = _run([task for task in reductions if task.key not in known], state, matrix, options, told)
    return state


def _run(missing: Sequence[Task], state: SweepState, matrix: Matrix, options: SweepOptions, told: _Told) -> SweepState:
    """Run tasks to their end, each row written at once."""
    begun = time.monotonic()
    for number, (task, result) in enumerate(_ends(missing, matrix, state.folder, options), 1):
        try:
            if isinstance(result, OSError):
                raise result
            rows.append(state.folder, result)
            state = replace(state, rows=(*state.rows, result))
        except OSError as error:
            said = f"{task.subject} ({task.arm.name}, {task.verb}): {error.strerror or error}"
            state = replace(state, unwritten=(*state.unwritten, said))
        told(state, (time.monotonic() - begun) / number * (len(missing) - number))
    return state


def _ends(missing: Sequence[Task], matrix: Matrix, folder: Path, options: SweepOptions) -> Iterable[tuple[Task, TaskRow | OSError]]:
    if not missing:
        return ()
    limits = Limits(timeout_s=matrix.timeout_s, memory_bytes=matrix.memory_bytes or _fair_share(options.workers))
    if options.engine == "ray":
        return engines.run_on_ray(
            missing, folder / TASKS, limits, address=options.address, cpus=max(1.0, (os.cpu_count() or 1) / options.workers)
        )
    return _local(missing, folder, limits, options.workers)


def _local(missing: Sequence[Task], folder: Path, limits: Limits, workers: int) -> Iterator[tuple[Task, TaskRow | OSError]]:
    def run_one(task: Task, gpus: tuple[str, ...] | None, given_up: Callable[[], bool]) -> TaskRow:
        shutil.rmtree(folder / TASKS / task.key, ignore_errors=True)  # what an earlier try left there
        return perform(task, folder / TASKS / task.key, limits, gpus, given_up)

    return engines.run_locally(missing, run_one, workers=workers)


def _fair_share(workers: int) -> int:
    """Bytes for one task where the matrix names no limit."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _SHARE_OF_MEMORY / workers)


def _shard(tasks: Sequence[Task], shard: tuple[int, int]) -> list[Task]:
    """Every n-th task by its key, so that a part does not depend on the order of the matrix."""
    number, of = shard
    return [task for task in tasks if int(task.key, 16) % of == number - 1]


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """The folder of the sweep, made where it is not there, for us alone. Refuses one that holds something else."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not rows.is_sweep(folder):
            raise OutputError(f"{folder} holds something that is no sweep: name another folder with --out")
        rows.mark(folder)
        make_folder_inside(folder, TASKS)
        lock = os.open(folder / TASKS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise OutputError(f"another sweep is writing into {folder}") from None
    finally:
        os.close(lock)
