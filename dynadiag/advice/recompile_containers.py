"""Cures for recompiles because of the length or the keys of a container."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from dynadiag.advice.recompile_cause import Cause
from dynadiag.facts.guard_sources import is_global
from dynadiag.facts.wording import short_place
from dynadiag.model.report import Advice


def length_advice(cause: Cause) -> Iterable[Advice]:
    """Another number of elements than was compiled for."""
    if re.search(r"(?:^|\()(?:\w*kwargs|args)\)?$", cause.source):
        yield Advice(
            slug="same-arguments",
            text="The function is called with more arguments in some calls than in others. Always pass the same ones.",
        )
        return
    if cause.written is not None and cause.written.type in ("list", "deque"):
        line = cause.written.line
        at = "" if line is None or not line.code else f" at {short_place(line)} (`{line.code}`)"
        yield Advice(
            slug="append-outside",
            text=(
                f"`{cause.source}` gets longer from call to call{at}, and each length is compiled on its own. Return what is appended and "
                "append it outside the compiled function."
            ),
        )
        return
    if cause.written is not None or _is_kept(cause):
        yield from _filled_once(cause)
        return
    if " != " in cause.text:
        yield from _fixed_keys()
        return
    yield Advice(
        slug="stack-list",
        text=(
            "Each number of elements is compiled on its own. If they are tensors of one shape, stack them and mark the "
            "first dimension dynamic (`x = torch.stack(tensors)`, `torch._dynamo.maybe_mark_dynamic(x, 0)`); else pad to a fixed number."
        ),
    )


def _is_kept(cause: Cause) -> bool:
    """Whether the container outlives the call: it belongs to an object, a module or the closure."""
    raw = cause.raw_source.removeprefix("len(")
    return "." in cause.source or is_global(raw) or "closure" in cause.source or "__closure__" in raw


def _filled_once(cause: Cause) -> Iterable[Advice]:
    """A container that outlives the call and was longer later: growing, or filled once."""
    numbers = [int(value) for value in cause.values if re.fullmatch(r"\d{1,9}", value)]
    if len(numbers) > 2 and all(one < other for one, other in pairwise(numbers)):
        yield Advice(
            slug="append-outside",
            text=(
                f"`{cause.source}` gets longer from call to call, and each length is compiled on its own. Return what is added and "
                "add it outside the compiled function."
            ),
        )
    elif numbers[:1] == [0]:
        yield Advice(
            slug="fill-before",
            text=(
                f"`{cause.source}` was empty in the first call and held something later. If it is filled once, put its entries in before "
                "the first call, or count on one version more; if it grows with each call, fill it outside the compiled function."
            ),
        )


def keys_advice(cause: Cause) -> Iterable[Advice]:
    """Other keys than were compiled for."""
    return _filled_once(cause) if cause.written is not None or _is_kept(cause) else _fixed_keys()


def _fixed_keys() -> Iterable[Advice]:
    yield Advice(
        slug="fixed-keys",
        text=(
            "The dictionary or set does not always hold the same keys: each set of keys takes one compiled version, and no change is "
            "needed while there are fewer than versions. Else always pass the same keys, in one order, with a value for what is absent "
            "that changes no result (such as a weight of zero)."
        ),
    )
