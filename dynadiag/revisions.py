"""A revision of a git repository as plain files; the working tree and the repository stay as they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.errors import UsageError

_LFS = b"version https://git-lfs.github.com/spec/"
_LARGEST_POINTER_BYTES = 1024
_SUBMODULE = "160000"
RELATIVE = "--git: pass the file as a path relative to the current folder, so that it can be found in the revision"
"""What to say of an absolute path, before anything is written."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """The working tree's top folder, the copy of it (`files`), and in the copy the folder that stands where the caller's does.

    `missing` says in a line each what the revision names and the copy does not have.
    """

    top: Path
    files: Path
    here: Path
    missing: tuple[str, ...]


def extract(revision: str, into: Path, *, here: Path) -> Copy:
    """Write the files of `revision` of the repository around `here` into `into`, with the submodules that are checked out here.

    Through an index of its own, not `git archive`: that leaves out what `export-ignore` names. Raises UsageError when there is no git, no
    repository, no such revision, or no such folder in it.
    """
    top = Path(_git(["rev-parse", "--show-toplevel"], here, "--git needs a git repository here").rstrip("\n")).resolve()
    if revision.startswith("-"):
        raise UsageError(f"--git {revision}: not a revision")
    commit = _git(["rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"], top, f"--git {revision}: no such revision").strip()
    files = into / "files"
    missing = (*_write(commit, top, files, into, revision), *_pointers(files))
    folder = files / here.resolve().relative_to(top)
    if not folder.is_dir():
        raise UsageError(f"--git {revision}: the folder {here.resolve().relative_to(top)} is not in that revision")
    return Copy(top=top, files=files, here=folder, missing=missing)


def file_in(copy: Copy, file: Path, revision: str) -> Path:
    """A file of the current folder as it is in the copy. Raises UsageError for one that is not in the revision."""
    if file.is_absolute():
        raise UsageError(RELATIVE)
    found = copy.here / file
    if not found.resolve().is_relative_to(copy.files.resolve()):
        raise UsageError(f"--git: {file} is outside this repository")
    if not found.is_file():
        raise UsageError(f"--git {revision}: {file} is not in that revision")
    return found


def _write(commit: str, top: Path, files: Path, scratch: Path, revision: str) -> Iterator[str]:
    """Write a commit's files; says which submodules could not be written."""
    files.mkdir(parents=True, exist_ok=True)
    index = scratch / "index"
    index.unlink(missing_ok=True)
    failed = f"--git {revision}: git cannot write its files"
    _git(["read-tree", commit], top, failed, GIT_INDEX_FILE=str(index))
    _git(["checkout-index", "--all", "--force", "--quiet", f"--prefix={files}/"], top, failed, GIT_INDEX_FILE=str(index))
    for line in _git(["ls-tree", "-r", "-z", "--full-tree", commit], top, failed).split("\0"):
        about, _, name = line.partition("\t")
        if about.startswith(_SUBMODULE):
            yield from _submodule(about.split()[2], name, top / name, files / name, scratch, revision)


def _submodule(commit: str, name: str, top: Path, files: Path, scratch: Path, revision: str) -> Iterator[str]:
    try:
        if not (top / ".git").exists():
            raise UsageError(f"{name} is not checked out")
        _git(["cat-file", "-e", f"{commit}^{{commit}}"], top, f"{name} has no such commit")
    except UsageError:
        yield f"submodule {name} is not in the copy: it is not checked out here at the commit used by {revision}"
        return
    yield from _write(commit, top, files, scratch, revision)


def _pointers(files: Path) -> Iterator[str]:
    """Whether files are there as Git LFS pointers only, where git has no filter for them."""
    if not any(b"filter=lfs" in attributes.read_bytes() for attributes in files.rglob(".gitattributes") if attributes.is_file()):
        return
    found = [str(path.relative_to(files)) for path in sorted(files.rglob("*")) if _is_pointer(path)]
    if found:
        verb = "file in the copy is a Git LFS pointer, not its" if len(found) == 1 else "files in the copy are Git LFS pointers, not their"
        yield f"{len(found)} {verb} content: {', '.join(found[:5])}{', ...' if len(found) > 5 else ''}"


def _is_pointer(path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST_POINTER_BYTES:
        return False
    return path.read_bytes().startswith(_LFS)


def _git(arguments: list[str], here: Path, message: str, **variables: str) -> str:
    """What git prints. Raises UsageError with `message` and git's own first line."""
    try:
        done = run_git(arguments, here, variables)
    except OSError:
        raise UsageError("--git needs the program git, which is not on PATH") from None
    if done.returncode:
        said = first_line(done.stderr)
        raise UsageError(f"{message}: {said[:200]}" if said else message)
    return os.fsdecode(done.stdout)


def run_git(
    arguments: Sequence[str], here: Path, variables: Mapping[str, str], *, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """One call of git, which is given `given` on stdin and asks nothing. Raises OSError where there is no git."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **variables}
    return subprocess.run(["git", *arguments], cwd=here, input=given, capture_output=True, check=False, env=environment)


def first_line(text: bytes) -> str:
    """The first line of what git said that is not empty."""
    return next((line.strip() for line in os.fsdecode(text).splitlines() if line.strip()), "")
