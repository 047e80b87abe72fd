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
_NAME = re.compile(r"^dynadiag-[a-z]{1,20}-([0-9a-f]{8})-(\d{1,9})-(\d{1,19})-[A-Za-z0-9_]{8}$")
_swept = False


def make_scratch(what: str) -> Path:
    """A new folder `dynadiag-<what>-<machine>-<pid>-<start>-<random>` of this process; the first one deletes those of dead processes.

    Raises OSError when there is no room for it.
    """
    global _swept
    if not _swept:
        _swept = True
        sweep()
    me = identity()
    owner = f"{_here(me)}-{me['pid']}-{me['start']}-" if me["start"] is not None else ""
    return Path(tempfile.mkdtemp(prefix=f"dynadiag-{what}-{owner}"))


@contextmanager
def scratch(what: str) -> Iterator[Path]:
    """The same, deleted at the end; what cannot be deleted stays for the next `sweep`."""
    folder = make_scratch(what)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Delete folders of ours whose process is dead: named as above, our user's, real folders, made since this boot on this machine.

    The name decides, so that a folder is told from the moment on that it is there. Links are never followed.
    """
    me = identity()
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            match = _NAME.match(entry.name)
            if match is None or match[1] != _here(me) or not _is_our_folder(entry):
                continue
            if state_of({**me, "pid": int(match[2]), "start": int(match[3])}) == "dead":
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_our_folder(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _here(me: dict[str, object]) -> str:
    """Boot and pid namespace: elsewhere the same number is another process."""
    return hashlib.sha256(f"{me['boot']} {me['namespace']}".encode()).hexdigest()[:8]
