"""Folders for a while in TMPDIR that name the process they belong to, so that those of a killed one can be told and deleted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dynadiag.process_identity import identity, state_of

OWNER = "DYNADIAG_OWNER"
"""The environment variable that marks every process started by one dynadiag (`record/guardian.py`)."""
UNDO = "undo"
"""Folders of this kind hold what the user's files were, and are deleted by who puts these back (`private_view/recovery.py`)."""
_NAME = re.compile(r"^dynadiag-([a-z]{1,20})-([0-9a-f]{8})-([0-9a-f]{8})-(\d{1,9})-(\d{1,19})-[A-Za-z0-9_]{8}$")
_MOUNTS = Path("/proc/self/mountinfo")
_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay"))
"""File systems that one kernel has at a time: whoever made a folder there under another boot id no longer runs."""
_swept = False


def make_scratch(what: str, parent: Path | None = None) -> Path:
    """A new folder `dynadiag-<what>-<boot>-<pid namespace>-<pid>-<start>-<random>` of this process, in TMPDIR or another folder.

    The first one deletes those of dead processes. Raises OSError when there is no room for it.
    """
    global _swept
    if not _swept:
        _swept = True
        sweep()
    me = identity()
    owner = f"{'-'.join(_here(me))}-{me['pid']}-{me['start']}-" if None not in me.values() else ""
    return Path(tempfile.mkdtemp(prefix=f"dynadiag-{what}-{owner}", dir=parent))


@contextmanager
def scratch(what: str) -> Iterator[Path]:
    """The same, deleted at the end; what cannot be deleted stays for the next `sweep`."""
    folder = make_scratch(what)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Delete folders of ours whose process is dead: named as above, our user's, real folders; none of the kind `UNDO`.

    A process is dead when its pid namespace has none of that number and start, or when it belongs to an earlier boot of the machine that
    has this disk. The name decides, so that a folder is told from the moment on that it is there. Links are never followed.
    """
    try:
        parent = tempfile.gettempdir()
    except OSError:  # no temporary folder can be written
        return
    for what, folder, _ in dead_folders(parent):
        if what != UNDO:
            shutil.rmtree(folder, ignore_errors=True)


def dead_folders(parent: str) -> Iterator[tuple[str, str, int]]:
    """The folders of dead processes in a folder, as kind, path and the number of the process."""
    me = identity()
    if None in me.values():
        return
    boot, namespace = _here(me)
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            match = _NAME.match(entry.name)
            if match is None or not _is_our_folder(entry):
                continue
            what, its_boot, its_namespace, pid, start = match.groups()
            if its_boot != boot:
                dead = _is_local(parent)
            else:
                dead = its_namespace == namespace and state_of({**me, "pid": int(pid), "start": int(start)}) == "dead"
            if dead:
                yield what, entry.path, int(pid)


def _is_our_folder(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _here(me: dict[str, object]) -> tuple[str, str]:
    """Boot and pid namespace: elsewhere the same number is another process."""
    boot, namespace = (hashlib.sha256(str(me[name]).encode()).hexdigest()[:8] for name in ("boot", "namespace"))
    return boot, namespace


def _is_local(folder: str) -> bool:
    """Whether no other running machine can have this folder: the type of the file system that is mounted there (proc(5), mountinfo)."""
    where = os.path.realpath(folder)
    found = ("", "")
    with contextlib.suppress(OSError, IndexError):
        for line in _MOUNTS.read_text("utf-8", "surrogateescape").splitlines():
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4])
            if len(point) >= len(found[0]) and (where + "/").startswith(point.rstrip("/") + "/"):
                found = point, line.partition(" - ")[2].split()[0]
    return found[1] in _LOCAL
