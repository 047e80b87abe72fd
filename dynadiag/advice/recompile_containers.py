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
    """Another number of elements than was compiled for.

    Established: that the compiled code itself puts elements in (torch's record of side effects) and, before they are told to be put in
    outside, that the function does nothing else with the container: what is read has a length that is compiled in all the same. Whoever
    calls a library's function is not told to pass other arguments: the library may make the call.
    """
    if cause.library and re.search(r"(?:^|\()(?:\w*kwargs|args)\)?$", cause.source):
        return
    if re.search(r"(?:^|\()(?:\w*kwargs|args)\)?$", cause.source):
        yield Advice(
            slug="same-arguments",
            text="The function is called with more arguments in some calls than in others. Always pass the same ones.",
        )
        return
    if "_modules" in cause.raw_source or cause.source.endswith(("_modules", "_modules)")):
        yield Advice(
            slug="bounded-versions",
            text=(
                "A module holds another number of layers than before: each number takes one compiled version, and no change is needed "
                "while there are fewer than versions."
            ),
        )
        return
    if cause.written is not None and cause.written.type in ("list", "deque"):
        line = cause.written.line
        at = "" if line is None or not line.code else f" at {short_place(line)} (`{line.code}`)"
        grows = f"`{cause.source}` gets longer from call to call{at}, and each length is compiled on its own"
        if _only_grows(cause):
            text = f"{grows}. Return what is appended and append it outside the compiled function."
            yield Advice(slug="append-outside", text=text)
        else:
            text = (
                f"{grows} where the compiled code reads it. Where it stops growing (a `maxlen`), no change is needed; else read it "
                "outside and pass what is needed as arguments whose number does not change."
            )
            yield Advice(slug="bounded-versions", text=text)
        return
    if cause.written is not None or _is_kept(cause):
        yield from _filled_once(cause)
        return
    if " != " in cause.text:
        yield from _fixed_keys()
        return
    name = cause.source.removeprefix("len(").removesuffix(")")
    if cause.function is not None and cause.function.only_joined(name):
        yield Advice(
            slug="stack-list",
            text=(
                f"Each number of elements is compiled on its own. The function only joins `{name}`: join it before the call and pass the "
                f"tensor, with its first dimension marked dynamic (`x = torch.stack({name})`, `torch._dynamo.maybe_mark_dynamic(x, 0)`)."
            ),
        )
        return
    yield Advice(
        slug="bounded-versions",
        text=(
            f"Each number of elements of `{name}` is compiled on its own, and a loop over them is unrolled. No change is needed while "
            "there are fewer numbers than versions. Else pad to a few fixed numbers with elements that change no result."
        ),
    )


def _is_kept(cause: Cause) -> bool:
    """Whether the container outlives the call: it belongs to an object, a module or the closure."""
    raw = cause.raw_source.removeprefix("len(")
    return "." in cause.source or is_global(raw) or "closure" in cause.source or "__closure__" in raw


def _only_grows(cause: Cause) -> bool:
    name = cause.source.removeprefix("len(").removesuffix(")")
    return cause.function is not None and not cause.resumed and cause.function.only_grows(name)


def _filled_once(cause: Cause) -> Iterable[Advice]:
    """A container that outlives the call and was longer later: growing, or filled once."""
    numbers = [int(value) for value in cause.values if re.fullmatch(r"\d{1,9}", value)]
    if len(numbers) > 2 and all(one < other for one, other in pairwise(numbers)):
        if cause.written is not None and not _only_grows(cause):
            return  # what is read of it has a length that is compiled in all the same
        if cause.written is not None:
            yield Advice(
                slug="append-outside",
                text=(
                    f"`{cause.source}` gets longer from call to call, and each length is compiled on its own. Return what is added and "
                    "add it outside the compiled function."
                ),
            )
            return
        yield Advice(
            slug="read-outside",
            text=(
                f"`{cause.source}` gets longer between the calls, and each length is compiled on its own, however little is read of it. "
                "Read it outside the compiled function and pass what is needed as an argument: a flag, or a tensor."
            ),
        )
    elif numbers[:1] == [0]:
        yield Advice(
            slug="fill-before",
            text=(
                f"`{cause.source}` was empty in the first call and held something later. If it is filled once, that is one version more, "
                "and no change is needed; to put its entries in before the first call saves that version."
            ),
        )


def keys_advice(cause: Cause) -> Iterable[Advice]:
    """Other keys than were compiled for; a library's function may be called by the library."""
    if cause.library and re.search(r"\b(?:\w*kwargs|args)$", cause.source):
        return ()
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
