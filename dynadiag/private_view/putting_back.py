"""Every path that `undo` has noted becomes what it was, and nothing else is deleted: a new folder stays where something else is in it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dynadiag.private_view.attributes import copy_bytes, kind_of, set_attributes
from dynadiag.private_view.kernel import file_handle
from dynadiag.private_view.undo import forget, noted

Row = dict[str, Any]
_OPEN: Final = stat.S_IRWXU


def put_back(folder: Path) -> list[str]:
    """Make every path that was noted in a folder what it was, and delete the notes. Gives those where that failed; their copies stay.

    It may be done again where it was killed in the middle.
    """
    failed = _Restoration(folder).restore()
    if not failed:
        forget(folder)  # first: without it what is left of the folder means nothing
        shutil.rmtree(folder, ignore_errors=True)
    return failed


def changed_since(folder: Path) -> list[str]:
    """The paths that are not as they were noted."""
    return [path for path, row in noted(folder).items() if _differs(path, row)]


def _differs(path: str, row: Row) -> bool:
    try:
        now = os.lstat(path)
    except OSError:
        return bool(row["was"] != "absent")
    if row["was"] == "absent":
        return True
    as_noted = [now.st_size, now.st_mtime_ns] == [row["size"], row["times"][1]]
    return not as_noted and row["was"] != "folder"


class _Restoration:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows = noted(folder)
        self._failed: dict[str, None] = {}
        self._places: dict[str, str] = {}

    def restore(self) -> list[str]:
        by_length = sorted(self._rows, key=len)
        absent = [path for path in reversed(by_length) if self._rows[path]["was"] == "absent"]
        folders = [path for path in by_length if self._rows[path]["was"] == "folder"]
        for path in (*folders, *reversed(absent)):
            _make_writable(path)
        self._places = self._moved_files()
        moved = {*self._places.values()}
        # What was not there goes first, but for files that only had another name; then folders from the outside in.
        for path in absent:
            if path not in moved:
                with contextlib.suppress(OSError):
                    _remove(path)
        for path in folders:
            self._try(_make_folder, path)
        self._put_back_all("file", "node")
        for path in absent:
            self._try(_remove_what_is_new, path)
        self._put_back_all("link")
        for path in reversed(folders):  # times last: they change with what is in a folder
            self._try(self._set_attributes, path)
        return [*self._failed]

    def _put_back_all(self, *kinds: str) -> None:
        for path, row in self._rows.items():
            if row["was"] in kinds:
                self._try(self._put_file_back, path)

    def _try(self, step: Callable[[str], None], path: str) -> None:
        try:
            step(path)
        except OSError:
            self._failed[path] = None

    def _set_attributes(self, path: str) -> None:
        set_attributes(path, self._rows[path])

    def _moved_files(self) -> dict[str, str]:
        """Where files are now that have lost the name under which they were noted, and of which nothing else was kept than a copy."""
        wanted = {
            tuple(row["node"]): path
            for path, row in self._rows.items()
            if row["was"] == "file" and row.get("handle") and not row.get("kept") and not _is_at(path, row)
        }
        found = {}
        for path in self._rows if wanted else ():
            with contextlib.suppress(OSError):
                now = os.lstat(path)
                name = wanted.get((now.st_dev, now.st_ino))
                if name is not None and _is_at(path, self._rows[name]) and file_handle(path) == self._rows[name]["handle"]:
                    found[name] = path
        return found

    def _put_file_back(self, path: str) -> None:
        row = self._rows[path]
        if not _is_real(path):
            raise OSError(errno.ENOTDIR, "the folder around it is another one", path)
        if row["was"] == "link":
            _put_link_back(path, row)
        elif not _is_at(path, row):
            self._put_name_back(path, row)
        elif "copy" in row:
            self._put_bytes_back(path, row)
        set_attributes(path, row)

    def _put_name_back(self, path: str, row: Row) -> None:
        """Give a path the file that it was, in one step: by its other name, else anew."""
        other = os.path.join(os.path.dirname(path), f".dynadiag-{self._own_name(path)}")  # noqa: PTH118, PTH120
        _remove(other)
        try:
            if not self._link_other_name(path, row, other):
                _make_node(other, row)
            if "copy" in row:
                self._put_bytes_back(other, row)
            set_attributes(other, row)
            if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
                for below in sorted(self._rows, key=len, reverse=True):
                    if below.startswith(path + "/") and self._rows[below]["was"] == "absent":
                        _remove(below)
                os.rmdir(path)  # noqa: PTH106
            os.replace(other, path)  # noqa: PTH105
            _remove(other)  # both were one file already: nothing was renamed
        except OSError:
            with contextlib.suppress(OSError):
                _remove(other)
            raise

    def _link_other_name(self, path: str, row: Row, name: str) -> bool:
        """Whether the file itself is still there, under another name, and got this one."""
        if "out" in row:
            return False
        for source in (row.get("kept") and str(self._folder / row["kept"]), self._places.get(path)):
            if source and _is_at(source, row):
                with contextlib.suppress(OSError):
                    os.link(source, name, follow_symlinks=False)
                    return True
        return False

    def _own_name(self, path: str) -> str:
        return hashlib.sha256(f"{self._folder}\0{path}".encode("utf-8", "surrogateescape")).hexdigest()[:12]

    def _put_bytes_back(self, path: str, row: Row) -> None:
        if not os.lstat(path).st_mode & stat.S_IWUSR:
            with contextlib.suppress(PermissionError):
                os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)  # noqa: PTH101
        with open(self._folder / row["copy"], "rb") as source, open(path, "r+b", opener=_opened_itself) as target:  # noqa: PTH123
            copy_bytes(source, target, row["size"])


def _opened_itself(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_at(path: str, row: Row) -> bool:
    """Whether what was noted is at a path, and no changed link leads there."""
    try:
        now = os.lstat(path)
    except OSError:
        return False
    return kind_of(now) == row["was"] and [now.st_dev, now.st_ino] == row["node"] and _is_real(path)


def _is_real(path: str) -> bool:
    """Whether its folder is the one that was noted: paths are noted without links, and the run may have put one there."""
    folder = os.path.dirname(path)  # noqa: PTH120
    return os.path.realpath(folder) == folder


def _make_writable(path: str) -> None:
    """Let entries of a folder be deleted and made, where the run forbade it."""
    with contextlib.suppress(OSError):
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode) and mode & _OPEN != _OPEN and _is_real(path):
            os.chmod(path, stat.S_IMODE(mode) | _OPEN)  # noqa: PTH101


def _remove_what_is_new(path: str) -> None:
    try:
        _remove(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # somebody else has put something into the new folder
            raise


def _remove(path: str) -> None:
    """Delete a file, or a folder with nothing in it: what is left in one nobody has noted, so the run did not make it."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not _is_real(path):
        return
    if stat.S_ISDIR(found.st_mode):
        os.rmdir(path)  # noqa: PTH106
    else:
        os.unlink(path)  # noqa: PTH108


def _make_folder(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        return
    _remove(path)
    os.mkdir(path, _OPEN)  # noqa: PTH102


def _put_link_back(path: str, row: Row) -> None:
    if not os.path.islink(path) or os.readlink(path) != row["to"]:  # noqa: PTH114, PTH115
        _remove(path)
        os.symlink(row["to"], path)  # noqa: PTH211


def _make_node(path: str, row: Row) -> None:
    if row["was"] == "node":
        os.mknod(path, row["type"] | row["mode"], row["device"])
    elif "copy" in row:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    else:
        raise FileNotFoundError(errno.ENOENT, "nothing was kept of it", path)
