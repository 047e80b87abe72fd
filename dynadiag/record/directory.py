"""The run directory: named, marked as ours, and replaced only when it is ours."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dynadiag.errors import OutputError, UnreadableInputError
from dynadiag.files import make_folder_inside, read_small, write_inside
from dynadiag.record import ownership

MARKER = "dynadiag-run.json"
RUNS = "dynadiag-runs"
FORMAT = 1
_MAX_SLUG = 40
_SPARE_BYTES = 1000
_LONGEST_MARKER_BYTES = 4 << 20
_PRIVATE = 0o700  # a log holds source lines, paths and command lines


def new_directory(base: Path, program: str, *, latest: bool = True) -> Path:
    """A fresh `dynadiag-runs/NNNN-<program>` under `base`, with a `.gitignore` beside it and `latest` leading to it. Raises OSError."""
    runs = base / RUNS
    make_folder_inside(base, RUNS)
    if not os.path.lexists(runs / ".gitignore"):
        write_inside(runs, ".gitignore", "*\n")
    while True:
        directory = runs / f"{_last_number(runs) + 1:04d}-{slug(program)}"
        try:
            directory.mkdir(_PRIVATE)
        except FileExistsError:
            continue
        if latest:
            point_latest(runs, directory.name)
        return directory


def chosen_directory(path: Path, *, force: bool, called: bool = False) -> Path:
    """The folder that somebody named by `--out`, or in a call (`called`), made or emptied.

    Raises UnreadableInputError when it is in use, OutputError when it is not ours.
    """
    other, replaces = ("pass another directory", "force=True") if called else ("choose a different --out", "--force")
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file, not a folder")
    if path.is_dir() and any(path.iterdir()):
        if not force:
            raise UnreadableInputError(f"{path} is not empty: {other}, or use {replaces} to replace an earlier run", slug="output-in-use")
        if not is_run_directory(path):
            raise OutputError(f"{path} was not created by dynadiag (no {MARKER}): {replaces} does not replace it")
        clear(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(_PRIVATE, exist_ok=True)
    return path


def is_run_directory(path: Path) -> bool:
    """Whether a folder carries our marker."""
    try:
        content = json.loads(read_small(path / MARKER, _LONGEST_MARKER_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT and "dynadiag" in content


def write_marker(directory: Path, facts: Mapping[str, Any]) -> None:
    """Write the marker with the supervisor's facts, whole or not at all. Raises OSError.

    It ends in spaces, so that the facts about the end of a run have room in it even when the disk is full by then. A seal says that this
    user made the directory on this machine (`dynadiag.record.ownership`).
    """
    marker = directory / MARKER
    sealed = {"format": FORMAT, **facts, "seal": ownership.seal(directory)}
    data = (json.dumps(sealed, indent=1) + "\n").encode("utf-8", "backslashreplace")
    try:
        write_inside(directory, MARKER, data + b" " * _SPARE_BYTES + b"\n")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not _fits_into(marker, data):
            raise
        _overwrite(marker, data)


def seal_again(directory: Path) -> None:
    """Renew the seal of a directory of ours after more was written to its logs; a directory that was not ours stays so."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        facts = json.loads(read_small(directory / MARKER, _LONGEST_MARKER_BYTES))
        write_marker(directory, {name: value for name, value in facts.items() if name not in ("format", "seal")})


def is_ours(directory: Path, logs: Iterable[Path] = ()) -> bool:
    """Whether this user made the directory on this machine, and nobody changed these logs in it since (`dynadiag.record.ownership`)."""
    try:
        facts = json.loads(read_small(directory / MARKER, _LONGEST_MARKER_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(facts, dict) and ownership.is_sealed(directory, facts.get("seal"), logs)


def _fits_into(marker: Path, data: bytes) -> bool:
    return marker.is_file() and not marker.is_symlink() and len(data) <= marker.stat().st_size


def _overwrite(marker: Path, data: bytes) -> None:
    """Put new bytes in the place of old ones, which asks for no new space on most file systems."""
    descriptor = os.open(marker, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        os.pwrite(descriptor, data.ljust(os.fstat(descriptor).st_size), 0)
    finally:
        os.close(descriptor)


def slug(program: str) -> str:
    """A harmless file name for a program: ASCII letters, digits and hyphens, never empty."""
    stem = Path(program).stem or program
    return re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-")[:_MAX_SLUG].strip("-").lower() or "run"


def point_latest(runs: Path, name: str) -> None:
    """Make `latest` lead to the newest run: a link, or a text file where links are not allowed; a file of somebody else is left alone."""
    latest = runs / "latest"
    try:
        if latest.is_symlink() or latest.is_file():
            latest.unlink()
        latest.symlink_to(name, target_is_directory=True)
    except FileExistsError:
        return
    except (OSError, NotImplementedError):
        write_inside(runs, latest.name, name + "\n")


def _last_number(runs: Path) -> int:
    numbers = [int(match[1]) for entry in runs.iterdir() if (match := re.match(r"(\d{4,9})-", entry.name))]
    return max(numbers, default=0)


def clear(directory: Path) -> None:
    """Delete all that is in a folder of ours. Raises OSError."""
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
