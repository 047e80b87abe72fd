"""Whether a directory was made by this user on this machine: a seal that nobody else can make. Standard library only.

A run directory may come from anybody, and whoever sends it can write anything into it. So the marker of a directory of ours holds a keyed
hash (HMAC-SHA256) of where the directory is and when it was sealed. The key lies outside of all run directories, in
`$XDG_STATE_HOME/dynadiag/key` (`~/.local/state` by default), readable by its user alone. A directory that was copied, moved or unpacked
is another directory; a log that changed after the seal is not ours either. Where no key can be kept, nothing is ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_KEY_BYTES = 32
_SLACK_NS = 2_000_000_000  # the clock of a file system runs behind that of the process by up to a tick


def seal(directory: Path) -> dict[str, Any] | None:
    """What the marker of a directory that we made is to hold; None where no key can be kept."""
    key = _key(make=True)
    at_ns = time.time_ns()
    code = None if key is None else _code(key, directory, at_ns)
    return None if code is None else {"at_ns": at_ns, "code": code}


def is_sealed(directory: Path, said: object, logs: Iterable[Path] = ()) -> bool:
    """Whether the seal is ours and its directory's, and none of the logs lies elsewhere, is a link, another user's, or newer."""
    if not isinstance(said, dict):
        return False
    at_ns, code, key = said.get("at_ns"), said.get("code"), _key(make=False)
    if type(at_ns) is not int or not isinstance(code, str) or not code.isascii() or key is None:
        return False
    expected = _code(key, directory, at_ns)
    return (
        expected is not None
        and hmac.compare_digest(expected, code)
        and all(_is_unchanged(log, directory, at_ns + _SLACK_NS) for log in logs)
    )


def _code(key: bytes, directory: Path, at_ns: int) -> str | None:
    try:
        place = directory.resolve()
        status = place.stat()
    except (OSError, RuntimeError):
        return None
    text = f"{place}\0{status.st_dev}\0{status.st_ino}\0{at_ns}"
    return hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def _is_unchanged(log: Path, directory: Path, until_ns: int) -> bool:
    try:
        inside = log.parent.resolve() == directory.resolve()
        found = log.lstat()
    except (OSError, RuntimeError):
        return False
    alone = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()
    return inside and alone and found.st_ctime_ns <= until_ns


def _key(*, make: bool) -> bytes | None:
    """The key of this user, made at the first run; None where it cannot be kept or may be read by others."""
    try:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:  # nobody knows the home
        return None
    if not base.is_absolute():
        return None
    path = base / "dynadiag" / "key"
    found = _read(path)
    if found is not None or not make:
        return found
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(f"key.{os.urandom(8).hex()}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, os.urandom(_KEY_BYTES))
            os.close(descriptor)
            with contextlib.suppress(FileExistsError):  # another process was faster: its key is the one
                os.link(beside, path)
        finally:
            beside.unlink()
    return _read(path)


def _read(path: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
            data = os.read(descriptor, _KEY_BYTES + 1) if private else b""
        finally:
            os.close(descriptor)
        return data if len(data) == _KEY_BYTES else None
    return None
