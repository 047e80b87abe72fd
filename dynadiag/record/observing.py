"""Recording from inside a program or a notebook."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import dynadiag
from dynadiag.masking import masked_arguments, secret_values
from dynadiag.model import RunInfo
from dynadiag.process_identity import identity
from dynadiag.record import directory as run_directory
from dynadiag.record import inside, writer
from dynadiag.record.environment import utc_now, working_directory
from dynadiag.record.project import project_of
from dynadiag.record.target import DEFAULT_LOG_CAP_BYTES, DEFAULT_PARITY_CAP_BYTES


@contextmanager
def observe(
    directory: str | os.PathLike[str],
    *,
    force: bool = False,
    log_cap_bytes: int = DEFAULT_LOG_CAP_BYTES,
    parity_calls: int = 0,
    parity_cap_bytes: int = DEFAULT_PARITY_CAP_BYTES,
) -> Iterator[Path]:
    """Record what `torch.compile` does inside the `with` block; yields the run directory, which `dynadiag explain` reads.

    Only this process and its forks are recorded. Raises OutputError or UnreadableInputError when the directory is in use (`force` replaces
    an earlier run). A directory that cannot be written gives one warning, and the block runs unrecorded. With `parity_calls` above 0
    that many calls of each graph compiled in the block are compared with eager, as `explain --parity` does, if copies of their inputs take
    at most `parity_cap_bytes`.
    """
    project = project_of(None)
    info = RunInfo(
        directory=str(Path(directory).absolute()),
        dynadiag=dynadiag.__version__,
        command=masked_arguments(sys.argv, secret_values(os.environ)),
        cwd=working_directory(),
        started_at=utc_now(),
        running=True,
        observed=True,
        own=project.own,
        libraries=project.libraries,
    )
    target = _prepare(Path(directory), force, info)
    recorder = inside.active(dynadiag.__version__)
    recorder.compare_calls(parity_calls, parity_cap_bytes)
    log = recorder.start(str(target), log_cap_bytes) if target is not None else None
    status = 1
    try:
        yield Path(directory)
        status = 0
    finally:
        if log is not None:
            recorder.stop(log)
        if target is not None:
            _mark(target, replace(info, ended_at=utc_now(), exit_status=status, running=False))


def _prepare(directory: Path, force: bool, info: RunInfo) -> Path | None:
    try:
        target = run_directory.chosen_directory(directory, force=force, called=True).resolve()
        run_directory.write_marker(target, asdict(info) | {"supervisor": identity()})
    except OSError as error:
        writer.warn(f"cannot write {directory}: {error.strerror}; nothing is recorded")
        return None
    return target


def _mark(target: Path, info: RunInfo) -> None:
    try:
        run_directory.write_marker(target, asdict(info) | {"supervisor": identity()})
    except OSError as error:
        writer.warn(f"cannot write {target}: {error.strerror}")
