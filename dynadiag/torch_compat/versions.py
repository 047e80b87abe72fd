"""Which torch each part of dynadiag needs: the oldest that its tests passed on. Standard library only; imports no torch."""

from __future__ import annotations

import re
import sys

from dynadiag.errors import TorchUnsupportedError

OLDEST = (2, 6)
"""Recording, `explain`, `graph` and everything that only reads (`tests/older_torch` on 2.6 and 2.9)."""
OLDEST_THAT_COMPARES = (2, 9)
"""`explain --parity`, `parity`, `minify` and `bench`, which call compiled code again (parts of the suite on 2.9.1, by hand)."""


_ASK = """
import sys
try:
    from importlib.metadata import version
    torch = version("torch")
except Exception:
    from importlib.util import find_spec
    torch = "none" if find_spec("torch") is None else ""
print(*sys.version_info[:2], torch)
"""
_ASK_TIMEOUT_S = 60.0


def too_old(part: str, torch: str | None, oldest: tuple[int, int] = OLDEST_THAT_COMPARES) -> str | None:
    """Why this version of torch is too old for `part`, in one line; None when it is not, or when the version is not known.

    Vendor builds and pre-releases of a version count as that version: their numbers start alike (`2.11.0a0+nv26.2`).
    """
    number = re.match(r"(\d+)\.(\d+)", torch or "")
    if number is None or (int(number[1]), int(number[2])) >= oldest:
        return None
    return f"{part} needs torch {oldest[0]}.{oldest[1]} or newer, this is {torch}"


def require(part: str) -> None:
    """Raise TorchUnsupportedError when this interpreter has no torch, or one that is too old for `part`."""
    import importlib.util  # with the two below a twentieth of what `explain` of a recording takes, which asks `too_old` alone
    from importlib import metadata

    try:
        why = too_old(part, metadata.version("torch"))
    except metadata.PackageNotFoundError:  # a source tree has no version
        why = None if importlib.util.find_spec("torch") is not None else f"{part} needs torch, and {sys.executable} has none"
    if why is not None:
        raise TorchUnsupportedError(why)


def require_in(python: str, part: str, *, oldest_python: tuple[int, int] = (3, 10)) -> None:
    """Raise TorchUnsupportedError when the interpreter `python` has no torch, or it or its torch is too old for `part`.

    Says nothing where it gives no answer.

    Torch 2.9 and newer need Python 3.10 (their wheels' `requires-python`), so that torch is named first.
    """
    import subprocess

    try:
        said = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return
    if len(said) < 2 or not all(number.isdecimal() for number in said[:2]):
        return
    if said[2:] == ["none"]:
        raise TorchUnsupportedError(f"{part} needs torch, and {python} has none")
    if (why := too_old(part, said[2] if len(said) > 2 else None)) is not None:
        raise TorchUnsupportedError(why)
    if (int(said[0]), int(said[1])) < oldest_python:
        wanted = ".".join(map(str, oldest_python))
        raise TorchUnsupportedError(f"{part} needs Python {wanted} or newer in the script's interpreter, {python} is {said[0]}.{said[1]}")
