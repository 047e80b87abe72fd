"""A view of the user's files for one run, and what runs in one: the process that goes on in it, and the one that looks after it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import select
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from dynadiag.private_view import overlay
from dynadiag.private_view.kernel import adopt_orphans, die_with_parent, install_filter
from dynadiag.private_view.recovery import BESIDE, SESSIONS, files_of, held, recover_together, remove_store, remove_tree
from dynadiag.private_view.undo import Change, OpenElsewhereError, Undo
from dynadiag.private_view.watching import Connection, Link, Move, Seen, Touch, Watcher

Kind = Literal["overlay", "undo"]
_GRACE_S: Final = 2.0
_LISTENED_TO: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_MOST_DROPPED: Final = 20


@dataclass(frozen=True, kw_only=True)
class View:
    """How runs see files. Of kind "overlay", what they write below `roots` goes elsewhere and is dropped, and what they write in other
    folders is put back after each; of kind "undo" all of it is put back.

    Written for real is what lies below `passed`, and outside of the roots what is `ordinary`. `undo` is the folder for what files were, of
    which a run may copy `limit_bytes`. `touched` gets a JSON line for what cannot be kept apart, and for what was dropped. `watched`: the
    machine lets us see calls; where it does not, other folders are as they are written. All paths are real ones.
    """

    kind: Kind
    roots: tuple[str, ...]
    passed: tuple[str, ...]
    undo: str
    touched: str
    limit_bytes: int
    watched: bool = True

    def dumps(self) -> str:
        """For `loads`."""
        return json.dumps(asdict(self))

    def and_passed(self, *folders: Path) -> View:
        """The same, with more folders that are written for real."""
        return replace(self, passed=(*self.passed, *(os.path.realpath(folder) for folder in folders)))


def loads(text: str) -> View:
    """The view that `dumps` gave as text."""
    found = json.loads(text)
    return View(**{**found, "roots": tuple(found["roots"]), "passed": tuple(found["passed"])})


@dataclass(frozen=True)
class Ended:
    """How what ran in a view ended: the status of `waitpid`."""

    status: int

    def follow(self) -> int:
        """End this process by the same signal; where it was none, gives the exit status."""
        if not os.WIFSIGNALED(self.status):
            return os.WEXITSTATUS(self.status)
        number = os.WTERMSIG(self.status)
        with contextlib.suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return 128 + number


def enter(view: View) -> Ended | None:
    """Fork: the child gets None and sees files as the view says, this process gets how it ended, once all files are as before.

    This process must have one thread, and is of no other use, since it is in the overlay too. Raises OSError or `NotPossibleError` before
    the fork where there is no such view.
    """
    store = Path(tempfile.mkdtemp(prefix="view-", dir=view.undo))
    uppers: dict[str, Path] = {}
    devices = {root: os.stat(root).st_dev for root in view.roots}  # noqa: PTH116
    with held(store):
        try:
            if view.kind == "overlay":
                uppers = overlay.enter(view.roots, view.passed, store / "upper")
            pid, descriptor = _forked(view)
        except BaseException:
            remove_store(store)
            raise
        if pid == 0:
            return None
        try:
            ended = Ended(_Supervisor(view, store, uppers, devices).attend(pid, descriptor))
        finally:
            remove_tree(store / "upper")
    recover_together(Path(view.undo))
    return ended


def _forked(view: View) -> tuple[int, int | None]:
    """The process that goes on, 0 in itself, and the descriptor at which its calls wait."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    for_children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    adopt_orphans()
    pid = os.fork()
    if pid == 0:
        ours.close()
        signal.signal(signal.SIGCHLD, for_children)
        die_with_parent(parent)
        _leave_no_core_file()
        if view.watched:
            descriptor = install_filter()
            socket.send_fds(theirs, [b"f"], [descriptor])
            os.close(descriptor)
        theirs.close()
        return 0, None
    theirs.close()
    for number in _LISTENED_TO:  # the whole group gets them, and what runs in the view decides
        signal.signal(number, signal.SIG_IGN)
    with ours:
        descriptors = socket.recv_fds(ours, 1, 1)[1] if view.watched else []
    return pid, descriptors[0] if descriptors else None


def _leave_no_core_file() -> None:
    """The kernel writes it beside all calls: nobody sees it."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


class _Supervisor:
    """Answers the calls of what runs in a view, and puts files back when it has ended."""

    def __init__(self, view: View, store: Path, uppers: Mapping[str, Path], devices: Mapping[str, int]) -> None:
        self._view, self._uppers, self._devices = view, uppers, devices
        self._undo = Undo(files_of(store), view.limit_bytes, beside=BESIDE, sessions=SESSIONS)
        self._ordinary = ordinary_folders()
        self._noted: set[tuple[str, str]] = set()
        self._own_ports: set[int] = set()
        self._connections: set[tuple[str, int]] = set()

    def attend(self, pid: int, descriptor: int | None) -> int:
        """The status with which it ended."""
        status = self._served(pid, descriptor) if descriptor is not None else os.waitpid(pid, 0)[1]
        for address, port in sorted(self._connections):
            # One to a port that the program itself opened (ranks that meet, a server in a test) stays in the program.
            if port not in self._own_ports:
                self._note("network", f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        written = self._undo.saved() if self._view.kind == "undo" else overlay.written(self._uppers)
        dropped = (name for name in written if overlay.is_below(name, self._view.roots) and "__pycache__" not in name)
        for path in itertools.islice(dropped, _MOST_DROPPED):
            self._note("dropped", path)
        self._undo.close()
        return status

    def _served(self, pid: int, descriptor: int) -> int:
        watcher = Watcher(descriptor, self.look)
        process = os.pidfd_open(pid)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.register(process, select.POLLIN)
        status: int | None = None
        until = 0.0
        while status is None or time.monotonic() < until:
            events = dict(poller.poll(None if status is None else max(0.0, until - time.monotonic()) * 1000))
            waiting = events.get(descriptor, 0)
            if waiting & select.POLLIN:
                watcher.answer()
            elif waiting:  # nobody has this filter any more
                return status if status is not None else os.waitpid(pid, 0)[1]
            if process in events:
                _, status = os.waitpid(pid, 0)
                poller.unregister(process)
                # What it leaves behind gets a moment to end: it would go on writing when files are back.
                until = time.monotonic() + _GRACE_S
        _end_children()
        return status

    def look(self, seen: Seen) -> bool:
        """Keep what a file was, and note what cannot be kept apart; whether the call was made here. Raises OSError where it has to fail."""
        if isinstance(seen, Connection):
            self._look_at_connection(seen)
            return False
        if isinstance(seen, Touch):
            self._keep(seen.path, seen.change)
            return False
        # Where nobody looks it could be written to without a copy of it.
        self._keep(seen.path, "moved" if self._is_kept(seen.to) or self._is_overlaid(seen.to) else "moved out")
        if isinstance(seen, Link):
            self._keep(seen.to, "new")
            return False
        # A folder is replaced only where nothing is in it.
        self._keep(seen.to, ("attributes" if _is_folder(seen.to) else "entry") if seen.plain else "moved")
        if self._view.kind == "undo" or not self._is_overlaid(seen.to):
            for name in _entries(seen.path):
                self._keep_absent(os.path.join(seen.to, name))  # noqa: PTH118
            for name in [] if seen.plain else _entries(seen.to):  # the two change places
                self._keep_absent(os.path.join(seen.path, name))  # noqa: PTH118
        return self._view.kind == "overlay" and seen.plain and self._moved(seen)

    def _moved(self, move: Move) -> bool:
        """Whether something was moved by copying it, where only the overlay is why it cannot be renamed (EXDEV).

        An overlay of a user namespace refuses to rename a folder that was there before, and each refuses to rename out of it or into it.
        """
        if self._is_overlaid(move.path) != self._is_overlaid(move.to):
            if self._device(move.path) != self._device(move.to):
                return False
        elif not (self._is_overlaid(move.path) and _is_folder(move.path)):
            return False
        try:
            os.rename(move.path, move.to)  # noqa: PTH104
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _move_by_copying(move.path, move.to)
        return True

    def _device(self, path: str) -> int:
        """The file system that has a path, or has it below an overlay."""
        for root in self._view.roots:
            if overlay.is_below(path, [root]):
                return self._devices[root]
        with contextlib.suppress(OSError):
            return os.stat(os.path.dirname(path)).st_dev  # noqa: PTH116, PTH120
        return -1

    def _is_overlaid(self, path: str) -> bool:
        return self._view.kind == "overlay" and overlay.is_below(path, self._view.roots)

    def _is_kept(self, path: str) -> bool:
        """Whether what is written there is put back."""
        view = self._view
        if overlay.is_below(path, view.passed) or self._is_overlaid(path):
            return False
        return overlay.is_below(path, view.roots) or not (is_ordinary(path, self._ordinary) or _is_device(path))

    def _keep_absent(self, path: str) -> None:
        if self._is_kept(path):
            self._undo.save_absent(path)

    def _keep(self, path: str, change: Change) -> None:
        if not self._is_kept(path) or (change == "content" and os.path.isdir(path)):  # noqa: PTH112
            return
        try:
            self._undo.save(path, change)
        except OSError as error:  # without a copy of it the call must not be made
            if error.errno == errno.ENOSPC:
                self._note("no room", path)
            elif isinstance(error, OpenElsewhereError):
                self._note("open elsewhere", f"{path} ({error.who})")
            elif _may_change(path, change):
                self._note("not kept", f"{path} ({error.strerror})")
            raise

    def _look_at_connection(self, seen: Connection) -> None:
        if seen.listens:
            self._own_ports.add(seen.port or 0)
        elif seen.port is not None:
            self._connections.add((seen.address, seen.port))
        else:
            path = os.path.realpath(seen.address)
            if not overlay.is_below(path, (*self._view.passed, *self._view.roots)) and not is_ordinary(path, self._ordinary):
                self._note("service", seen.address)

    def _note(self, kind: str, what: str) -> None:
        if (kind, what) in self._noted:
            return
        self._noted.add((kind, what))
        with contextlib.suppress(OSError), open(self._view.touched, "ab") as stream:  # noqa: PTH123
            stream.write(json.dumps({kind: what}).encode() + b"\n")


def _entries(folder: str) -> list[str]:
    """All that is below a folder, by relative names; nothing for a file or a link."""
    if os.path.islink(folder):  # noqa: PTH114
        return []
    return [
        os.path.relpath(os.path.join(parent, name), folder)  # noqa: PTH118
        for parent, folders, files in os.walk(folder)
        for name in (*folders, *files)
    ]


def _move_by_copying(old: str, new: str) -> None:
    if _is_folder(old):
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(new)  # noqa: PTH106
        shutil.copytree(old, new, symlinks=True)
        shutil.rmtree(old)
        return
    if _is_folder(new):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), new)
    part = f"{os.path.dirname(new)}/.dynadiag-{os.urandom(6).hex()}"  # noqa: PTH120
    shutil.copy2(old, part, follow_symlinks=False)
    os.replace(part, new)  # noqa: PTH105
    os.unlink(old)  # noqa: PTH108


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114


def _end_children() -> None:
    """Kill all that this process has adopted, until there is nothing left."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while found := children.read_text("utf-8").split():
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        for pid in found:
            with contextlib.suppress(OSError):
                os.waitpid(int(pid), 0)


def _is_device(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _may_change(path: str, change: Change) -> bool:
    """Whether the program could make such a change if nobody looked after it."""
    return os.access(path if change == "content" else os.path.dirname(path), os.W_OK)  # noqa: PTH120


def touched(view: View) -> dict[str, list[str]]:
    """What runs in this view reached that cannot be kept apart, by kind: "network" ("10.0.0.1:5432"), "service" (a socket's path); "no
    room", "open elsewhere" and "not kept" have files that were not to be written, since no copy could be kept, and "dropped" what was
    written and is gone.
    """
    try:
        lines = Path(view.touched).read_bytes().splitlines()
    except OSError:
        return {}
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        with contextlib.suppress(ValueError):
            for kind, what in json.loads(line).items():
                found.setdefault(kind, {})[what] = None
    return {kind: list(names) for kind, names in found.items()}


# What every program writes outside of its own folder: temporary files, devices, and caches that hold nothing of a run's data.

_DEVICES: Final = ("/dev", "/proc", "/sys", "/run/nscd", "/run/nvidia", "/run/systemd", "/run/dbus", "/run/user", "/run/lock")
_CACHES: Final = (
    "XDG_CACHE_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "TORCH_HOME",
    "TORCH_EXTENSIONS_DIR",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "TRANSFORMERS_CACHE",
    "CUDA_CACHE_PATH",
    "NUMBA_CACHE_DIR",
    "MPLCONFIGDIR",
    "PYTHONPYCACHEPREFIX",
    "KERAS_HOME",
    "NLTK_DATA",
)
_IN_HOME: Final = (".cache", ".triton", ".nv", ".config/matplotlib", ".keras", "nltk_data")


def ordinary_folders(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Folders (real paths) in which writing says nothing of what a program leaves."""
    folders = [*_DEVICES, tempfile.gettempdir(), environment.get("TMPDIR", "")]
    folders += [environment.get(name, "") for name in _CACHES]
    home = environment.get("HOME") or str(Path("~").expanduser())
    folders += [f"{home}/{name}" for name in _IN_HOME]
    return tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders if folder.startswith("/") and folder != "/"))


def is_ordinary(path: str, folders: tuple[str, ...]) -> bool:
    """Whether a path lies in one of them, or is compiled Python code."""
    return "__pycache__" in path.split("/") or any(path == folder or path.startswith(folder + "/") for folder in folders)
