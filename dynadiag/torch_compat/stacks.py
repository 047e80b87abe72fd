"""The stack of the user's program as plain data."""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, FrameType
from typing import Any

_DEPTH = 40
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # noqa: PTH100, PTH120
_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120


def place(file: str, line: int | None, function: str | None) -> dict[str, Any]:
    """One place {file, line, function, code}; the code is the source line as it can be read now."""
    code = linecache.getline(file, line).strip() if line else ""
    return {"file": file, "line": line, "function": function, "code": code or None}


def place_of(code: CodeType) -> dict[str, Any]:
    """Where a code object begins."""
    return place(code.co_filename, code.co_firstlineno, qualified_name(code))


def qualified_name(code: CodeType) -> str:
    """The qualified name of a code object; its plain name on Python 3.10, where an older torch may run."""
    name: str = getattr(code, "co_qualname", code.co_name)
    return name


def calling_stack() -> list[dict[str, Any]]:
    """The stack from the program's entry down to the call that we watch, our own frames and the hook's left out; at most 40 frames."""
    frames: list[dict[str, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(frames) < _DEPTH:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN_FOLDER) and code.co_name != "dynadiag_watch":
            frames.append(place(code.co_filename, frame.f_lineno, qualified_name(code)))
        frame = frame.f_back
    frames.reverse()
    return frames


def caller_file() -> str:
    """The file of the innermost frame that is neither ours nor the hook's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN_FOLDER) and code.co_name != "dynadiag_watch":
            return code.co_filename
        frame = frame.f_back
    return ""


def torch_folder() -> str:
    """Torch's own folder, with a separator at its end."""
    return os.path.dirname(getattr(sys.modules.get("torch"), "__file__", None) or "torch") + os.sep  # noqa: PTH120


def is_library(file: str) -> bool:
    """Whether code is torch's, the standard library's, an installed package's or generated: what a person did not write here."""
    if file.startswith("<"):
        return not file.startswith(("<stdin>", "<ipython"))
    if file.startswith((torch_folder(), _STDLIB)):
        return True
    return f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file
