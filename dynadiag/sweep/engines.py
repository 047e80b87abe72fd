"""What runs the tasks of a sweep: the local engine, so many at a time with GPUs of their own, and the Ray engine."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import queue
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dynadiag.errors import UsageError
from dynadiag.files import make_folder_inside, read_small, write_inside
from dynadiag.scratch import scratch
from dynadiag.sweep.perform import OUTPUT, Limits, perform
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


# The Ray engine: the same tasks on the nodes of a Ray cluster, whose scheduling, retries and care for lost nodes are Ray's own.

KEPT = (OUTPUT, "report.html", "report.json", "report.md", "parity.json", "bench.json", "fix.json", "fixes.patch")
"""Files of a task that come back from another machine, the logs do not."""
_LONGEST_FILE = 64 << 20
_RETRIES = 3
_WAIT_S = 1.0
_CONNECT_S = 10.0


def run_on_ray(
    tasks: Sequence[Task], folder: Path, limits: Limits, *, address: str | None, cpus: float
) -> Iterator[tuple[Task, TaskRow | OSError]]:
    """Each task with its row, as they end; its files are in `folder` then. `address` None starts a Ray of our own on this machine.

    A task whose node is lost runs again on another one, three times at most; then its row says "lost". `cpus` are reserved for each task.
    Raises UsageError where there is no Ray, no cluster at the address, or one with another version of Ray or Python.
    """
    ray = _connected(address)
    remote = ray.remote(max_retries=_RETRIES, num_cpus=cpus)(_perform)
    # Ray 2.60 prints what it says about a lost node to stdout, where the result goes, even with log_to_driver=False. Its logs have it too.
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            pending = {remote.options(num_gpus=task.arm.gpus, name=task.subject[:80]).remote(task, limits): task for task in tasks}
            while pending:
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=_WAIT_S)
                for reference in ready:
                    task = pending.pop(reference)
                    yield task, _taken(ray, reference, task, folder)
        finally:
            ray.shutdown()


def _connected(address: str | None) -> Any:
    _refuse_silence(address)
    try:
        # Without this Ray 2.60 writes twenty lines of its own about one cluster that it cannot use.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")
        import ray
    except ModuleNotFoundError:
        raise UsageError("--engine ray needs the package ray: install dynadiag[ray]") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray has no one class for no cluster, or one of another version
        said = " ".join(str(error).split())[:300]
        more = " (RAY_BACKEND_LOG_LEVEL=warning shows what Ray says to it)" if isinstance(error, ConnectionError) else ""
        raise UsageError(f"no Ray cluster can be used at {address or 'this machine'}: {type(error).__name__}: {said}{more}") from error
    return ray


def _refuse_silence(address: str | None) -> None:
    """Ray asks an address where nobody listens for ten minutes and more (seen on 2.60)."""
    host, _, port = (address or "").rpartition("//")[2].rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray cluster can be used at {address}: {error}") from None


def _perform(task: Task, limits: Limits) -> tuple[TaskRow, dict[str, bytes]]:
    """On a node: the row, and the files that are worth to be kept."""
    with scratch("task") as there:
        row = perform(task, there / "run", limits)
        files = {}
        for name in KEPT:
            if (there / "run" / name).is_file():
                files[name] = read_small(there / "run" / name, _LONGEST_FILE)
        return row, files


def _taken(ray: Any, reference: Any, task: Task, folder: Path) -> TaskRow | OSError:
    try:
        given: tuple[TaskRow, dict[str, bytes]] = ray.get(reference)
        row, files = given
    except ray.exceptions.RayTaskError as error:  # our own part failed there, such as for want of room
        if isinstance(error.cause, OSError):
            return OSError(*error.cause.args)
        raise
    except ray.exceptions.RayError as error:
        said = " ".join(str(error).split())[:300]
        return TaskRow(
            key=task.key, subject=task.subject, suite=task.suite, arm=task.arm.name, verb=task.verb, settings=task.arm.settings,
            status="lost", reason=f"{type(error).__name__} after {_RETRIES} further tries: {said}",
        )  # fmt: skip
    try:
        make_folder_inside(folder, task.key)
        for name, content in files.items():
            write_inside(folder / task.key, name, content)
    except OSError as error:
        return error
    return row
