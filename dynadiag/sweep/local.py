"""The local engine: so many tasks at a time on this machine, each with GPUs of its own where its arm asks for some."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence

from dynadiag.errors import UsageError
from dynadiag.sweep.rows import TaskRow
from dynadiag.sweep.tasks import Task

Perform = Callable[[Task, tuple[str, ...] | None, Callable[[], bool]], TaskRow]
"""Runs a task with GPUs of these ids; it ends the task and raises once the callable says that the sweep is given up."""
_NVIDIA_SMI_S = 30.0


def run_locally(tasks: Sequence[Task], perform: Perform, *, workers: int) -> Iterator[tuple[Task, TaskRow | OSError]]:
    """Each task with its row, as they end. A task waits until as many GPUs are free as its arm asks for.

    When the iteration is given up (Ctrl-C, an error), what runs is ended and no further task starts. Raises UsageError for more GPUs than
    there are.
    """
    devices = _Devices(max((task.arm.gpus for task in tasks), default=0))
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    ended: queue.SimpleQueue[tuple[Task, TaskRow | BaseException]] = queue.SimpleQueue()
    closed = threading.Event()

    def work() -> None:
        while not closed.is_set():
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                return
            with devices.taken(task.arm.gpus) as ids:
                if closed.is_set():
                    return
                try:
                    ended.put((task, perform(task, ids, closed.is_set)))
                except BaseException as error:  # noqa: BLE001 - raised again in the thread that reads
                    ended.put((task, error))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, len(tasks)))]
    for thread in threads:
        thread.start()
    try:
        for _ in range(len(tasks)):
            task, result = ended.get()
            if isinstance(result, BaseException) and not isinstance(result, OSError):
                raise result
            yield task, result
    finally:
        closed.set()
        for thread in threads:
            thread.join()


class _Devices:
    """GPUs that are free, by id."""

    def __init__(self, wanted: int) -> None:
        self._free = gpu_ids() if wanted else []
        self._changed = threading.Condition()
        if wanted > len(self._free):
            raise UsageError(f"an arm asks for {wanted} GPUs, and this machine has {len(self._free)}")

    @contextlib.contextmanager
    def taken(self, count: int) -> Iterator[tuple[str, ...] | None]:
        """So many GPUs belong to one task in the block; gives their ids, None for a task that asks for none."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._free) >= count)
            ids, self._free = tuple(self._free[:count]), self._free[count:]
        try:
            yield ids or None
        finally:
            with self._changed:
                self._free.extend(ids)
                self._changed.notify_all()


def gpu_ids() -> list[str]:
    """The GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else all that `nvidia-smi` lists."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [part.strip() for part in chosen.split(",") if part.strip() and part.strip() != "-1"]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_NVIDIA_SMI_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(number) for number, line in enumerate(line for line in listed.stdout.splitlines() if line.startswith("GPU "))]
