"""The band of losses that eager's own rounding leaves open, and where a curve leaves it. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTHS = 8.0
"""A loss that is farther from eager's than this many times what eager with other rounding was off until then is outside."""
_LEAST = 4 * 2.0**-24
"""What a loss in float32 may be off by in any case, over its size: a few roundings."""


@dataclass(frozen=True)
class LossBand:
    """The losses of eager, of eager with other rounding (`noisy`), and of eager with other seeds (`shifted`; none before it is asked)."""

    eager: Sequence[float]
    noisy: Sequence[Sequence[float]] = ()
    shifted: Sequence[Sequence[float]] = ()

    def rounding(self, step: int) -> float | None:
        """What rounding explains at a step, from 0; None before it is asked. An error stays in the weights: all steps until then count."""
        if not self.noisy:
            return None
        off = (abs(noisy[at] - self.eager[at]) for noisy in self.noisy for at in range(min(step + 1, len(noisy), len(self.eager))))
        return WIDTHS * max((value for value in off if not math.isnan(value)), default=0.0) + _LEAST * abs(self.eager[step])

    def seeds(self, step: int) -> float | None:
        """How far another seed of the program leads; None where that was not asked."""
        return max((abs(curve[step] - self.eager[step]) for curve in self.shifted if step < len(curve)), default=None)

    def leaves_at(self, losses: Sequence[float]) -> int | None:
        """The first step, from 0, at which a curve is outside, or ends before eager does; None where it stays inside."""
        for step, (eager, loss) in enumerate(zip(self.eager, losses, strict=False)):
            if math.isnan(eager) and math.isnan(loss):
                continue
            if eager != loss and not abs(loss - eager) <= (self.rounding(step) or 0.0):
                return step
        return len(losses) if len(losses) < len(self.eager) else None


def guilty_graph(graphs: Sequence[int], stays_with: Callable[[Sequence[int]], bool]) -> int | None:
    """The one graph whose compilation alone makes the curve leave, by halves; None where no single one does.

    `stays_with(compiled)` says whether the curve stays in the band with only these graphs compiled.
    """
    left = list(graphs)
    while len(left) > 1:
        first, second = left[: len(left) // 2], left[len(left) // 2 :]
        if not stays_with(first):
            left = first
        elif not stays_with(second):
            left = second
        else:
            return None
    return left[0] if left and not stays_with(left) else None
