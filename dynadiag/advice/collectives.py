"""Advice for breaks at calls of `torch.distributed`: never one to leave such a call out, since every rank has to make it.

Counted on torch 2.11 and 2.15 with gloo: `all_reduce` and `all_gather` are captured, with `async_op=True` they break (`GB0172`), as do the
`wait()` of what they return, `barrier` and `broadcast` (`pybind11` option objects).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.advice.break_context import BreakContext, Said, say, withhold

_ASYNC = re.compile(r"async_op|\(Work\)|\bWork\b.*\bwait\b")
_DISTRIBUTED = re.compile(r"\btorch\.distributed\b|\bdistributed_c10d\b|[/\\]torch[/\\]distributed[/\\]")
_WRITTEN = re.compile(r"\b(?:dist|distributed)\.\w+\(")


def in_collective(context: BreakContext) -> bool:
    """Whether the break is at a call of `torch.distributed`, or at the handle that an asynchronous one returned."""
    file = context.torch_frame.file if context.torch_frame is not None else ""
    if context.library:
        return False
    return _waits(context) or any(_DISTRIBUTED.search(text) for text in (context.gb_context, file)) or bool(_calls(context))


def collective_advice(context: BreakContext) -> Iterator[Said]:
    """The form that Dynamo captures."""
    if _waits(context):
        yield from say(
            "collective-sync",
            "Remove `async_op=True` and the corresponding `wait()`: Dynamo captures `all_reduce` and `all_gather` in the form that waits",
        )
    yield from withhold("Dynamo does not trace this `torch.distributed` call, which every rank has to make")


def _waits(context: BreakContext) -> bool:
    return _ASYNC.search(f"{context.gb_type} {context.gb_context}") is not None and not context.library


def _calls(context: BreakContext) -> re.Match[str] | None:
    """Option objects of pybind11 have no module in torch 2.11's words; then the user's line tells."""
    return _WRITTEN.search(context.line.code) if not context.editable or "pybind11" in context.gb_context else None
