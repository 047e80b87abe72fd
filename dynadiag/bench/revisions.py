"""A revision of a git repository as plain files; the working tree and the repository stay as they are."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from dynadiag.errors import UsageError


def extract(revision: str, into: Path, *, here: Path) -> Path:
    """Write the files of `revision` of the repository around `here` into `into`; gives the folder there that stands where `here` does.

    Raises UsageError when there is no git, no repository or no such revision.
    """
    top = Path(_git(["rev-parse", "--show-toplevel"], here).decode().strip())
    if revision.startswith("-"):
        raise UsageError(f"--git {revision}: not a revision")
    commit = (
        _git(["rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"], here, f"--git {revision}: no such revision").decode().strip()
    )
    with tarfile.open(fileobj=io.BytesIO(_git(["archive", "--format=tar", commit], top))) as archive:
        archive.extractall(into, filter="data")
    folder = into / here.resolve().relative_to(top.resolve())
    if not folder.is_dir():
        raise UsageError(f"--git {revision}: {here} does not exist there")
    return folder


def _git(arguments: list[str], here: Path, message: str = "--git: this is no git repository, or git is missing") -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=here, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise UsageError(message) from None
