"""What a path is beside its bytes (mode, owner, times, extended attributes) as plain data, and how it becomes so again."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any, Final

from dynadiag.private_view.kernel import file_handle

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
