"""The system calls that Python 3.11 has no function for, on Linux: namespaces, mounts, process controls, a filter of system calls."""

from __future__ import annotations

import errno
import functools
import os
import platform
import signal
import struct
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_CAPABILITIES_V3 = 0x20080522
_SECCOMP_SET_MODE_FILTER, _SPEC_ALLOW, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 2, 1 << 3, 1 << 5
_ALLOW, _USER_NOTIF, _NO_SUCH_CALL = 0x7FFF0000, 0x7FC00000, 0x00050000 | errno.ENOSYS
_PIDFD_GETFD = 438
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_AT_FDCWD, _LONGEST_HANDLE = -100, 128
_LOAD, _JUMP_EQUAL, _JUMP_FROM, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_OTHER_ABI: Final = 0x40000000
_IO_URING_SETUP: Final = 425


class NotPossibleError(Exception):
    """The kernel refuses a step, or has none; the text is for people."""


@functools.cache
def _libc() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise NotPossibleError("it needs Linux")
    import ctypes  # the mere import loads libraries: not where a recording is only read

    return ctypes.CDLL(None, use_errno=True)


def _error_number() -> int:
    import ctypes

    return ctypes.get_errno()


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = _error_number()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Give this process, which must have one thread for a user namespace, namespaces of its own. Raises OSError."""
    _checked(_libc().unshare(flags), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Make a file system or a folder visible at `target`. Raises OSError."""
    import ctypes

    encoded = [None if name is None else os.fsencode(name) for name in (source, target, kind, data)]
    source_, target_, kind_, data_ = encoded
    _checked(_libc().mount(source_, target_, kind_, ctypes.c_ulong(flags), data_), f"mount on {target}")


def die_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when its parent ends."""
    _libc().prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """What descendants of this process leave behind becomes its child."""
    _libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def allow_to_be_read() -> None:
    """A process that got other rights is hidden from its own parent and children until it says otherwise."""
    _libc().prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def drop_capabilities() -> None:
    """Have no more rights than the user has: a new user namespace gives all of them inside itself."""
    header = struct.pack("Ii", _CAPABILITIES_V3, 0)
    _checked(_libc().capset(header, struct.pack("6I", 0, 0, 0, 0, 0, 0)), "capset")


@functools.cache
def system_calls() -> dict[str, int]:
    """The numbers of what changes files by name, or connects, on this processor. Raises NotPossibleError for one that is not known.

    Those of 400 and above are the same everywhere (`include/uapi/asm-generic/unistd.h`, `arch/x86/entry/syscalls/syscall_64.tbl`).
    """
    machine = platform.machine()
    everywhere = {"openat2": 437, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466}
    if machine == "x86_64":
        names = {"open": 2, "creat": 85, "rename": 82, "mkdir": 83, "rmdir": 84, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90}
        names |= {"fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "truncate": 76, "utime": 132, "mknod": 133, "utimes": 235}
        names |= {"openat": 257, "mkdirat": 258, "mknodat": 259, "fchownat": 260, "futimesat": 261, "unlinkat": 263, "renameat": 264}
        names |= {"linkat": 265, "symlinkat": 266, "fchmodat": 268, "utimensat": 280, "renameat2": 316, "connect": 42, "bind": 49}
        names |= {"listen": 50, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198}
        names |= {"fremovexattr": 199}
    elif machine == "aarch64":
        names = {"openat": 56, "mkdirat": 34, "mknodat": 33, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45}
        names |= {"fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88, "connect": 203, "listen": 201}
        names |= {"renameat2": 276, "bind": 200, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15}
        names |= {"fremovexattr": 16}
    else:
        raise NotPossibleError(f"the system calls of {machine} are not known")
    return names | everywhere


WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FLAGS_AT = {"open": 1, "openat": 2}


def _filter() -> bytes:
    """A program that stops at the calls of `system_calls`, and at an `open` only where it is for writing.

    Where calls are made in another way (io_uring, programs for 32 bits, x32), it is as if this kernel could not: nobody would see them.
    """
    architecture = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[platform.machine()]

    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    rows = [step(_LOAD, 4), step(_JUMP_EQUAL, architecture, 1, 0), step(_RETURN, _NO_SUCH_CALL), step(_LOAD, 0)]
    rows += [step(_JUMP_FROM, _OTHER_ABI, 0, 1), step(_RETURN, _NO_SUCH_CALL)]
    rows += [step(_JUMP_EQUAL, _IO_URING_SETUP, 0, 1), step(_RETURN, _NO_SUCH_CALL)]
    for name, number in system_calls().items():
        if (at := _FLAGS_AT.get(name)) is None:
            rows += [step(_JUMP_EQUAL, number, 0, 1), step(_RETURN, _USER_NOTIF)]
        else:
            rows += [step(_JUMP_EQUAL, number, 0, 4), step(_LOAD, 16 + 8 * at), step(_JUMP_SET, WRITES, 0, 1)]
            rows += [step(_RETURN, _USER_NOTIF), step(_RETURN, _ALLOW)]
    return b"".join([*rows, step(_RETURN, _ALLOW)])


def install_filter() -> int:
    """From now on this process and what it starts wait at such calls for who reads the descriptor that this gives. Raises OSError.

    It cannot be removed. setuid programs no longer get their owner's rights (`PR_SET_NO_NEW_PRIVS`), which the kernel asks for.
    """
    libc = _libc()
    program = _filter()
    import ctypes

    steps = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HP", len(program) // 8, ctypes.addressof(steps))
    call = {"x86_64": 317, "aarch64": 277}[platform.machine()]
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    # Without _SPEC_ALLOW a process with a filter is slower before Linux 5.16 (speculative stores are switched off); _WAIT_KILLABLE: 5.19.
    for flags in (_NEW_LISTENER | _SPEC_ALLOW | _WAIT_KILLABLE, _NEW_LISTENER | _SPEC_ALLOW):
        found = int(libc.syscall(call, _SECCOMP_SET_MODE_FILTER, flags, described))
        if found >= 0 or _error_number() != errno.EINVAL:
            break
    return _checked(found, "seccomp")


def punch_hole(descriptor: int, begin: int, length: int) -> None:
    """Make a range of an open file zeros that take no room. Raises OSError where the file system cannot."""
    import ctypes

    call = getattr(_libc(), "fallocate64", None) or _libc().fallocate
    _checked(call(descriptor, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_int64(begin), ctypes.c_int64(length)), "fallocate")


def file_handle(path: str) -> str | None:
    """What names a file for as long as the file system lives: the number of a deleted one is given to a new file, its handle is not.

    None where the file system has none (`name_to_handle_at`).
    """
    import ctypes

    room = ctypes.create_string_buffer(struct.pack("Ii", _LONGEST_HANDLE, 0), 8 + _LONGEST_HANDLE)
    mount_id = ctypes.c_int()
    try:
        failed = _libc().name_to_handle_at(_AT_FDCWD, os.fsencode(path), room, ctypes.byref(mount_id), 0)
    except (AttributeError, NotPossibleError):  # another libc, another system
        return None
    if failed:
        return None
    (size,) = struct.unpack_from("I", room.raw)
    return room.raw[4 : 8 + size].hex()


def copied_descriptor(pid: int, descriptor: int) -> int:
    """A descriptor of this process for what another one has open (`pidfd_getfd`, Linux 5.6). Raises OSError."""
    process = os.pidfd_open(pid)
    try:
        return _checked(int(_libc().syscall(_PIDFD_GETFD, process, descriptor, 0)), "pidfd_getfd")
    finally:
        os.close(process)
