"""Exports that fail: nothing is compiled then, so that the trace is silent about them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.trace import stacks
from dynadiag.torch_compat.trace.hooks import Hooks

_LONGEST = 4000
_NAME = "log_export_usage"


def watch_export(trace: ModuleType, hooks: Hooks) -> None:
    """Record each export that ends, with the stack of its error and the source of the user's functions on it.

    `torch/export/_trace.py` reports its usage to a function that does nothing outside Meta, also while it handles an error (2.11 and 2.15):
    a hook there leaves no frame in the program's tracebacks.
    """
    told: list[BaseException] = []  # the innermost of nested exports comes first, with the same error

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        event, error = str(kwargs.get("event")), sys.exc_info()[1]
        if event == "export.time":
            hooks.sink.artifact("dynadiag_problem", {"kind": "exported", "text": "", "stack": stacks.calling_stack()}, compile_ids={})
        if not event.startswith("export.error") or error is None or error in told:
            return
        told[:] = [error]
        stack = [*stacks.calling_stack(), *stacks.stack_of(error.__traceback__)]
        named = "\n".join(f'  File "{place["file"]}", line {place["line"]}, in f' for place in stack)
        text = f"{type(error).__name__}: {str(error).strip()}"[:_LONGEST]
        for record in stacks.functions_named_in((named, text)):
            hooks.sink.artifact("dynadiag_function", record, compile_ids={})
        hooks.sink.artifact("dynadiag_problem", {"kind": "export_failed", "text": text, "stack": stack}, compile_ids={})

    hooks.install("export", lambda: hooks.watch(trace, _NAME, before=before, file=trace.__file__))
