"""What a case of the fuzzer may do: an audit hook that sees every open for writing, every program started, every strange module.

`planted` does each forbidden thing once, harmlessly, and says which of them went unseen: a watch that sees nothing proves nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path

_STARTS = frozenset(
    ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn", "os.kill", "webbrowser.open")
)
_PATHS = frozenset(
    (
        "os.rename",
        "os.link",
        "os.symlink",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.truncate",
        "os.chmod",
        "os.chown",
        "os.utime",
        "os.chdir",
    )
)
_LOADS = frozenset(("ctypes.dlopen", "pickle.find_class", "os.putenv", "os.unsetenv", "sys.settrace", "sys.addaudithook"))
# Who may run code objects that it has just made: imports, the standard library's class builders, and the code of graphs that were rebuilt.
_RUNS_CODE = (
    "importlib",
    "_frozen_importlib",
    "dataclasses",
    "collections",
    "enum",
    "typing",
    "torch.fx",
    "torch.jit",
    "torch._dynamo.guards",
)
_OPENS_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class TooSlow(BaseException):
    """A case that needed too much CPU time."""


class Watch:
    """Between `begin` and `end`, what is opened for writing, made, moved or removed must lie in the folder; nothing is started, no socket
    opened, no library or pickle loaded, no module imported whose package was not in use before, and no file read that is not Python's own.
    """

    def __init__(self) -> None:
        self.broken: list[str] = []
        self._folder: str | None = None
        self._known: set[str] = set()
        self._readable = tuple(
            f"{os.path.realpath(place)}/"
            for place in {*sys.path, sys.prefix, sys.base_prefix, Path(__file__).parents[2], "/proc", "/sys", "/usr/share/zoneinfo"}
            if place
        )
        sys.addaudithook(self._event)

    def begin(self, folder: Path) -> None:
        """Watch from here on."""
        self._known = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names)
        self.broken, self._folder = [], os.path.realpath(folder)

    def end(self) -> None:
        """Watch no more."""
        self._folder = None

    def _event(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._folder is None:
            return
        if event == "open":
            flags = arguments[2]
            self._path(event, arguments[0], writes=_writes(arguments), not_followed=isinstance(flags, int) and bool(flags & os.O_NOFOLLOW))
        elif event in _PATHS:
            for one in arguments[:2]:
                self._path(event, one, writes=True)
        elif event in _STARTS or event in _LOADS or event.startswith("socket."):
            self.broken.append(f"{event} {arguments!r:.300}")
        elif event == "import" and str(arguments[0]).partition(".")[0] not in self._known:
            self.broken.append(f"import {arguments[0]!r:.100}")
        elif event == "exec" and not self._may_run(arguments[0], sys._getframe(1)):
            self.broken.append(f"exec {arguments[0]!r:.200}")

    def _may_run(self, code: object, frame: types.FrameType) -> bool:
        file = getattr(code, "co_filename", "")
        if file.startswith(self._readable):
            return True
        return str(frame.f_globals.get("__name__")).startswith(_RUNS_CODE)

    def _path(self, event: str, path: object, *, writes: bool, not_followed: bool = False) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)) or self._folder is None:
            return
        name = os.fsdecode(path)
        if not os.path.isabs(name):  # relative to a folder that was opened: `dir_fd` is no part of the event
            outside = "/" in name or name in ("..", ".")
        else:
            # With O_NOFOLLOW a link as the last part is refused, not followed.
            real = f"{os.path.realpath(os.path.dirname(name)) + name[name.rfind('/') :] if not_followed else os.path.realpath(name)}/"
            outside = not real.startswith(f"{self._folder}/") and not name.startswith("/dev/null")
            outside = outside and (writes or not real.startswith(self._readable))
        if outside and "__pycache__" not in name:
            self.broken.append(f"{event} to {'write' if writes else 'read'} {name}")


def _writes(arguments: tuple[object, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    asked = isinstance(mode, str) and set(mode) & set("wax+")
    return bool(asked) or (isinstance(flags, int) and bool(flags & _OPENS_TO_WRITE))


def planted(judge: Callable[[Callable[[Path], object]], str | None]) -> Iterator[str]:
    """The forbidden things that `judge` does not see. It runs what it is given, as it runs a case, in a folder, and says what was wrong."""
    with tempfile.TemporaryDirectory(prefix="fuzz-planted-") as name:
        strange = Path(name)
        (strange / "fuzz_strange_module.py").write_text("")
        (strange / "precious").write_text("precious")

        def imports(_: Path) -> None:
            sys.path.insert(0, name)
            try:
                importlib.import_module("fuzz_strange_module")
            finally:
                sys.path.remove(name)

        def through_a_link(folder: Path) -> None:
            (folder / "link").symlink_to(strange / "precious")
            (folder / "link").write_text("overwritten")

        acts: dict[str, Callable[[Path], object]] = {
            "a file written outside": lambda _: (strange / "new").write_text("x"),
            "a file written through a link": through_a_link,
            "a file removed outside": lambda _: (strange / "new").unlink(missing_ok=True),
            "a folder made outside": lambda _: (strange / "folder").mkdir(),
            "a file read outside": lambda _: (strange / "precious").read_text(),
            "os.system": lambda _: os.system("true"),  # noqa: S605, S607
            "a program": lambda _: subprocess.run(["true"], check=False),  # noqa: S607
            "a socket": lambda _: socket.socket().close(),
            "a strange module": imports,
            "code that is run": lambda _: exec("x = 1", {}),
            "a pickle": lambda _: pickle.loads(pickle.dumps(Path)),
            "an environment variable": lambda _: os.environ.__setitem__("FUZZ_PLANTED", "1"),
            "an error of ours": lambda _: [][0],
            "an exit": lambda _: sys.exit(0),
            "a loop": lambda _: _turns(),
        }
        for what, act in acts.items():
            if judge(act) is None:
                yield what


def _turns() -> None:
    with contextlib.suppress(Exception):
        while True:
            pass


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TooSlow after so much CPU time."""

    def stop(*_: object) -> None:
        raise TooSlow

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
