"""What files were before a run wrote to them, kept in a folder, so that they can be put back: after the run, or after it was killed.

The folder has `journal.jsonl`, one line for each path before it is touched for the first time, and the copies. Later lines for the same
path count more. Only what was noted is put back, and nothing else is deleted: a new folder stays where something else is in it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

_JOURNAL: Final = "journal.jsonl"
_FICLONE: Final = 0x40049409
_PIECE: Final = 1 << 20
_FACTS: Final = ("mode", "owner", "times", "node", "size")


class Undo:
    """Notes in `folder` what is at a path before it changes; copies take at most `limit_bytes`.

    What runs at the same time in the same files note in the folders `beside` (the other ones of this pattern) was there before: where they
    have changed a path already, their note is taken over.
    """

    def __init__(self, folder: Path, limit_bytes: int, beside: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._beside = beside
        self._folder, self._left = folder, limit_bytes
        self._journal = os.open(folder / _JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._known: dict[str, bool] = {}
        self._first: dict[str, dict[str, Any]] = {}
        self._absent: set[str] = set()
        self._copies = 0

    def save(self, path: str) -> None:
        """Note what is there; of a folder all that is in it.

        Raises OSError where no copy can be kept: ENOSPC where it would take more than the limit, EACCES for what we may not read. The call
        that would change it has to fail then.
        """
        if self._known.get(path):
            return
        if self._is_new(path):
            self._note(path, {"was": "absent"})
            return
        with self._alone():
            if not self._take_over(path):
                self._save(path)

    def _save(self, path: str) -> None:
        self._save_parent(path)
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            self._absent.add(path)
            self._note(path, {"was": "absent"})
            return
        facts = self._first.setdefault(path, _facts(found))
        if stat.S_ISDIR(found.st_mode):
            self._note(path, facts | {"was": "folder"})
            for name in os.listdir(path):  # noqa: PTH208
                below = os.path.join(path, name)  # noqa: PTH118
                if not self._known.get(below) and not self._take_over(below):
                    self._save(below)
        elif stat.S_ISLNK(found.st_mode):
            self._note(path, facts | {"was": "link", "to": os.readlink(path)})  # noqa: PTH115
        elif not stat.S_ISREG(found.st_mode):
            self._known[path] = True
        else:
            self._note(path, facts | {"was": "file", "copy": self._copy(path, facts["size"])})

    def save_attributes(self, path: str) -> None:
        """Note the mode and the times of a folder, or all of a file."""
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            with self._alone():
                if not self._take_over(path):
                    self._save_folder(path)
        else:
            self.save(path)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else looks at a file, and notes what it is, at the same time."""
        if self._beside is None:
            yield
            return
        descriptor = os.open(self._folder.parents[1], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _take_over(self, path: str) -> bool:
        """Whether somebody else has noted the path, or that a folder around it was not there: it is noted here too."""
        around = [path, *(str(item) for item in Path(path).parents)]
        for folder in self._others():
            noted = _noted(folder)
            for text in around:
                found = noted.get(text)
                if found is None or (text != path and found["was"] != "absent"):
                    continue
                if "copy" in found:
                    found = found | {"copy": self._copy(str(folder / found["copy"]), found["size"])}
                if found["was"] == "absent":
                    self._absent.add(text)
                self._save_parent(text)
                self._first.setdefault(text, found)
                self._note(text, {name: value for name, value in found.items() if name != "path"})
                return True
        return False

    def _others(self) -> list[Path]:
        if self._beside is None:
            return []
        return [path for path in self._folder.parents[1].glob(self._beside) if path != self._folder]

    def saved(self) -> list[str]:
        """The paths that were noted, but for folders of which an entry changed."""
        return [path for path, whole in self._known.items() if whole]

    def close(self) -> None:
        """Nothing more is noted."""
        os.close(self._journal)

    def _save_parent(self, path: str) -> None:
        self._save_folder(os.path.dirname(path))  # noqa: PTH120

    def _save_folder(self, path: str) -> None:
        """Its mode and times, which change with what is in it."""
        if path in self._known or self._is_new(path):
            return
        noted = next((found for folder in self._others() if (found := _noted(folder).get(path)) is not None), None)
        if noted is not None and noted["was"] == "absent":
            self._absent.add(path)
            self._note(path, {"was": "absent"})
            return
        with contextlib.suppress(OSError):
            facts = _facts(os.lstat(path)) if noted is None else {name: noted[name] for name in _FACTS}
            self._note(path, self._first.setdefault(path, facts) | {"was": "folder"}, whole=False)

    def _is_new(self, path: str) -> bool:
        """Whether it lies in a folder that was not there."""
        return any(str(parent) in self._absent for parent in Path(path).parents)

    def _note(self, path: str, facts: dict[str, Any], *, whole: bool = True) -> None:
        os.write(self._journal, json.dumps({"path": path, **facts}).encode() + b"\n")
        self._known[path] = whole

    def _copy(self, path: str, size: int) -> str:
        """Shared with the file where the file system can; else bytes, which count."""
        self._copies += 1
        name = f"{self._copies:06d}"
        with open(path, "rb") as source, open(self._folder / name, "xb") as target:  # noqa: PTH123
            if not _cloned(source, target):
                self._left -= size
                if self._left < 0:
                    raise OSError(errno.ENOSPC, "a copy of it takes more room than there is", path)
                shutil.copyfileobj(source, target, _PIECE)
            target.truncate(size)
        return name


def _noted(folder: Path) -> dict[str, dict[str, Any]]:
    """What was noted in a folder, by path: the last line for each counts."""
    try:
        lines = (folder / _JOURNAL).read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        with contextlib.suppress(ValueError):  # the last one, where its writer was killed: its call has not been made
            row = json.loads(line)
            found[row["path"]] = row
    return found


def _cloned(source: IO[bytes], target: IO[bytes]) -> bool:
    """Whether the file system lets both share their bytes (btrfs, XFS)."""
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def _facts(found: os.stat_result) -> dict[str, Any]:
    return {
        "mode": stat.S_IMODE(found.st_mode),
        "owner": [found.st_uid, found.st_gid],
        "times": [found.st_atime_ns, found.st_mtime_ns],
        "node": [found.st_dev, found.st_ino],
        "size": found.st_size,
    }


def put_back(folder: Path) -> list[str]:
    """Make every path that was noted what it was, and delete the notes. Gives those where that failed; their copies stay."""
    before = _noted(folder)
    failed: list[str] = []
    # What was not there goes first, then folders from the outside in; times of folders last, from the inside out.
    for path in sorted(before, key=len, reverse=True):
        if before[path]["was"] == "absent":
            with contextlib.suppress(OSError):
                _make_writable(path, before)
                _remove(path)
    folders = [path for path in sorted(before, key=len) if before[path]["was"] == "folder"]
    for path in folders:
        _tried(_make_folder, path, failed)
    for path, found in before.items():
        if found["was"] in ("file", "link"):
            try:
                _put_file_back(path, found, folder)
            except OSError:
                failed.append(path)
    for path in reversed(folders):
        with contextlib.suppress(OSError):
            _set_attributes(path, before[path])
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    return failed


def _make_writable(path: str, before: dict[str, dict[str, Any]]) -> None:
    """Let entries of the folder around a path be deleted, where the run made that folder and forbade it."""
    folder = os.path.dirname(path)  # noqa: PTH120
    if before.get(folder, {}).get("was") == "absent" and not os.path.islink(folder):  # noqa: PTH114
        os.chmod(folder, 0o700)  # noqa: PTH101


def _differs(path: str, found: dict[str, Any]) -> bool:
    try:
        now = os.lstat(path)
    except OSError:
        return bool(found["was"] != "absent")
    if found["was"] == "absent":
        return True
    as_noted = [now.st_size, now.st_mtime_ns] == [found["size"], found["times"][1]]
    return not as_noted and found["was"] != "folder"


def changed_since(folder: Path) -> list[str]:
    """The paths that are not as they were noted."""
    return [path for path, found in _noted(folder).items() if _differs(path, found)]


def _tried(step: Any, path: str, failed: list[str]) -> None:
    try:
        step(path)
    except OSError:
        failed.append(path)


def _remove(path: str) -> None:
    """Delete a file, or a folder with nothing in it: what is left in one nobody has noted, so the run did not make it."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISDIR(found.st_mode):
        os.rmdir(path)  # noqa: PTH106
    else:
        os.unlink(path)  # noqa: PTH108


def _make_folder(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        return
    _remove(path)
    os.mkdir(path, 0o700)  # noqa: PTH102


def _put_file_back(path: str, before: dict[str, Any], folder: Path) -> None:
    try:
        now = os.lstat(path)
    except OSError:
        now = None
    if before["was"] == "link":
        if now is None or not stat.S_ISLNK(now.st_mode) or os.readlink(path) != before["to"]:  # noqa: PTH115
            _remove(path)
            os.symlink(before["to"], path)  # noqa: PTH211
            os.utime(path, ns=tuple(before["times"]), follow_symlinks=False)
        return
    same = now is not None and stat.S_ISREG(now.st_mode) and [now.st_dev, now.st_ino] == before["node"]
    if not same:
        # Another file has its name: the copy gets it in one step.
        beside = os.path.join(os.path.dirname(path), f".dynadiag-{os.urandom(6).hex()}")  # noqa: PTH118, PTH120
        shutil.copyfile(folder / before["copy"], beside)
        _set_attributes(beside, before)
        if now is not None and stat.S_ISDIR(now.st_mode):
            _remove(path)
        os.replace(beside, path)  # noqa: PTH105
        return
    if now is not None and not now.st_mode & stat.S_IWUSR:
        os.chmod(path, 0o600)  # noqa: PTH101
    with open(folder / before["copy"], "rb") as source, open(path, "r+b") as target:  # noqa: PTH123
        if not _cloned(source, target):
            shutil.copyfileobj(source, target, _PIECE)
        target.truncate(before["size"])
    _set_attributes(path, before)


def _set_attributes(path: str, before: dict[str, Any]) -> None:
    now = os.lstat(path)
    if [now.st_uid, now.st_gid] != before["owner"]:
        with contextlib.suppress(OSError):
            os.chown(path, *before["owner"])
    os.chmod(path, before["mode"])  # noqa: PTH101
    os.utime(path, ns=tuple(before["times"]))
