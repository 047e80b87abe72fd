"""A candidate is a script with statements missing, so it may do what nobody wrote: this keeps it from touching what is not its own.

An audit hook (PEP 578) refuses, before it happens: writing, moving or deleting outside the candidate's own folder, starting programs,
signals to foreign processes, and the network. A refusal is remembered, so that a script that catches it is still not taken for a good one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from dynadiag.torch_compat.trace.hooks import callback_switch, disguise

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_HARMLESS = ("/dev/shm/",)
_HARMLESS_TO_WRITE = (*_HARMLESS, "/dev/null", "/proc/self/", "/dev/tty", "/dev/nvidia")
_COMPILERS = (f"{os.sep}torch{os.sep}", f"{os.sep}triton{os.sep}")
_LOCAL = ("127.", "::1", "localhost", "0.0.0.0")


class RefusedError(PermissionError):
    """What a candidate wanted to do and may not."""


class Guard:
    """Refuses what leaves `folders`; `refusals` says what was refused, `line` the line of `script` that asked for it first.

    It cannot be taken out of the process again.
    """

    def __init__(self, folders: Sequence[str], *, script: str = "") -> None:
        self.refusals: list[str] = []
        self.line: int | None = None
        self._script = script
        self._folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self._switch = callback_switch()
        self._checks: dict[str, Callable[[Any], str | None]] = {
            "open": self._open,
            "shutil.rmtree": lambda args: self._outside("delete", args[0], args[1] if len(args) > 1 else None),
            "os.remove": lambda args: self._outside("delete", args[0], args[1]),
            "os.rmdir": lambda args: self._outside("delete", args[0], args[1]),
            "os.mkdir": lambda args: self._make(args[0], args[2]),
            "os.truncate": lambda args: self._outside("cut", args[0], None),
            "os.chmod": lambda args: self._outside("change", args[0], args[2]),
            "os.chown": lambda args: self._outside("change", args[0], args[3]),
            "os.rename": lambda args: self._outside("move", args[0], args[2]) or self._outside("replace", args[1], args[3]),
            "os.link": lambda args: self._outside("link", args[1], args[3]),
            "os.symlink": lambda args: self._outside("link", args[1], args[2]),
            "sqlite3.connect": self._database,
            "subprocess.Popen": lambda args: self._program(args[0]),
            "os.system": lambda args: self._program(args[0]),
            "os.exec": lambda args: self._program(args[0]),
            "os.posix_spawn": lambda args: self._program(args[0]),
            "pty.spawn": lambda args: self._program(args[0]),
            "os.kill": lambda args: self._signal(args[0]),
            "os.killpg": lambda args: self._signal(args[0]),
            "socket.connect": lambda args: self._network(args[1]),
            "socket.sendto": lambda args: self._network(args[1]),
        }

    def install(self) -> None:
        """Refuse from now on, in this process and its forks."""
        checks, switch, refuse = self._checks, self._switch, self._refuse

        def dynadiag_guard(event: str, args: Any) -> None:
            check = checks.get(event)
            if check is not None:
                prior = switch(None)
                try:
                    why = check(args)
                    if why is not None:
                        refuse(why)
                finally:
                    switch(prior)

        # Dynamo skips torch's own files, and so the hook.
        sys.addaudithook(disguise(dynadiag_guard, getattr(sys.modules.get("torch"), "__file__", None)))

    def check_write(self, path: Any) -> None:
        """Raise when this path may not be written: for writers that Python's audit hooks do not see."""
        why = self._outside("write", path, None) if isinstance(path, str | os.PathLike) else None
        if why is not None:
            self._refuse(why)

    def _refuse(self, why: str) -> None:
        if self.line is None:
            self.line = self._line_of_script()
        self.refusals.append(why)
        raise RefusedError(f"dynadiag: a candidate must not {why}")

    def _line_of_script(self) -> int | None:
        """The innermost line of the candidate itself."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self._script:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else None

    def _open(self, args: Any) -> str | None:
        path, mode, flags = args
        if isinstance(path, int):
            return None
        writes = flags & _WRITING if isinstance(flags, int) else any(letter in str(mode) for letter in "wax+")
        return self._outside("write", path, None) if writes else None

    def _outside(self, verb: str, path: Any, folder: Any) -> str | None:
        if isinstance(path, int):
            path = f"/proc/self/fd/{path}"
        elif isinstance(folder, int) and folder >= 0:
            path = os.path.join(f"/proc/self/fd/{folder}", os.fsdecode(path))  # noqa: PTH118 - as the operating system sees it
        try:
            text = os.fsdecode(path)
            # The last part is not followed: a link is deleted itself. For writing what it points to counts.
            whole = os.path.realpath(text)
            held = os.path.join(os.path.realpath(os.path.dirname(text) or os.curdir), os.path.basename(text))  # noqa: PTH118, PTH119, PTH120
        except (TypeError, ValueError):
            return f"{verb} {path!r}"
        place, harmless = (whole, _HARMLESS_TO_WRITE) if verb == "write" else (held, _HARMLESS)
        return None if place.startswith(harmless) or (place + os.sep).startswith(self._folders) else f"{verb} {whole}"

    def _make(self, path: Any, folder: Any) -> str | None:
        """A folder that is there already is not made: `makedirs(exist_ok=True)` asks for it all the same."""
        is_there = isinstance(path, str | bytes | os.PathLike) and folder in (None, -1) and os.path.isdir(path)  # noqa: PTH112
        return None if is_there else self._outside("make", path, folder)

    def _database(self, args: Any) -> str | None:
        return None if str(args[0]) == ":memory:" else self._outside("write", args[0], None)

    def _program(self, program: Any) -> str | None:
        return None if self._called_by_compiler() else f"start {os.fsdecode(program) if isinstance(program, str | bytes) else program!r}"

    def _called_by_compiler(self) -> bool:
        """Whether the innermost function outside of the standard library is torch's or Triton's."""
        frame: FrameType | None = sys._getframe(1)
        library = os.path.dirname(os.__file__)  # noqa: PTH120
        while frame is not None:
            file = frame.f_code.co_filename
            ours = file == __file__ or frame.f_code.co_name == "dynadiag_guard" or file.startswith("<frozen")
            if not ours and (not file.startswith(library) or "site-packages" in file):
                return any(part in file for part in _COMPILERS)
            frame = frame.f_back
        return False

    def _signal(self, pid: Any) -> str | None:
        try:
            own = pid > 0 and os.getpgid(pid) == os.getpgid(0)
        except (OSError, TypeError):
            own = False
        return None if own else f"send a signal to process {pid}"

    def _network(self, address: Any) -> str | None:
        local = not isinstance(address, tuple) or str(address[0]).startswith(_LOCAL)
        return None if local else f"connect to {address[0]}"
