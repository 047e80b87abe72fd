"""The bytes of a file copied so that holes stay holes: shared with the file where the file system can, else piece by piece."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from typing import IO, Final

from dynadiag.private_view.kernel import punch_hole

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
