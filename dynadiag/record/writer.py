"""One log a process, in the format that torch's own trace handler writes, which survives forks, closed descriptors and full disks."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from dynadiag.digests.lines import DigestLines, digest_name
from dynadiag.files import extended

PREFIX = "dedicated_log_torch_trace_"
WARNED_VARIABLE = "DYNADIAG_WARNED"
_OWN_FILE = "dynadiag/record/writer.py"
_SURROGATES = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\ud[89a-f][0-9a-f]{2}")


class TraceWriter:
    """Appends records to the log of this process; every record is one `write`, so a killed process loses none.

    Beside the log grows its digest (`dynadiag.digests.lines`), by which ranks are compared: the lines of a record follow the record.

    `opened` is called with the writer after a file was opened for a process (the first one, or a forked child) and before its first record.
    A write that fails gives one warning on stderr and ends the recording of this process; it never raises.
    """

    def __init__(self, directory: str, cap_bytes: int, rank: Callable[[], int | None], opened: Callable[[TraceWriter], None]) -> None:
        self.directory = directory
        self.cap_bytes = cap_bytes
        self.said: set[Any] = set()
        self.path: str | None = None
        self._rank = rank
        self._opened = opened
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None
        self._pid: int | None = None
        self._dead = False
        self._torn = False
        self._size = 0
        self._digest: DigestLines | None = None
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._forget_lock)

    @property
    def is_open(self) -> bool:
        """Whether this very process has a log."""
        return self._pid == os.getpid()

    def once(self, key: Any) -> bool:
        """True the first time that this log is asked about `key`."""
        self._enter_process()
        if key in self.said:
            return False
        self.said.add(key)
        return True

    def artifact(self, name: str, content: Any, keys: dict[str, Any], *, beyond_cap: bool = False) -> None:
        """Append one `artifact` record with a JSON payload; `keys` are the rank and the compile ids that torch would write beside it."""
        payload = _utf8(json.dumps(content, indent=0, default=repr))
        digest = hashlib.md5(payload.encode("utf-8"), usedforsecurity=False).hexdigest()
        metadata = {"artifact": {"name": name, "encoding": "json"}, **keys, "has_payload": digest}
        self.record(metadata, payload, _OWN_FILE, 0, beyond_cap=beyond_cap)

    def record(self, metadata: Any, payload: str | None, file: str, line: int, *, beyond_cap: bool = False) -> None:
        """Append one record; `file` and `line` say who emitted it, `beyond_cap` that it is small and wanted even when the log is full."""
        with self._lock:
            self._enter_process()
            if self._dead:
                return
            try:
                self._append(_format(metadata, payload, file, line), beyond_cap)
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Close the log; a later record would open it again."""
        with self._lock:
            if self._owns_descriptor():
                os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, text: str, beyond_cap: bool) -> None:
        self._open_if_needed()
        data = text.encode("utf-8", "backslashreplace")
        if self._size + len(data) > self.cap_bytes and self.once("log_limit"):
            self._reach_limit()
        if beyond_cap or "log_limit" not in self.said:
            self._write(data)

    def _reach_limit(self) -> None:
        """Say once, in the log and on stderr, that the log has reached its cap."""
        text = f"the log of process {os.getpid()} reached its limit of {self.cap_bytes} bytes; later records are dropped"
        payload = json.dumps({"kind": "log_limit", "text": text})
        digest = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
        metadata = {"artifact": {"name": "dynadiag_problem", "encoding": "json"}, "has_payload": digest}
        self._write(_format(metadata, payload, _OWN_FILE, 0).encode())
        warn(f"{text}; the script continues")

    def _write(self, data: bytes) -> None:
        record, begin = data, self._size
        if self._torn:
            data = b"\n" + data
        self._torn = True
        while data:
            written = os.write(self._descriptor, data)
            self._size += written
            data = data[written:]
        self._torn = False
        self._tell_digest(record, begin)

    def _tell_digest(self, record: bytes, begin: int) -> None:
        """Whatever goes wrong, also an interrupt, ends the digest here: it stays true, and readers take the rest from the log."""
        digest, self._digest = self._digest, None
        if digest is None or self.path is None:
            return
        try:
            lines = digest.take(record, begin)
            if lines:
                _append(digest_name(self.path), lines)
        except OSError:  # a full disk, which the log will meet too
            return
        except Exception:  # noqa: BLE001 - border: our code on a record of the user's program
            self.artifact("dynadiag_problem", {"kind": "recorder", "text": f"digest: {traceback.format_exc()}"}, {})
            return
        if lines is not None:
            self._digest = digest

    def _open_if_needed(self) -> None:
        if self._owns_descriptor():
            return
        if self.path is None:
            rank = self._rank()
            name = f"{PREFIX}{'' if rank is None else f'rank_{rank}_'}{os.getpid()}_{os.urandom(4).hex()}.log"
            self.path = os.path.join(self.directory, name)  # noqa: PTH118 - pathlib costs time per record
        first = self._identity is None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_EXCL if first else 0)
        self._descriptor = os.open(self.path, flags, 0o600)
        status = os.fstat(self._descriptor)
        self._identity = (status.st_dev, status.st_ino)
        if first:
            self._digest = DigestLines(os.path.basename(self.path))  # noqa: PTH119
            self._opened(self)

    def _owns_descriptor(self) -> bool:
        """Whether our descriptor is still our file: a script that closes descriptors may have opened its own file under that number."""
        if self._descriptor < 0:
            return False
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def _enter_process(self) -> None:
        """In a forked child: drop the parent's descriptor and start an own log."""
        pid = os.getpid()
        if self._pid == pid:
            return
        if self._pid is not None and self._owns_descriptor():
            os.close(self._descriptor)
        self._pid, self._descriptor, self._identity, self.path, self._size, self._torn = pid, -1, None, None, 0, False
        self._dead, self._digest = False, None
        self.said = set()

    def _give_up(self, error: OSError) -> None:
        self._dead = True
        _leave_word(self.directory, self.path, error)
        warn(f"recording stopped, the script continues: {error.strerror or error} ({self.directory})")

    def _forget_lock(self) -> None:
        """Another thread of the parent may have held the lock at the fork."""
        self._lock = threading.RLock()


def _append(path: str, lines: bytes) -> None:
    """Opened anew each time: a script that closes descriptors, or forks, has none of ours to meet."""
    descriptor = extended(path)
    try:
        while lines:
            lines = lines[os.write(descriptor, lines) :]
    finally:
        os.close(descriptor)


def _leave_word(directory: str, log: str | None, error: OSError) -> None:
    """For the reader: an empty file, which a full disk or `ulimit -f` still lets us make; else a log without the owner's right to write.

    The supervisor looks for the latter (`record/supervisor.py`), readers of the directory for the former (`trace/sources.py`).
    """
    name = f"stopped_{os.getpid()}_{errno.errorcode.get(error.errno or 0, 'UNKNOWN')}"
    try:
        os.mknod(os.path.join(directory, name), 0o600)  # noqa: PTH118 - needs no descriptor, unlike `open`
    except (OSError, AttributeError):
        try:
            if log is not None:
                os.chmod(log, 0o400)  # noqa: PTH101
        except OSError:
            return


def warn(text: str) -> None:
    """One line on stderr, once in this process and its children."""
    if os.environ.get(WARNED_VARIABLE):
        return
    os.environ[WARNED_VARIABLE] = "1"
    try:
        sys.stderr.write(f"dynadiag: {text}\n")
        sys.stderr.flush()
    except Exception:  # noqa: BLE001 - border: a closed stderr must not stop the user's program
        return


def _format(metadata: Any, payload: str | None, file: str, line: int) -> str:
    """One record as `torch._logging._internal.TorchLogsFormatter(trace=True)` writes it (2.11 to 2.15)."""
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    header = json.dumps(metadata, default=repr)
    if "\\ud" in header:
        header = _SURROGATES.sub(lambda match: match.group() if len(match.group()) == 12 else "\\ufffd", header)
    text = f"V{stamp}.{int(now % 1 * 1_000_000):06d} {os.getpid()} {_relative(file, len(sys.path))}:{line}] {header}\n"
    return text if payload is None else text + "".join(f"\t{part}\n" for part in payload.split("\n"))


@functools.lru_cache(maxsize=512)
def _relative(file: str, _path_length: int) -> str:
    """A source file relative to the longest search path that holds it, as torch writes it."""
    roots = [root for root in sys.path if root and file.startswith(root.rstrip("/") + "/")]
    short = os.path.relpath(file, max(roots, key=len)) if roots else file
    return _utf8(short.replace(" ", "_").replace("\n", "_"))


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
