"""Run directories: whose they are, which a folder has, and how old ones are removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dynadiag.errors import NothingFoundError, OutputError, UnreadableInputError
from dynadiag.model.run import RunInfo
from dynadiag.record.directory import is_ours, is_run_directory
from dynadiag.trace.sources import MARKER, find_sources, name_order, run_in_words, shown

_UNTOLD = timedelta(hours=1)
_MOST_LOOKED_AT = 200


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """A run directory: what it ran, when it began, how it ended, what it takes on disk.

    Where no start was recorded (a run of `bench` or `minify`), `started_at` is when the directory last changed. `ended` is False of a run
    that may still be written: it goes on, ended elsewhere, or says nothing of its end and changed within the last hour.
    """

    directory: Path
    command: str
    started_at: datetime
    status: str
    size_bytes: int
    ended: bool


def refuse_damaged(directory: Path, otherwise: str) -> None:
    """Raises UnreadableInputError for a run directory whose marker was damaged; `otherwise` says what was not done with it."""
    if (directory / MARKER).is_file() and not is_run_directory(directory):
        raise UnreadableInputError(f"{directory / MARKER} is damaged, so {otherwise}: record the program again")


def runs_in(folder: Path) -> list[RunEntry]:
    """The run directories in a folder, oldest first. Links and folders without a marker are none.

    UnreadableInputError for a folder that cannot be read, NothingFoundError where it has no run.
    """
    try:
        with os.scandir(folder) as entries:
            found = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise UnreadableInputError(f"cannot read {shown(folder)}: {error.strerror}") from None
    runs = [_entry(run) for run in found if (run / MARKER).is_file()]
    if not runs:
        raise NothingFoundError(f"no run directory in {shown(folder)}: a run has the file {MARKER}")
    return sorted(runs, key=lambda run: (run.started_at, name_order(run.directory.name)))


def recorded_here(path: Path) -> bool:
    """Whether this user recorded a run, or the run whose log this is, on this machine: else no file that it names is opened."""
    logs = find_sources(path).logs
    return bool(logs) and is_ours(path if path.is_dir() else path.parent, logs)


def run_before(run: Path) -> Path | None:
    """The newest run of the same command that began before this one and lies beside it; None where there is none, or that is not known."""
    ours = _told(run)
    if ours is None or ours.command is None or (began := _time(ours.started_at)) is None:
        return None
    found: list[tuple[datetime, Path]] = []
    try:
        beside = [path for path in run.absolute().parent.iterdir() if path.name != run.name and not path.is_symlink()]
    except OSError:
        return None
    for path in sorted(beside, key=lambda path: name_order(path.name), reverse=True)[:_MOST_LOOKED_AT]:
        info = _told(path)
        if info is not None and (info.command, info.cwd) == (ours.command, ours.cwd):
            started = _time(info.started_at)
            if started is not None and started < began:
                found.append((started, path))
    return max(found)[1] if found else None


def _told(run: Path) -> RunInfo | None:
    return run_in_words(run)[0] if (run / MARKER).is_file() else None


def to_remove(runs: Sequence[RunEntry], *, keep: int | None = None, older_than_days: float | None = None) -> list[RunEntry]:
    """The ended runs that are neither among the newest `keep` nor younger than so many days."""
    newest = {run.directory for run in runs[-keep:]} if keep else set()
    limit = None if older_than_days is None else datetime.now(UTC) - timedelta(days=older_than_days)
    return [run for run in runs if run.ended and run.directory not in newest and (limit is None or run.started_at < limit)]


def remove(runs: Sequence[RunEntry], folder: Path) -> None:
    """Delete these directories, and a link `latest` that then leads nowhere. OutputError where one cannot be deleted."""
    for run in runs:
        try:
            shutil.rmtree(run.directory)
        except OSError as error:
            raise OutputError(f"cannot delete {shown(run.directory)}: {error.strerror}") from None
    latest = folder / "latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink()


def _entry(run: Path) -> RunEntry:
    info, command, status = run_in_words(run)
    changed = datetime.fromtimestamp(run.lstat().st_mtime, UTC)
    told = info.exit_status is not None or info.killed
    return RunEntry(
        directory=run,
        command=command,
        started_at=_time(info.started_at) or changed,
        status=status,
        size_bytes=sum(_sizes(run)),
        ended=not (info.running or info.unended) and (told or datetime.now(UTC) - changed > _UNTOLD),
    )


def _sizes(folder: Path) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - a run may have 100,000 files
            except OSError:
                continue


def _time(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
