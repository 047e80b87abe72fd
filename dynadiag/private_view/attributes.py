"""A file with all that it is: its bytes, copied so that holes stay holes; mode, owner, times and extended attributes as plain data."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import IO, Any, Final

from dynadiag.private_view.kernel import file_handle, punch_hole

_KINDS: Final = {stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFREG: "file"}


def facts_of(path: str, found: os.stat_result) -> dict[str, Any]:
    """What was found at a path. `was`: "folder", "link", "file", or "node" for pipes, sockets and devices."""
    facts: dict[str, Any] = {
        "was": kind_of(found),
        "mode": stat.S_IMODE(found.st_mode),
        "owner": [found.st_uid, found.st_gid],
        "times": [found.st_atime_ns, found.st_mtime_ns],
        "node": [found.st_dev, found.st_ino],
        "size": found.st_size,
    }
    if facts["was"] == "link":
        facts["to"] = os.readlink(path)  # noqa: PTH115
    if facts["was"] == "file" and (handle := file_handle(path)) is not None:
        facts["handle"] = handle
    if facts["was"] == "node":
        facts |= {"type": stat.S_IFMT(found.st_mode), "device": found.st_rdev}
    if extended := _extended(path):
        facts["extended"] = extended
    return facts


def kind_of(found: os.stat_result) -> str:
    """What is there: "folder", "link", "file" or "node"."""
    return _KINDS.get(stat.S_IFMT(found.st_mode), "node")


def set_attributes(path: str, before: dict[str, Any]) -> None:
    """Give a path the mode, owner, times and extended attributes that were noted. Raises OSError where the mode cannot be set.

    Of a file of somebody else only its bytes can be written: its time stays that of the last writing.
    """
    now = os.lstat(path)
    if [now.st_uid, now.st_gid] != before["owner"]:
        with contextlib.suppress(OSError):
            os.chown(path, *before["owner"], follow_symlinks=False)
    if not stat.S_ISLNK(now.st_mode):
        _set_extended(path, before.get("extended", {}))
        if stat.S_IMODE(os.lstat(path).st_mode) != before["mode"]:
            os.chmod(path, before["mode"])  # noqa: PTH101
    with contextlib.suppress(PermissionError):
        os.utime(path, ns=tuple(before["times"]), follow_symlinks=False)


def can_be_given_to(owner: list[int]) -> bool:
    """Whether a file that we make can get this user and group."""
    user = os.geteuid()
    return user == 0 or (owner[0] == user and owner[1] in (os.getegid(), *os.getgroups()))


def _extended(path: str) -> dict[str, str]:
    """Its extended attributes, access lists among them, in hexadecimal; none where the file system has none."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            with contextlib.suppress(OSError):  # not for us
                found[name] = os.getxattr(path, name, follow_symlinks=False).hex()
    return found


def _set_extended(path: str, before: dict[str, str]) -> None:
    now = _extended(path)
    if now == before:
        return
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    with contextlib.suppress(OSError):
        os.chmod(path, mode | stat.S_IWUSR)  # noqa: PTH101 - who may not write may not set them
    for name in {*now, *before}:
        if now.get(name) != before.get(name):
            with contextlib.suppress(OSError):
                if name in before:
                    os.setxattr(path, name, bytes.fromhex(before[name]))
                else:
                    os.removexattr(path, name)


# The bytes of a file copied so that holes stay holes: shared with the file where the file system can, else piece by piece.

_FICLONE: Final = 0x40049409
_PIECE: Final = 1 << 24
_ZEROS: Final = bytes(1 << 20)


def share_bytes(source: IO[bytes], target: IO[bytes]) -> bool:
    """Whether the file system lets both share their bytes (btrfs, XFS)."""
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def copy_bytes(source: IO[bytes], target: IO[bytes], size: int) -> None:
    """Make the target, new or not, have the first `size` bytes of the source and no more. Raises OSError."""
    if not share_bytes(source, target):
        at = 0
        for begin, end in _data_of(source, size):
            _clear(target, at, begin)
            _copy_range(source, target, begin, end)
            at = end
        _clear(target, at, size)
    target.truncate(size)


def _data_of(file: IO[bytes], size: int) -> Iterator[tuple[int, int]]:
    """Where it has bytes, up to `size`."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            end = min(size, os.lseek(file.fileno(), begin, os.SEEK_HOLE))
        except OSError as error:
            if error.errno != errno.ENXIO:  # a file system that knows no holes
                yield end, size
            return
        if begin >= size:
            return
        yield begin, end


def _copy_range(source: IO[bytes], target: IO[bytes], begin: int, end: int) -> None:
    os.lseek(target.fileno(), begin, os.SEEK_SET)
    while begin < end:
        sent = os.sendfile(target.fileno(), source.fileno(), begin, min(_PIECE, end - begin))
        if not sent:
            raise OSError(errno.EIO, "it became shorter while it was copied")
        begin += sent


def _clear(target: IO[bytes], begin: int, end: int) -> None:
    """Make a range zeros: a hole where that can be."""
    size = os.fstat(target.fileno()).st_size if begin < end else 0
    for first, last in list(_data_of(target, min(end, size))):
        at, last = max(first, begin), min(last, end)
        if at >= last:
            continue
        with contextlib.suppress(OSError):
            punch_hole(target.fileno(), at, last - at)
            continue
        while at < last:
            at += os.pwrite(target.fileno(), _ZEROS[: last - at], at)
