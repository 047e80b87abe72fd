"""What a program and all that it starts are about to change by name, or connect to: each such call waits until it was looked at.

Calls of the kernel are seen, so it is the same for Python, C++, SQLite and other programs (seccomp user notifications, Linux 5.5).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import re
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from dynadiag.private_view.kernel import WRITES, copied_descriptor, system_calls
from dynadiag.private_view.undo import Change

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE: Final = 1
_AT_FDCWD: Final = -100
_PAGE: Final = 4096
_LONGEST: Final = 4096
_SOCKET_FLAGS: Final = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK


@dataclass(frozen=True, slots=True)
class Touch:
    """A path that is about to be changed."""

    path: str
    change: Change


@dataclass(frozen=True, slots=True)
class Connection:
    """An address that is about to be connected to; `listens`: it is a port that the program itself opens."""

    address: str
    port: int | None
    listens: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """A name that is about to become another one. `plain`: as `rename` does it, which may replace what has that name."""

    path: str
    to: str
    plain: bool


@dataclass(frozen=True, slots=True)
class Link:
    """A file that is about to get another name as well."""

    path: str
    to: str


Seen = Touch | Move | Link | Connection
_LINKS: Final = {"link": (None, 0, None, 1), "linkat": (0, 1, 2, 3)}
_MOVES: Final = {"rename": (None, 0, None, 1), "renameat": (0, 1, 2, 3), "renameat2": (0, 1, 2, 3)}
_NO_FOLLOW: Final = 0x100
_REMOVE_FOLDER, _FOLLOW = 0x200, 0x400
_FLAGS_OF: Final = {"utimensat": 3, "fchmodat2": 3, "fchownat": 4, "setxattrat": 2, "removexattrat": 2}
"""The argument with the flag that a link itself is meant (AT_SYMLINK_NOFOLLOW)."""
_OF_LINKS: Final = ("lchown", "lsetxattr", "lremovexattr", "rmdir", "rmdir at")
_PLAIN: Final[dict[str, tuple[tuple[Change, int | None, int | None], ...]]] = {
    "unlink": (("entry", None, 0),),
    "rmdir": (("attributes", None, 0),),  # it goes only if nothing is in it
    "rmdir at": (("attributes", 0, 1),),
    "mkdir": (("new", None, 0),),
    "mknod": (("new", None, 0),),
    "symlink": (("new", None, 1),),
    "truncate": (("content", None, 0),),
    "creat": (("content", None, 0),),
    "chmod": (("attributes", None, 0),),
    "chown": (("attributes", None, 0),),
    "lchown": (("attributes", None, 0),),
    "utime": (("attributes", None, 0),),
    "utimes": (("attributes", None, 0),),
    "setxattr": (("attributes", None, 0),),
    "lsetxattr": (("attributes", None, 0),),
    "removexattr": (("attributes", None, 0),),
    "lremovexattr": (("attributes", None, 0),),
    "mkdirat": (("new", 0, 1),),
    "mknodat": (("new", 0, 1),),
    "unlinkat": (("entry", 0, 1),),
    "symlinkat": (("new", 1, 2),),
    "fchmodat": (("attributes", 0, 1),),
    "fchmodat2": (("attributes", 0, 1),),
    "fchownat": (("attributes", 0, 1),),
    "futimesat": (("attributes", 0, 1),),
    "utimensat": (("attributes", 0, 1),),
    "setxattrat": (("attributes", 0, 1),),
    "removexattrat": (("attributes", 0, 1),),
    "fchmod": (("attributes", 0, None),),
    "fchown": (("attributes", 0, None),),
    "fsetxattr": (("attributes", 0, None),),
    "fremovexattr": (("attributes", 0, None),),
}
"""For each call: what changes, the number of the argument with the folder's descriptor (None: the folder of now), and that of the path."""


class Watcher:
    """Answers the calls that wait at a descriptor of `kernel.install_filter`.

    `look` is told what each is about to do, and gives whether it has done it itself; it may raise OSError to have the call fail with its
    number.
    """

    def __init__(self, descriptor: int, look: Callable[[Seen], bool]) -> None:
        self._descriptor, self._look = descriptor, look
        self._names = {number: name for name, number in system_calls().items()}

    def answer(self) -> None:
        """Look at one call that waits, and let it go on."""
        raw = bytearray(80)
        try:
            fcntl.ioctl(self._descriptor, _RECEIVE, raw, True)
        except OSError:  # its process was killed, or a signal came first
            return
        number, pid, _ = struct.unpack_from("QII", raw)
        call, *_ = struct.unpack_from("i", raw, 16)
        arguments = struct.unpack_from("6Q", raw, 32)
        fails, done = 0, False
        try:
            for seen in _seen(self._names.get(call, ""), arguments, pid):
                done = self._look(seen)
        except OSError as error:
            fails = error.errno or errno.EIO
        reply = struct.pack("QqiI", number, 0, -fails, 0 if fails or done else _CONTINUE)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, _SEND, bytearray(reply), True)


def _seen(name: str, arguments: tuple[int, ...], pid: int) -> Iterator[Seen]:
    if name in ("connect", "listen", "bind"):
        yield from _connection(name, arguments, pid)
    elif name in ("open", "openat", "openat2"):
        at = 0 if name == "open" else 1
        flags = arguments[at + 1] if name != "openat2" else struct.unpack("Q", _memory(pid, arguments[2], 8))[0]
        if (touch := _opened(_folder(pid, arguments[0] if at else None), _text(pid, arguments[at]), flags)) is not None:
            yield touch
    elif name in _MOVES:
        from_folder, from_path, to_folder, to_path = _MOVES[name]
        old, new = _named(pid, arguments, from_folder, from_path), _named(pid, arguments, to_folder, to_path)
        if old is not None and new is not None:
            yield Move(old, new, plain=name != "renameat2" or not arguments[4] & 0xFFFFFFFF)
    elif name in _LINKS:
        from_folder, from_path, to_folder, to_path = _LINKS[name]
        follows = name == "linkat" and bool(arguments[4] & _FOLLOW)
        old, new = _named(pid, arguments, from_folder, from_path, follows=follows), _named(pid, arguments, to_folder, to_path)
        if old is not None and new is not None:
            yield Link(old, new)
    elif name == "unlinkat" and arguments[2] & _REMOVE_FOLDER:
        yield from _seen("rmdir at", arguments, pid)
    else:
        of_link = name in _OF_LINKS or (name in _FLAGS_OF and arguments[_FLAGS_OF[name]] & _NO_FOLLOW)
        for change, folder, at_path in _PLAIN.get(name, ()):
            follows = change in ("content", "attributes") and not of_link
            found = _named(pid, arguments, folder, at_path, follows=follows)
            if found is not None:
                yield Touch(found, change)


def _named(pid: int, arguments: tuple[int, ...], folder: int | None, path: int | None, *, follows: bool = False) -> str | None:
    base = _folder(pid, None if folder is None else arguments[folder])
    text = "" if path is None or not arguments[path] else _text(pid, arguments[path])
    return _resolved(base, text, follows=follows)


_OWN = re.compile(r"^(?:/proc/(?:thread-)?self(?=/|$)|/dev/fd(?=/|$)|/dev/std(?:in|out|err)$)")


def _of_process(pid: int, text: str) -> str:
    """A path that each process has its own of (`/proc/self`, `/dev/fd/3`), as that of this process."""

    def named(match: re.Match[str]) -> str:
        streams = {"/dev/fd": "fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2"}
        return f"/proc/{pid}/{streams[match[0]]}" if match[0] in streams else f"/proc/{pid}"

    return _OWN.sub(named, text)


def _opened(base: str, text: str, flags: int) -> Touch | None:
    """What an open for writing changes; None for one that can change nothing."""
    tmpfile = getattr(os, "O_TMPFILE", 0)
    if not flags & WRITES or (tmpfile and flags & tmpfile == tmpfile) or not text:
        return None
    new = flags & (os.O_CREAT | os.O_EXCL) == os.O_CREAT | os.O_EXCL
    path = _resolved(base, text, follows=not new and not flags & os.O_NOFOLLOW)
    return None if path is None else Touch(path, "new" if new else "content")


def _resolved(base: str, text: str, *, follows: bool) -> str | None:
    """The real path; where it does not `follow`, the last part may be a link. An empty text is the descriptor's own file."""
    whole = os.path.join(base, text) if text else base  # noqa: PTH118
    if not whole.startswith("/") or "\0" in whole:  # a pipe, a socket, a deleted file
        return None
    if follows or not text:
        return os.path.realpath(whole)
    parent, name = os.path.split(whole.rstrip("/"))
    return os.path.join(os.path.realpath(parent), name) if name not in ("", ".", "..") else os.path.realpath(whole)  # noqa: PTH118


def _folder(pid: int, descriptor: int | None) -> str:
    number = None if descriptor is None else struct.unpack("i", struct.pack("I", descriptor & 0xFFFFFFFF))[0]
    link = f"/proc/{pid}/cwd" if number is None or number == _AT_FDCWD else f"/proc/{pid}/fd/{number}"
    try:
        return os.readlink(link)  # noqa: PTH115
    except OSError:
        return ""


def _memory(pid: int, address: int, size: int) -> bytes:
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)


def _text(pid: int, address: int) -> str:
    """The string at an address, read page by page: the next page may not be there."""
    found = b""
    while len(found) < _LONGEST and b"\0" not in found:
        at = address + len(found)
        piece = _memory(pid, at, _PAGE - at % _PAGE)
        if not piece:
            break
        found += piece
    return _of_process(pid, os.fsdecode(found.partition(b"\0")[0]))


def _connection(name: str, arguments: tuple[int, ...], pid: int) -> Iterator[Seen]:
    if name == "bind":
        raw = _memory(pid, arguments[1], min(arguments[2], 128))
        if raw[:2] == struct.pack("H", socket.AF_UNIX) and raw[2:3] not in (b"", b"\0"):
            text = os.fsdecode(raw[2:].partition(b"\0")[0])
            if (path := _resolved(_folder(pid, None), text, follows=False)) is not None:
                yield Touch(path, "new")
        return
    with _socket_of(pid, arguments[0]) as found:
        if found is None or found.type & ~_SOCKET_FLAGS != socket.SOCK_STREAM:
            return  # a datagram socket that is "connected" has only been given an address: resolvers do so to sort addresses
        if name == "listen":
            if found.family in (socket.AF_INET, socket.AF_INET6):
                yield Connection("", found.getsockname()[1], listens=True)
            return
    raw = _memory(pid, arguments[1], min(arguments[2], 128))
    (family,) = struct.unpack_from("H", raw) if len(raw) > 2 else (0,)
    if family == socket.AF_UNIX and raw[2:3] != b"\0":
        yield Connection(os.fsdecode(raw[2:].partition(b"\0")[0]), None)
    elif family in (socket.AF_INET, socket.AF_INET6) and len(raw) >= (8 if family == socket.AF_INET else 24):
        (port,) = struct.unpack_from("!H", raw, 2)
        address = ipaddress.ip_address(raw[4:8] if family == socket.AF_INET else raw[8:24])
        yield Connection(str(getattr(address, "ipv4_mapped", None) or address), port)


@contextlib.contextmanager
def _socket_of(pid: int, descriptor: int) -> Iterator[socket.socket | None]:
    """The socket that another process has under this number; None where the kernel does not let us see it."""
    try:
        found = socket.socket(fileno=copied_descriptor(_process_of(pid), descriptor))
    except OSError:
        yield None
        return
    with found:
        yield found


def _process_of(thread: int) -> int:
    with open(f"/proc/{thread}/status", encoding="utf-8", errors="replace") as status:  # noqa: PTH123
        return next((int(row.split()[1]) for row in status if row.startswith("Tgid:")), thread)
