"""Advice for breaks at calls of `torch.distributed`: never one to leave such a call out, since every rank has to make it.

Counted on torch 2.11 and 2.15 with gloo: `all_reduce` and `all_gather` are captured, with `async_op=True` they break (`GB0172`), as do the
`wait()` of what they return, `barrier` and `broadcast` (`pybind11` option objects).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.advice.situation import Said, Situation, say, withhold

_ASYNC = re.compile(r"async_op|\(Work\)|\bWork\b.*\bwait\b")
_DISTRIBUTED = re.compile(r"\btorch\.distributed\b|\bdistributed_c10d\b|[/\\]torch[/\\]distributed[/\\]")
_WRITTEN = re.compile(r"\b(?:dist|distributed)\.\w+\(")


def in_collective(situation: Situation) -> bool:
    """Whether the break is at a call of `torch.distributed`, or at the handle that an asynchronous one returned."""
    file = situation.torch_frame.file if situation.torch_frame is not None else ""
    if situation.library:
        return False
    return _waits(situation) or any(_DISTRIBUTED.search(text) for text in (situation.context, file)) or bool(_calls(situation))


def collective_advice(situation: Situation) -> Iterator[Said]:
    """The form that Dynamo captures."""
    if _waits(situation):
        yield from say(
            "collective-sync",
            "Leave out `async_op=True` and the `wait()` that belongs to it: Dynamo captures `all_reduce` and `all_gather` in the form that "
            "waits",
        )
    yield from withhold("Dynamo does not trace this call of `torch.distributed`, and every rank has to make it")


def _waits(situation: Situation) -> bool:
    return _ASYNC.search(f"{situation.gb_type} {situation.context}") is not None and not situation.library


def _calls(situation: Situation) -> re.Match[str] | None:
    """Option objects of pybind11 have no module in torch 2.11's words; then the user's line tells."""
    return _WRITTEN.search(situation.line.code) if not situation.editable or "pybind11" in situation.context else None
