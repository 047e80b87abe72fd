"""The exception that ended the program, as the interpreter keeps it after printing it."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any

from dynadiag.torch_compat import stacks

_TEXT_LIMIT = 4000


def uncaught_exception() -> dict[str, Any] | None:
    """The exception that nobody caught as a `dynadiag_problem`, or None. Nothing is hooked: `sys.last_exc` is read at exit.

    Python sets it (3.12; `sys.last_value` before) when it prints an exception, in an interactive session for each one.
    """
    raised = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(raised, Exception):
        return None
    cause = raised.__cause__ or raised
    text = f"{type(cause).__name__}: {str(cause).strip()[:_TEXT_LIMIT]}"
    return {"kind": "uncaught", "text": text, "stack": _stack(raised.__traceback__)}


def _stack(trace: TracebackType | None) -> list[dict[str, Any]]:
    entries = [(frame, line) for frame, line in traceback.walk_tb(trace)]
    return [stacks.place(frame.f_code.co_filename, line, stacks.qualified_name(frame.f_code)) for frame, line in entries[-100:]]
