"""The one way in which files are written and small files are read, in folders that may come from a stranger. Standard library only.

A file is written under a new name that nobody can guess, beside its own, and renamed: a reader never sees half of it, and a link in its
place is replaced, never followed. A file of the user's that is there keeps what it has (mode, owner, other names). Folders below the one
that the user named are opened one by one without following links, and all work is done relative to the opened folder, so that swapping a
folder for a link in between changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_PLACE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRIVATE_FOLDER, _PRIVATE_FILE, _PLAIN_FILE = 0o700, 0o600, 0o666
_ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def write_inside(folder: Path, name: str, text: str | bytes | Iterable[str]) -> Path:
    """Write `folder/name`, private to the user; `name` may lead through folders ("graphs/g0.svg"), which are made. Gives the path.

    A long text may come in pieces.

    `folder` itself may be reached through links, nothing below it. Raises OSError; NotADirectoryError or ELOOP where a link is in the way.
    """
    *parents, last = Path(name).parts
    with _opened(folder, parents) as inside:
        _write(inside, last, text, _PRIVATE_FILE)
    return folder / name


@contextlib.contextmanager
def new_file(folder: str | Path, name: str) -> Iterator[IO[bytes]]:
    """The stream of a new private file that gets its name in the folder when the block ends; nothing stays where it raises."""
    with _opened(Path(folder), ()) as inside, _beside(inside, name, _PRIVATE_FILE) as stream:
        yield stream


def extended(path: str | Path, *, keep_bytes: int | None = None) -> int:
    """A descriptor that writes behind the first `keep_bytes` of a private file, made where it is not there; None appends to all of it.

    For what grows while it is read, such as a journal or the log of a process, which a rename at the end would lose with a killed process.
    Raises OSError for a link, for what is no regular file, and for a file that has another name, perhaps elsewhere.
    """
    how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_APPEND if keep_bytes is None else 0)
    try:
        descriptor = os.open(path, how, _PRIVATE_FILE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, which is not followed", str(path)) from None
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            what = "it has another name" if stat.S_ISREG(found.st_mode) else "it is not a regular file"
            raise OSError(errno.EINVAL, what, str(path))
        if keep_bytes is not None:
            os.ftruncate(descriptor, keep_bytes)
            os.lseek(descriptor, 0, os.SEEK_END)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_file(path: Path, text: str | bytes | Iterable[str], *, force: bool = False) -> None:
    """Write a file that the user named; through a link of the user's to what it names.

    A new one has the permissions that files get. One that is there keeps its mode, its owner and its other names. One that is read-only is
    refused unless `force` says so, as in an editor. What is no regular file (`/dev/stdout`, a pipe) is written into as it is.
    Raises OSError.
    """
    found = None
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(path)  # noqa: PTH116 - a link in /proc names what has no path
        if not stat.S_ISREG(found.st_mode):
            with open(path, "wb") as stream:  # noqa: PTH123
                _write_text(stream, text)
            return
    if not force and is_read_only(path):
        raise PermissionError(errno.EACCES, "it is read-only", str(path))
    target = Path(os.path.realpath(path))
    with _opened(target.parent, ()) as inside:
        if found is None:
            _write(inside, target.name, text, _PLAIN_FILE)
        else:
            _rewrite(inside, target.name, found, text)


def is_read_only(path: Path) -> bool:
    """Whether a regular file is there that nobody may write, or not we; root, who may write all, is asked as well, as by an editor."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except OSError:
        return False
    return stat.S_ISREG(mode) and (not mode & _ANY_WRITE or not os.access(path, os.W_OK))


@contextlib.contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """While the block runs no other process of ours is in one for a file of the same folder, so what is read may be written again.

    The folder is what is locked: a file is another one once it was written. Where a file system has no locks, nothing is waited for.
    Raises OSError where there is no such folder.
    """
    import fcntl

    folder = os.open(Path(os.path.realpath(path)).parent, _FOLDER)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def make_folder_inside(folder: Path, name: str) -> Path:
    """Make `folder/name` (and what leads there), private to the user. Raises OSError where a link or a file is in the way."""
    with _opened(folder, Path(name).parts):
        return folder / name


def remove_inside(folder: Path, name: str, wanted: Callable[[str], object]) -> None:
    """Remove the files of `folder/name` whose names are wanted; the folder is made where it is not there. Raises OSError."""
    with _opened(folder, Path(name).parts) as inside:
        for entry in os.listdir(inside):  # noqa: PTH208 - of a descriptor
            if wanted(entry):
                os.unlink(entry, dir_fd=inside)


def read_small(path: Path, limit_bytes: int) -> bytes:
    """The first bytes of a regular file that is no link. Raises OSError for anything else, at once: a pipe is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, which is not followed", str(path)) from None
        raise
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return stream.read(limit_bytes)


@contextlib.contextmanager
def _opened(folder: Path, parents: tuple[str, ...] | list[str]) -> Iterator[int]:
    """A descriptor of the folder behind `parents`; those are made where they are not there, and never links."""
    at = os.open(folder, _FOLDER)
    try:
        for name in parents:
            if name in ("..", "/", ""):
                raise OSError(0, "a name leads out of the folder")
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, _PRIVATE_FOLDER, dir_fd=at)
            below = _below(at, name)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _below(at: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode):
            raise OSError(errno.ELOOP, "it is a link, which is not followed", name) from None
        raise


def _write(inside: int, name: str, text: str | bytes | Iterable[str], mode: int) -> None:
    with _beside(inside, name, mode) as stream:
        _write_text(stream, text)


@contextlib.contextmanager
def _beside(inside: int, name: str, mode: int) -> Iterator[IO[bytes]]:
    beside, descriptor = _new_beside(inside, name, mode)
    with _renamed(inside, beside, descriptor, name) as stream:
        yield stream


def _new_beside(inside: int, name: str, mode: int) -> tuple[str, int]:
    if name in ("", ".", "..") or "/" in name:
        raise OSError(0, "it is not the name of a file")
    beside = f".{os.urandom(12).hex()}.part"
    return beside, os.open(beside, _NEW, mode, dir_fd=inside)


@contextlib.contextmanager
def _renamed(inside: int, beside: str, descriptor: int, name: str) -> Iterator[IO[bytes]]:
    """The stream of a new file, which gets its name when the block ends, and goes where it raises."""
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
        os.replace(beside, name, src_dir_fd=inside, dst_dir_fd=inside)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=inside)
        raise


def _rewrite(inside: int, name: str, found: os.stat_result, text: str | bytes | Iterable[str]) -> None:
    """Write a file anew that keeps what it has: by a new file with all of it, else in its place."""
    new = _new_like(inside, name, found) if found.st_nlink == 1 else None
    if new is None:
        _write_in_place(inside, name, found, text)
        return
    with _renamed(inside, *new, name) as stream:
        _write_text(stream, text)
        stream.flush()
        os.fchmod(stream.fileno(), stat.S_IMODE(found.st_mode))


def _new_like(inside: int, name: str, found: os.stat_result) -> tuple[str, int] | None:
    """A new file with the owner and the extended attributes (access lists) of the one that is there; None where that is not allowed."""
    try:
        beside, descriptor = _new_beside(inside, name, _PRIVATE_FILE)
    except PermissionError:
        return None
    try:
        made = os.fstat(descriptor)
        if (made.st_uid, made.st_gid) != (found.st_uid, found.st_gid):
            os.fchown(descriptor, found.st_uid, found.st_gid)
        if hasattr(os, "listxattr"):
            at = f"/proc/self/fd/{inside}/{name}"
            for attribute in os.listxattr(at, follow_symlinks=False):
                os.setxattr(descriptor, attribute, os.getxattr(at, attribute, follow_symlinks=False))
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            os.close(descriptor)
            os.unlink(beside, dir_fd=inside)
            return None
    return beside, descriptor


def _write_in_place(inside: int, name: str, found: os.stat_result, text: str | bytes | Iterable[str]) -> None:
    """Write into the file that is there, once all of the text is made and has room."""
    import shutil
    import tempfile

    mode = stat.S_IMODE(found.st_mode)
    with tempfile.TemporaryFile() as whole:
        _write_text(whole, text)
        length = whole.tell()
        whole.seek(0)
        try:
            descriptor = os.open(name, _IN_PLACE, dir_fd=inside)
        except PermissionError:  # read-only, and forced
            os.chmod(name, mode | stat.S_IWUSR, dir_fd=inside)
            descriptor = os.open(name, _IN_PLACE, dir_fd=inside)
        with os.fdopen(descriptor, "wb") as stream:
            try:
                _make_room(descriptor, found.st_size, length)
                shutil.copyfileobj(whole, stream)
                stream.truncate()
            finally:
                if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                    os.fchmod(descriptor, mode)


def _make_room(descriptor: int, size: int, length: int) -> None:
    """Take the room that a file needs to grow; raises OSError with the file as it was where there is none."""
    if length <= size or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, size, length - size)
    except OSError as error:
        os.ftruncate(descriptor, size)
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot say
            raise


def _write_text(stream: IO[bytes], text: str | bytes | Iterable[str]) -> None:
    for piece in (text,) if isinstance(text, (str, bytes)) else text:
        stream.write(piece if isinstance(piece, bytes) else piece.encode("utf-8", "backslashreplace"))
