"""Intervals of a median that hold at every look at growing samples, so that stopping when they look good is covered.

These are repeated confidence intervals (C. Jennison and B. W. Turnbull, Interim analyses: the repeated confidence interval approach, JRSS B
51, 1989) with the error spent look by look (K. K. G. Lan and D. L. DeMets, Discrete sequential boundaries for clinical trials, Biometrika
70, 1983): each planned look may add an equal share of it, and the last one what is left. How many values lie below their true median is a
walk of fair coins whatever the values are distributed like, so the error of all looks together is computed exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """After how many values they were looked at, the last of them now; `planned` looks there may be, `last` says that no other follows."""

    at: tuple[int, ...]
    planned: int
    last: bool


@lru_cache(maxsize=1024)
def ranks(looks: Looks, confidence: float) -> tuple[int, int]:
    """Zero-based ranks of the ends of the interval of the median now; the whole range where there are too few values."""
    allowed, spent, beyond = 1 - confidence, 0.0, -1
    alive = [1.0]
    for number, count in enumerate(looks.at, start=1):
        alive = _tossed(alive, count - len(alive) + 1)
        now = looks.last and number == len(looks.at)
        room = allowed * (1.0 if now else min(1.0, number / looks.planned)) - spent
        beyond = _beyond(alive, room)
        spent += sum(_out(alive, beyond))
        for below in range(beyond + 1):
            alive[below] = alive[count - below] = 0.0
    count = looks.at[-1]
    low = min(max(beyond, 0), (count - 1) // 2)
    return low, count - 1 - low


def _tossed(alive: list[float], times: int) -> list[float]:
    for _ in range(times):
        alive = [0.5 * (below + above) for below, above in zip([0.0, *alive], [*alive, 0.0], strict=True)]
    return alive


def _out(alive: list[float], beyond: int) -> list[float]:
    """What of the walk lies on either side of an interval that leaves out so many values and one more at each end."""
    return [*alive[: beyond + 1], *alive[len(alive) - beyond - 1 :]] if beyond >= 0 else []


def _beyond(alive: list[float], room: float) -> int:
    """How many values may lie outside at each end for no more than this error; -1 for none, not even the case that all do."""
    beyond = -1
    while 2 * (beyond + 1) < len(alive) - 2 and math.fsum(_out(alive, beyond + 1)) <= room:
        beyond += 1
    return beyond
