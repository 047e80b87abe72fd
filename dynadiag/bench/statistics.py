"""Ratios of paired samples with their intervals; no random numbers and no torch.

A *pair* is one block of each of two arms in the same round, so that what slows both (clocks, temperature, another program) cancels.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


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


CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the ends of its interval, all in the same unit; `low <= estimate <= high`."""

    estimate: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether `value` lies outside."""
        return value < self.low or value > self.high

    def inside(self, low: float, high: float) -> bool:
        """Whether the whole interval lies within `low` and `high`."""
        return low <= self.low and self.high <= high


def median_interval(values: Sequence[float], *, confidence: float = CONFIDENCE, looks: Looks | None = None) -> Interval:
    """The median of `values` with its bootstrap interval.

    This is the percentile bootstrap with infinitely many resamples. For the median that limit has a closed form: the ends are order
    statistics whose ranks depend on the count alone (Maritz and Jarrett, JASA 73, 1978; Efron, The Jackknife, the Bootstrap, 1982, ch. 10),
    so no random numbers are drawn. With `looks` it is the interval that holds at every one of them. Raises ValueError without values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    low, high = _bootstrap_ranks(len(ordered), confidence) if looks is None else ranks(looks, confidence)
    return Interval(statistics.median(ordered), ordered[low], ordered[high])


@lru_cache(maxsize=4096)
def _bootstrap_ranks(count: int, confidence: float) -> tuple[int, int]:
    """Zero-based ranks of the ends, rounded outwards: the plain percentile covers a little less than it says."""
    tail = (1 - confidence) / 2
    lower_middle = (count + 1) // 2
    low = next(rank for rank in range(count) if _middle_at_most(count, rank + 1, lower_middle) > tail)
    low = max(0, low - 1)
    return low, count - 1 - low


def _middle_at_most(count: int, rank: int, middle: int) -> float:
    """P(the `middle`-th smallest of a resample is at most the `rank`-th smallest value), ranks counted from 1."""
    share = rank / count
    if share >= 1:
        return 1.0
    return math.fsum(math.comb(count, hits) * share**hits * (1 - share) ** (count - hits) for hits in range(middle, count + 1))


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], *, confidence: float = CONFIDENCE, looks: Looks | None = None
) -> Interval:
    """The median of numerator / denominator over pairs, with its interval as `median_interval` gives it.

    Raises ValueError without pairs, when the lengths differ, or when a sample is not a positive finite number.
    """
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} samples cannot be paired with {len(denominators)}")
    if not all(math.isfinite(value) and value > 0 for value in (*numerators, *denominators)):
        raise ValueError("a sample is not a positive number")
    # Logarithms, so that a pair and its reverse weigh the same whatever the median of an even count averages.
    logs = [math.log(top) - math.log(bottom) for top, bottom in zip(numerators, denominators, strict=True)]
    interval = median_interval(logs, confidence=confidence, looks=looks)
    return Interval(math.exp(interval.estimate), math.exp(interval.low), math.exp(interval.high))


def noise_interval(
    first: Sequence[float], second: Sequence[float], *, confidence: float = CONFIDENCE, looks: Looks | None = None
) -> Interval:
    """How far from 1 the ratio of two arms that run the same program lies here: the A/A interval, made symmetric around 1.

    Which of the two is called first is arbitrary, so the interval of first / second and its inverse count alike, and 1 is always inside.
    """
    measured = paired_ratio(first, second, confidence=confidence, looks=looks)
    reach = max(measured.high, 1 / measured.low, 1.0)
    return Interval(measured.estimate, min(1 / reach, measured.estimate), max(reach, measured.estimate))


def geometric_mean(ratios: Iterable[float]) -> float:
    """The geometric mean, nothing clipped. Raises ValueError without ratios or when one is not positive and finite."""
    logs = [math.log(ratio) if ratio > 0 and math.isfinite(ratio) else math.nan for ratio in ratios]
    if not logs or any(math.isnan(value) for value in logs):
        raise ValueError("a geometric mean needs positive numbers")
    return math.exp(math.fsum(logs) / len(logs))


def weighted_geometric_mean(ratios: Sequence[float], weights: Sequence[float]) -> float:
    """The geometric mean in which a ratio with the weight 2 counts as two. Raises ValueError as `geometric_mean` does."""
    geometric_mean(ratios)
    if len(ratios) != len(weights) or not all(weight > 0 and math.isfinite(weight) for weight in weights):
        raise ValueError("each ratio needs a positive weight")
    total = math.fsum(weight * math.log(ratio) for ratio, weight in zip(ratios, weights, strict=True))
    return math.exp(total / math.fsum(weights))


def spread(values: Sequence[float]) -> float:
    """How much samples vary: half the distance between the quartiles over the median (robust, no unit; 0 for fewer than 4)."""
    if len(values) < 4:
        return 0.0
    lower, middle, upper = statistics.quantiles(values, n=4)
    return (upper - lower) / 2 / middle


def drift(values: Sequence[float]) -> float:
    """How far the median of the last third lies from that of the first third, as a share of the latter (0 for fewer than 9)."""
    third = len(values) // 3
    if third < 3:
        return 0.0
    return statistics.median(values[-third:]) / statistics.median(values[:third]) - 1


def is_positive(value: Any) -> bool:
    """Whether this is a finite number above zero, in a file that anybody may have written."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
