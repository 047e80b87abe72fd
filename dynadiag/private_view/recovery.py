"""What runs changed that were killed together with those that watched them: it is put back by who comes next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dynadiag.errors import UsageError
from dynadiag.private_view.putting_back import changed_since, put_back
from dynadiag.scratch import UNDO, dead_folders

_PATIENCE_S: Final = 10.0
_STEP_S: Final = 0.05
_FILES: Final = "files"
"""In the folder of a run: what files were."""
BESIDE: Final = f"view-*/{_FILES}"
"""Where those of the other runs of a session lie."""
_KEPT: Final = "dynadiag-before-"
SESSIONS: Final = f"dynadiag-{UNDO}-*"
"""The folders of sessions, beside each other."""


def bases() -> tuple[Path, ...]:
    """Where folders for what files were may lie, the first that serves is taken."""
    found = (tempfile.gettempdir(), "/var/tmp", "/dev/shm")
    return tuple(dict.fromkeys(Path(name) for name in found if os.access(name, os.W_OK)))


def recover_dead(owner: int) -> list[str]:
    """Put back what the process of this number, which has just ended, had changed; gives the paths where that failed."""
    failed: list[str] = []
    for folder in _dead(owner):
        failed += recover(folder)
        if not any(folder.glob("view-*")):  # one may still be looked after
            remove_tree(folder)
    return failed


def keep_dead() -> list[tuple[Path, list[str]]]:
    """Folders with copies of what files were before runs that were killed with all that watched them, and the files that differ since.

    Somebody may have gone on with these files, so nothing is put back: the folder gets a name under which nobody deletes it.
    """
    found = []
    for folder in _dead():
        stores = [store for store in folder.glob("view-*") if store.is_dir()]
        changed: list[str] = []
        for store in stores:
            with held(store, wait=False) as mine:
                if not mine:
                    break
                changed += changed_since(files_of(store))
        else:
            if not changed:
                remove_tree(folder)
                continue
            kept = folder.with_name(f"{_KEPT}{folder.name[-8:]}")
            with contextlib.suppress(OSError):
                folder.rename(kept)
                found.append((kept, changed))
    return found


def changed_in(kept: Path) -> list[str]:
    """The paths that are not as a folder which `keep_dead` has named keeps them. Raises UsageError for any other folder."""
    return [path for store in _kept_stores(kept) for path in changed_since(files_of(store))]


def put_back_kept(kept: Path) -> list[str]:
    """Make all of them what they were, and delete the folder; gives the paths where that failed, whose copies stay."""
    failed = [path for store in _kept_stores(kept) for path in remove_store(store)]
    if not failed:
        remove_tree(kept)
    return failed


def _kept_stores(kept: Path) -> list[Path]:
    """The notes in it say which paths are written: only those that we wrote ourselves are followed."""
    try:
        found = kept.lstat()
    except OSError as error:
        raise UsageError(f"{kept} cannot be read: {error.strerror or error}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022 or not kept.name.startswith(_KEPT):
        raise UsageError(f"{kept} is no folder of yours in which dynadiag kept files ({_KEPT}...)")
    return sorted(path for path in kept.glob("view-*") if path.is_dir() and not path.is_symlink())


def _dead(owner: int | None = None) -> list[Path]:
    """The folders of dead processes, or of the one with this number."""
    found = (each for base in bases() for each in dead_folders(str(base)))
    return [Path(folder) for what, folder, pid in found if what == UNDO and owner in (None, pid)]


def recover(undo: Path) -> list[str]:
    """Put back what the runs in one folder changed that are no longer watched, and delete it where nothing of it is needed any more."""
    failed: list[str] = []
    for _ in range(2):  # what one run has put where another one's file was is away the second time
        failed = []
        with contextlib.suppress(OSError):
            for store in sorted(undo.iterdir()):
                if store.is_dir():
                    with held(store, wait=False) as mine:
                        failed += remove_store(store) if mine else []
        if not failed:
            break
    return failed


def recover_together(undo: Path) -> None:
    """The same once none of these runs goes on: those that run at the same time work in the same files, and the last one puts them back."""
    stores = [path for path in undo.glob("view-*") if path.is_dir()]
    for store in stores:
        with held(store, wait=False) as mine:
            if not mine and store.is_dir():
                return
    recover(undo)


def discard(undo: Path, *, patience_s: float = _PATIENCE_S) -> list[str]:
    """The same, and delete the folder: its process goes on or ends, and starts no run in it any more.

    Where a run still goes on after so many seconds, what its files were stays for who looks after it.
    """
    failed = recover(undo)
    until = time.monotonic() + patience_s
    while any(undo.glob("view-*")) and not failed:
        if time.monotonic() > until:
            return failed
        time.sleep(_STEP_S)
        failed = recover(undo)
    if not failed:
        remove_tree(undo)
    return failed


@contextmanager
def held(store: Path, *, wait: bool = True) -> Iterator[bool]:
    """Keep everybody else from putting back what a run in this folder changes; whether nobody else does."""
    try:
        descriptor = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        yield False
        return
    else:
        yield True
    finally:
        os.close(descriptor)


def remove_store(store: Path) -> list[str]:
    """Put back what a run had changed, and delete its folder; gives the paths that could not be put back."""
    failed = put_back(store / _FILES)
    if not failed:
        remove_tree(store)
    return failed


def files_of(store: Path) -> Path:
    """Where a run's `Undo` lies in its folder."""
    return store / _FILES


def remove_tree(folder: Path) -> None:
    """Delete a folder, also where its own folders may not be read: an overlay leaves one of mode 0."""

    def again(function: Callable[..., Any], path: str, _error: Any) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)  # noqa: PTH101, PTH120
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - files may be the user's own
                os.chmod(path, 0o700)  # noqa: PTH101
        with contextlib.suppress(OSError):
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
                for name in os.listdir(path):  # noqa: PTH208
                    remove_tree(Path(path) / name)
                os.rmdir(path)  # noqa: PTH106
            else:
                os.unlink(path)  # noqa: PTH108

    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, onerror=again)
    else:
        with contextlib.suppress(OSError):
            folder.unlink()
