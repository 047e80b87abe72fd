"""What files were before a run wrote to them, kept in a folder, so that they can be put back: after the run, or after it was killed.

The folder has `journal.jsonl`, one line for each path before it is touched for the first time, and what was kept of files. Later lines for
the same path count more. A file whose bytes are about to change is copied. One whose name is about to go or to become another file's is
kept under a second name in the folder, where the file system allows that, so that it stays the same file for its other names and for
who has it open; else it is copied too. Only what was noted is put back (`putting_back`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from dynadiag.private_view.attributes import can_be_given_to, copy_bytes, facts_of, share_bytes

Change = Literal["content", "attributes", "entry", "new", "moved", "moved out"]
"""What is about to change at a path: its bytes; its mode or the like; the name itself and all below; a name that is not there yet; like
"entry", and it gets another name, where it may be written to; like that, to where it is written unseen."""
_JOURNAL: Final = "journal.jsonl"
_NEEDED: Final = {"content": ("copy",), "entry": ("kept",), "moved": ("kept", "copy"), "moved out": ("copy", "out")}
_BLOCK: Final = 512
_NAMES: Final = ("entry", "moved", "moved out")
_ATTRIBUTES: Final = ("mode", "owner", "times", "extended", "size")
_TICK_NS: Final = 50_000_000
"""Two changes of a folder that are closer together may have the same time."""


class OpenElsewhereError(OSError):
    """Another program has the file open for writing: its bytes cannot be put back without losing what that writes."""

    def __init__(self, path: str, who: str) -> None:
        super().__init__(errno.EBUSY, "another program has it open for writing", path)
        self.who = who


class Undo:
    """Notes in `folder` what is at a path before it changes; copies take at most `limit_bytes`.

    What runs at the same time in the same files note in the folders `beside` (the other ones of this pattern) was there before: where they
    have changed a path already, their note is taken over. So is that of another dynadiag that runs now (`sessions`).
    """

    def __init__(self, folder: Path, limit_bytes: int, beside: str | None = None, sessions: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._beside, self._sessions = beside, sessions
        self._looked_at = 0
        self._siblings: list[Path] = []
        self._strangers: list[tuple[Path, str]] = []
        self._folder, self._left = folder, limit_bytes
        self._journal = os.open(folder / _JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._rows: dict[str, dict[str, Any]] = {}
        self._absent: set[str] = set()
        self._whole: set[str] = set()
        """Folders of which all that is in them was noted."""
        self._names: dict[tuple[int, int], list[str]] = {}
        """The paths of files that were noted, by node: what changes one name of a file changes all."""
        self._read: dict[Path, tuple[int, dict[str, dict[str, Any]]]] = {}
        self._kept = 0

    def save(self, path: str, change: Change) -> None:
        """Note what is there.

        Raises OSError where it cannot be kept: ENOSPC where it would take more than the limit, EACCES for what we may not read or could not
        give its owner again, EBUSY (`OpenElsewhereError`). The call that would change it has to fail then.
        """
        if self._has(path, change):
            return
        if self._is_new(path):
            self._note(path, {"was": "absent"})
            return
        with self._alone():
            self._take_over(path)
            if path not in self._rows and self._is_new(path):
                self._note(path, {"was": "absent"})
            elif change != "new" or not os.path.lexists(path):  # else the call fails
                self._save(path, change)

    def save_absent(self, path: str) -> None:
        """Note that nothing is there, for a name that comes with the folder around it."""
        if path in self._rows:
            return
        with self._alone():
            self._take_over(path)
            if path not in self._rows:
                self._note(path, {"was": "absent"})

    def _has(self, path: str, change: Change) -> bool:
        """Whether enough was noted of a path for such a change."""
        row = self._rows.get(path)
        if row is None:
            return False
        if row["was"] == "folder":
            around = os.path.dirname(path)  # noqa: PTH120
            return path in self._whole if change in _NAMES else around in self._rows or self._is_new(around)
        if change in ("attributes", "new"):
            return True
        if row["was"] == "file":
            return all(name in row for name in _NEEDED[change])
        return row["was"] != "node" or change == "content" or "kept" in row

    def _save(self, path: str, change: Change) -> None:
        if self._has(path, change):
            return
        self._save_parent(path)
        known = self._rows.get(path)
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            if known is None:
                self._note(path, {"was": "absent"})
            return
        row = facts_of(path, found)
        if known is None and row["was"] == "file" and found.st_nlink > 1:
            row = self._with_other_names(row)
        if known is not None:
            if [known["was"], known["node"]] != [row["was"], row["node"]]:
                return  # something else has its name, and nothing was lost on the way
            row = known
        if row["was"] == "folder":
            self._save_folder(path, row, change)
        elif row["was"] == "file" and change not in ("attributes", "new"):
            self._save_file(path, row, change)
        elif row["was"] == "node" and change in _NAMES:
            self._note(path, row | {"kept": self._second_name(path)})
        else:
            self._note(path, row)

    def _save_folder(self, path: str, row: dict[str, Any], change: Change) -> None:
        if path not in self._rows:
            self._note(path, row)
        if change in _NAMES:
            for name in os.listdir(path):  # noqa: PTH208
                below = os.path.join(path, name)  # noqa: PTH118
                self._take_over(below)
                self._save(below, change)
            self._whole.add(path)

    def _with_other_names(self, row: dict[str, Any]) -> dict[str, Any]:
        """The facts of a file as they were noted under another name of it: since then it may have changed."""
        node = (row["node"][0], row["node"][1])
        for folder in self._others():
            for name, found in self._noted(folder).items():
                if found["was"] == "file" and tuple(found["node"]) == node:
                    self._take_over(name)
        for name in self._names.get(node, ()):
            other = self._rows[name]
            ours = {key: value for key, value in row.items() if key not in _ATTRIBUTES}
            return ours | {key: other[key] for key in (*_ATTRIBUTES, "copy") if key in other}
        return row

    def _save_file(self, path: str, row: dict[str, Any], change: Change) -> None:
        if change == "moved out":
            row = row | {"out": True}  # what it is called there may go on as another file
        elif change != "content" and "kept" not in row:
            row = row | {"kept": self._second_name(path)}
            if row["kept"] is None and not can_be_given_to(row["owner"]):
                raise PermissionError(errno.EACCES, "it belongs to somebody else, who would not get it back", path)
        if "copy" not in row and (change != "entry" or not row["kept"]):
            copied = self._copied(path)
            row = row | copied
            for name in self._names.get((row["node"][0], row["node"][1]), ()):
                if name != path and "copy" not in self._rows[name]:
                    self._note(name, self._rows[name] | copied)
        self._note(path, row)

    def _second_name(self, path: str) -> str | None:
        """Its name in our folder; None where it can have none, such as on another file system."""
        name = self._next_name()
        try:
            os.link(path, self._folder / name, follow_symlinks=False)
        except OSError:
            return None
        return name

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

    def _take_over(self, path: str) -> None:
        """Note here what somebody else has noted of the path, or that a folder around it was not there."""
        if path in self._rows:
            return
        around = [path, *(str(parent) for parent in Path(path).parents)]
        for folder in self._others():
            rows = self._noted(folder)
            for name in around:
                row = rows.get(name)
                if row is None or (name != path and row["was"] != "absent"):
                    continue
                self._save_parent(name)
                self._note(name, self._as_ours(row, folder))
                return

    def _as_ours(self, row: dict[str, Any], folder: Path) -> dict[str, Any]:
        """A note of somebody else, with what was kept in their folder."""
        ours = {name: value for name, value in row.items() if name not in ("path", "kept", "copy")}
        if "kept" in row:
            ours["kept"] = row["kept"] and self._second_name(str(folder / row["kept"]))
        if kept := row.get("copy") or (row.get("kept") and not ours["kept"] and row["kept"]):
            ours |= self._copied(str(folder / kept))
        return ours

    def _noted(self, folder: Path) -> dict[str, dict[str, Any]]:
        """What is noted in a folder until now."""
        try:
            size = (folder / _JOURNAL).stat().st_size
        except OSError:
            return {}
        known = self._read.get(folder)
        if known is None or known[0] != size:
            known = self._read[folder] = (size, noted(folder))
        return known[1]

    def _others(self) -> list[Path]:
        """The folders of other runs, looked for again when one may have been added."""
        if self._beside is None:
            return []
        mine = self._folder.parents[1]
        found = _last_change(mine) if self._sessions is None else max(_last_change(mine), _last_change(mine.parent))
        if found != self._looked_at or time.time_ns() - found < _TICK_NS:
            self._looked_at = found
            sessions = [] if self._sessions is None else [session for session in mine.parent.glob(self._sessions) if session != mine]
            runs, _, files = self._beside.rpartition("/")  # a run's folder is there a moment before that of its notes
            self._siblings = [run / files for run in mine.glob(runs) if run / files != self._folder]
            self._strangers = [(session, self._beside) for session in sessions]
        strangers = (folder for session, pattern in self._strangers for folder in session.glob(pattern))
        return self._siblings + [folder for folder in strangers if _is_looked_after(folder)]

    def saved(self) -> list[str]:
        """The paths that were noted, but for folders of which only entries or attributes changed."""
        return [path for path, row in self._rows.items() if row["was"] != "folder" or path in self._whole]

    def close(self) -> None:
        """Nothing more is noted."""
        os.close(self._journal)

    def _save_parent(self, path: str) -> None:
        """Its mode and times, which change with what is in it."""
        folder = os.path.dirname(path)  # noqa: PTH120
        if folder in self._rows or self._is_new(folder):
            return
        row = next((found for other in self._others() if (found := self._noted(other).get(folder)) is not None), None)
        if row is None:
            with contextlib.suppress(OSError):
                now = os.lstat(folder)
                if stat.S_ISDIR(now.st_mode):  # a path below a file: the call will fail
                    self._note(folder, facts_of(folder, now))
        elif row["was"] in ("absent", "folder"):
            self._note(folder, {name: value for name, value in row.items() if name != "path"})

    def _is_new(self, path: str) -> bool:
        """Whether it lies in a folder that was not there."""
        while self._absent and path not in ("", "/"):
            path = os.path.dirname(path)  # noqa: PTH120
            if path in self._absent:
                return True
        return False

    def _note(self, path: str, row: dict[str, Any]) -> None:
        line = json.dumps({"path": path, **row}).encode() + b"\n"
        size = os.fstat(self._journal).st_size
        if os.write(self._journal, line) != len(line):
            os.truncate(self._journal, size)  # the next line must not begin in the middle of this one
            raise OSError(errno.ENOSPC, "no room for a note of it", path)
        if path not in self._rows and row["was"] == "file":
            self._names.setdefault((row["node"][0], row["node"][1]), []).append(path)
        self._rows[path] = row
        if row["was"] == "absent":
            self._absent.add(path)

    def _next_name(self) -> str:
        self._kept += 1
        return f"{self._kept:06d}"

    def _copied(self, path: str) -> dict[str, Any]:
        """Make a copy of a file; gives its name and size."""
        name = self._next_name()
        with open(path, "rb") as source, open(self._folder / name, "xb") as target:  # noqa: PTH123
            found = os.fstat(source.fileno())
            if (who := other_writer(source.fileno())) is not None:
                raise OpenElsewhereError(path, who)
            if not share_bytes(source, target):
                self._left -= min(found.st_size, found.st_blocks * _BLOCK)
                if self._left < 0:
                    raise OSError(errno.ENOSPC, "a copy of it takes more room than there is", path)
                copy_bytes(source, target, found.st_size)
            target.truncate(found.st_size)
        return {"copy": name, "size": found.st_size}


def _last_change(folder: Path) -> int:
    return os.stat(folder).st_mtime_ns  # noqa: PTH116


def _is_looked_after(folder: Path) -> bool:
    """Whether the run of a folder goes on; of one that was killed, somebody may have gone on with the files."""
    try:
        descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def noted(folder: Path) -> dict[str, dict[str, Any]]:
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


def forget(folder: Path) -> None:
    """Delete the notes: what they name is as it was."""
    with contextlib.suppress(FileNotFoundError):
        (folder / _JOURNAL).unlink()


# Who has a file open for writing, except the run that is looked after.

_STATUS: Final = re.compile(rb"^(Name|PPid):\s*(.*)$", re.MULTILINE)
_FLAGS: Final = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
_MOST_PARENTS: Final = 100


def other_writer(descriptor: int) -> str | None:
    """A process ("tee, process 12") that has the file of a descriptor open for writing; None where there is none that we may see.

    Neither this process, nor what it or its parent has started, counts. The descriptor must be for reading only.
    """
    if not _is_written(descriptor):
        return None
    wanted = os.fstat(descriptor)
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and _has_open_for_writing(name, (wanted.st_dev, wanted.st_ino)) and not _is_ours(name):
            return f"{_status(name).get('Name', '?')}, process {name}"
    return None


def _is_written(descriptor: int) -> bool:
    """Whether anybody may have it open for writing: the kernel gives no read lease then (fcntl(2), F_SETLEASE)."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:  # not for files of others, nor on each file system
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _has_open_for_writing(process: str, node: tuple[int, int]) -> bool:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{process}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                found = os.stat(f"/proc/{process}/fd/{name}")  # noqa: PTH116
                if (found.st_dev, found.st_ino) == node and _is_for_writing(process, name):
                    return True
    return False


def _is_for_writing(process: str, descriptor: str) -> bool:
    with open(f"/proc/{process}/fdinfo/{descriptor}", "rb") as stream:  # noqa: PTH123
        flags = _FLAGS.search(stream.read())
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _is_ours(process: str) -> bool:
    ours = {str(os.getpid()), str(os.getppid())} - {"1"}
    for _ in range(_MOST_PARENTS):
        parent = _status(process).get("PPid", "0")
        if parent in ours or process == str(os.getpid()):
            return True
        if parent in ("0", "1"):
            return False
        process = parent
    return False


def _status(process: str) -> dict[str, str]:
    try:
        with open(f"/proc/{process}/status", "rb") as stream:  # noqa: PTH123
            return {key.decode(): value.decode("utf-8", "replace").strip() for key, value in _STATUS.findall(stream.read())}
    except OSError:
        return {}
