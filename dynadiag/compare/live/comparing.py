"""What differs between what eager gave and what the compiled call gave: values beyond eager's own noise, sizes, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynadiag.compare.aliasing import is_plain, sharing
from dynadiag.compare.judge import EXPLAIN, Noise, Runs, Seen, judge, sharing_differences
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
    return tuple(difference for judged in judge(seen, compiled, noise, EXPLAIN, no_values=no_values) for difference in judged.differences)


def compare_sharing(
    eager: tuple[Sequence[Any], Sequence[Any]], compiled: tuple[Sequence[Any], Sequence[Any]], names: Sequence[str]
) -> tuple[Difference, ...]:
    """Outputs that alias an input or another output in one call and not, or differently, in the other.

    Each side is (outputs, inputs); `names` are those of the inputs. What is no plain tensor on both sides is left out.
    """
    if len(eager[0]) != len(compiled[0]):
        return ()
    plain = [is_plain(item) and is_plain(other) for item, other in zip(eager[0], compiled[0], strict=True)]
    was, now = (
        sharing([element if kept else None for element, kept in zip(outputs, plain, strict=True)], inputs)
        for outputs, inputs in (eager, compiled)
    )
    return tuple(sharing_differences(was, now, lambda at: f"output {at}" if at < len(plain) else names[at - len(plain)]))
