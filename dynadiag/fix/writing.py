"""What `dynadiag fix --write` does to the user's files and what it refuses, and the command that applies a patch instead."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from dynadiag.errors import OutputError
from dynadiag.files import is_read_only, write_file
from dynadiag.fix.result import FixResult


def refuse_to_write(files: Iterable[Path], *, force: bool) -> None:
    """Raise OutputError for the first file that may not be written: it is read-only, or git has another text of it; `force` allows both."""
    if force:
        return
    for file in files:
        if is_read_only(file):
            raise OutputError(f"{file} is read-only: make it writable, or use --force")
        if _is_modified(file):
            raise OutputError(f"{file} has uncommitted changes: commit them first, or use --force")


def write_sources(result: FixResult, *, force: bool = False) -> Iterator[Path]:
    """Write the changed files in their place, each given back once it is written; `force` does so where git says that one is modified.

    Raises OutputError, before anything is written where git refuses, or a file is no longer the one that was proven.
    """
    files = [Path(name) for name in result.new_texts]
    other = next((file for file in files if _text_now(file) != result.old_texts.get(str(file))), None)
    if other is not None:
        raise OutputError(f"{other} has changed while the changes were proven, and is left as it is; the patch is in {result.directory}")
    try:
        refuse_to_write(files, force=force)
    except OutputError as error:
        raise OutputError(f"{error.message}; the patch is in {result.directory}") from None
    for file in files:
        try:
            write_file(file, result.new_texts[str(file)], force=force)
        except OSError as error:
            raise OutputError(f"cannot write {file}: {error.strerror or error}; the patch is in {result.directory}") from error
        yield file


def _text_now(file: Path) -> str | None:
    """What a file holds; None where there is none. One that cannot be read is another one."""
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return ""


def _is_modified(file: Path) -> bool:
    """Whether git knows changes of the file that are not committed; without git or a repository nothing is known, and that is no change."""
    asked = ["git", "-C", str(file.parent), "status", "--porcelain", "--", file.name]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, errors="replace", check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return False
    if done.returncode != 0 and any((folder / ".git").exists() for folder in file.resolve().parents):
        raise OutputError(f"git does not say whether {file} has uncommitted changes: see `git status` there, or use --force")
    return done.returncode == 0 and bool(done.stdout.strip())


def apply_command(result: FixResult, here: Path | None) -> str:
    """The command that applies the patch, for a shell whose folder is `here` (None: one that is gone).

    Names in the patch are relative to the project's folder, and git silently skips what lies outside of the folder that it runs in.
    """
    root, patch = Path(result.root), Path(os.path.abspath(result.directory)) / "fixes.patch"  # noqa: PTH100 - `latest` stays a link
    if here == root:
        return f"git apply {_word(patch, root)}"
    there = Path(os.path.relpath(root, here)) if here is not None and here.is_relative_to(root) else root
    return f"git -C {_word(there, here)} apply {_word(patch, root)}"


def _word(path: Path, folder: Path | None) -> str:
    """A path for a shell in a folder."""
    name = str(path.relative_to(folder) if folder is not None and path.is_relative_to(folder) else path)
    return shlex.quote(name) if name.isprintable() else ascii(name)
