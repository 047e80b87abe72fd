"""A private copy-on-write view of folders for this process and all that it starts: a mount namespace with an overlay on each folder.

Whoever may not mount gets a user namespace of the same user (Linux 5.11). Nothing of it is seen from outside; it ends with the processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dynadiag.private_view.kernel import (
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MS_BIND,
    MS_PRIVATE,
    MS_REC,
    NotPossibleError,
    allow_to_be_read,
    drop_capabilities,
    mount,
    unshare,
)

_MOST_LOOKED_AT: Final = 200_000
_NOT_FOR_OVERLAYS: Final = frozenset(("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue", "securityfs", "debugfs"))


def enter(roots: Sequence[str], passed: Sequence[str], store: Path, *, check: bool = False) -> dict[str, Path]:
    """What is written below `roots` from now on goes into a new folder `store`; below `passed` it is written as ever.

    Gives the folder with what is written by the folder that it is written to. `check`: look at all files for one that such a view would not
    let be written. Raises OSError or NotPossibleError; the process is then of no
    use any more.
    """
    if "/" in roots:
        raise NotPossibleError("no overlay for the folder /")
    uppers: dict[str, Path] = {}
    mine = _new_namespace(roots if check else ())
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    points = [(point, kind) for root in roots for point, kind in _mounts_below(root)]
    lower = {point: os.open(point, os.O_PATH) for point, _ in points}
    real = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in passed if is_below(path, roots)}
    try:
        for number, (point, kind) in enumerate(points):
            if is_below(point, passed):
                continue
            if kind not in _NOT_FOR_OVERLAYS and stat.S_ISREG(os.fstat(lower[point]).st_mode):
                raise NotPossibleError(f"no overlay for a file that is mounted by itself ({point})")
            if kind in _NOT_FOR_OVERLAYS or not stat.S_ISDIR(os.fstat(lower[point]).st_mode):
                mount(f"/proc/self/fd/{lower[point]}", point, None, MS_BIND | MS_REC)
            else:
                uppers[point] = _mount_overlay(point, lower[point], store / str(number), in_user_namespace=mine)
        for path, descriptor in real.items():
            mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND | MS_REC)
    finally:
        for descriptor in (*lower.values(), *real.values()):
            os.close(descriptor)
    if mine:
        drop_capabilities()
        allow_to_be_read()
    with contextlib.suppress(OSError):
        os.chdir(os.getcwd())  # noqa: PTH109 - the folder of now is still the one below
    return uppers


def written(uppers: Mapping[str, Path]) -> Iterator[str]:
    """The files that were written or deleted, in an order of their own."""
    for point, upper in uppers.items():
        for folder, _, names in os.walk(upper):
            yield from (os.path.join(point, os.path.relpath(folder, upper), name).replace("/./", "/") for name in names)  # noqa: PTH118


def _new_namespace(roots: Sequence[str]) -> bool:
    """A mount namespace; whether it took a user namespace, in which the user is who he was."""
    with contextlib.suppress(PermissionError):
        unshare(CLONE_NEWNS)
        return False
    _check_owners(roots)  # before: inside, owners that have no number there all look the same
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER | CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def _check_owners(roots: Sequence[str]) -> None:
    """In a user namespace only files of its user and group can be copied when they are written (EOVERFLOW for others)."""
    user, group, looked = os.geteuid(), os.getegid(), 0
    pending = list(roots)
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                looked += 1
                found = entry.stat(follow_symlinks=False)
                if (found.st_uid, found.st_gid) != (user, group) or looked > _MOST_LOOKED_AT:
                    why = "it has too many files" if looked > _MOST_LOOKED_AT else f"{entry.name} belongs to another user or group"
                    raise NotPossibleError(f"no overlay for the folder: {why}")
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)


def _mount_overlay(point: str, lower: int, folder: Path, *, in_user_namespace: bool) -> Path:
    upper, work = folder / "upper", folder / "work"
    for path in (upper, work):
        path.mkdir(parents=True)
    _copy_attributes(lower, upper)
    # By descriptor: a comma or a colon in a path would end the option.
    descriptors = [os.open(item, os.O_PATH) for item in (upper, work)]
    layers = f"lowerdir=/proc/self/fd/{lower},upperdir=/proc/self/fd/{descriptors[0]},workdir=/proc/self/fd/{descriptors[1]}"
    try:
        if in_user_namespace:
            mount("overlay", point, "overlay", 0, f"{layers},userxattr")
            return upper
        try:
            # Without it `rename` refuses a folder that was there before (EXDEV); `view.py` moves it then.
            mount("overlay", point, "overlay", 0, f"{layers},redirect_dir=on,index=off,metacopy=off")
        except OSError:
            mount("overlay", point, "overlay", 0, layers)
        return upper
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _copy_attributes(lower: int, upper: Path) -> None:
    """The folder itself is seen as the upper one is."""
    found = os.stat(f"/proc/self/fd/{lower}")  # noqa: PTH116 - of a descriptor
    with contextlib.suppress(OSError):
        os.chown(upper, found.st_uid, found.st_gid)
    upper.chmod(stat.S_IMODE(found.st_mode))
    os.utime(upper, ns=(found.st_atime_ns, found.st_mtime_ns))


def _mounts_below(root: str) -> list[tuple[str, str]]:
    """The root and what is mounted below it, outer ones first, with the type of each file system."""
    found = {root: ""}
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
        if point != root and is_below(point, [root]):
            found[point] = right.split()[0]
    return sorted(found.items(), key=lambda item: len(item[0]))


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Whether a path is one of the folders, or lies in one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
