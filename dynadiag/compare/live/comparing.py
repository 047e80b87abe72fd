"""What differs between what eager gave and what the compiled call gave: values beyond eager's own noise, sizes, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynadiag.compare.aliasing import alias_pattern, is_plain
from dynadiag.compare.judge import EXPLAIN, Noise, Runs, Seen, difference, judge
from dynadiag.model.difference import Difference, Where

Anchors = Callable[[], Runs]


def compare(
    eager: Sequence[Any],
    compiled: Sequence[Any],
    names: Sequence[str],
    *,
    where: Where,
    anchors: Anchors | None = None,
    coarsest: torch.dtype | None = None,
    before: Sequence[Any] = (),
    no_values: frozenset[int] = frozenset(),
) -> tuple[Difference, ...]:
    """Everything that differs between two lists of values, position by position.

    `anchors` gives the same list from eager calls that differ only by noise (float64, inputs changed in their last digits); it is asked
    once, and only when values differ. `coarsest` is the least precise dtype computed in, `before` what the values were before the call.
    Values at `no_values` are not compared.
    """
    seen = [Seen(where, at, names[at] if at < len(names) else "", value) for at, value in enumerate(eager)]
    noise = Noise(runs=None if anchors is None else lambda _: anchors(), coarsest=coarsest, before=before)
    return tuple(one for judged in judge(seen, compiled, noise, EXPLAIN, no_values=no_values) for one in judged.differences)


def compare_sharing(
    eager: tuple[Sequence[Any], Sequence[Any]], compiled: tuple[Sequence[Any], Sequence[Any]], names: Sequence[str]
) -> tuple[Difference, ...]:
    """Outputs that share memory with an input or with another output in one call and not, or differently, in the other.

    Each side is (outputs, inputs); `names` are those of the inputs. Parts of one storage that do not overlap count as separate: nobody
    could tell by writing to one of them.
    """
    count = len(eager[0])
    if count != len(compiled[0]):
        return ()
    was, now = _sharing(eager, count), _sharing(compiled, count)
    plain = [is_plain(one) and is_plain(other) for one, other in zip([*eager[0], *eager[1]], [*compiled[0], *compiled[1]], strict=False)]
    found = []
    for one, other in sorted(was.keys() | now.keys()):
        if was.get((one, other)) != now.get((one, other)) and plain[one] and plain[other]:
            name = f"output {other}" if other < count else names[other - count]
            sides = _shared(was.get((one, other))), _shared(now.get((one, other)))
            found.append(difference(Seen("output", one, name, None), "alias", *sides))
    return tuple(found)


def _sharing(side: tuple[Sequence[Any], Sequence[Any]], outputs: int) -> dict[tuple[int, int], str]:
    """How each output overlaps other outputs and inputs, which are numbered behind the outputs."""
    pattern = alias_pattern([*side[0], *side[1]])
    return {(one, other): how for one, other, how in pattern if one < outputs and how != "one storage"}


def _shared(how: str | None) -> str:
    return {None: "separate memory", "overlap": "overlapping memory"}.get(how, str(how))
