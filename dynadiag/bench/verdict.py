"""When a ratio is a verdict: FASTER, SLOWER, SAME, or INCONCLUSIVE with the reason."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dynadiag.bench.statistics import CONFIDENCE, Interval, Looks, noise_interval, paired_ratio

MIN_ROUNDS = 20
SMALLEST_EFFECT = 0.01
# Of the A/A interval that an estimate must lie outside of. With 95 % one program was called SLOWER than itself in 1 of 50 verdicts on a
# busy CPU; by simulation of a shared machine 99 % makes that four times as rare.
NOISE_CONFIDENCE = 0.99
# From how far apart two processes of one program are on the figures of a third are doubted by twice as much, and nothing is called
# faster or slower that is not four times as far from 1. A short call on an H200's host (torch 2.11, 2026-11-27): eager and its A/A were
# 27 % apart for the 20 rounds of 1.6 s, and 1.675 was measured where later runs gave 1.204.
APART = 0.05
_DOUBTED, _CLEAR = 2, 4
# A third of the rounds whose ratio is so many half-widths away is none of the same figure: of independent samples that was 1 of 2,500
# (simulated, 20 to 100 rounds). A short call on an H200 (torch 2.11, 2026-11-28) was 0.69 times as fast for the first third of 300 rounds
# and 1.21 later, which was called 1.12 [1.00, 1.17].
_ANOTHER_FIGURE = 3


class SpeedVerdict(StrEnum):
    """What a comparison says about an arm. WRONG and VACUOUS come from the check of results, before any timing counts."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    INCONCLUSIVE = "INCONCLUSIVE"
    WRONG = "WRONG"
    VACUOUS = "VACUOUS"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, the reason when it is INCONCLUSIVE, the speed-up (baseline time / arm time) and the A/A interval of the same confidence.

    `widest` is the A/A interval of 99 % that the estimate was held against. Where the two processes of A/A are more than 5 % apart, the
    interval of the speed-up is wider by twice that. It holds the ratio of each third of the rounds where one of them is another figure.
    """

    verdict: SpeedVerdict
    reason: str
    speedup: Interval
    noise: Interval
    widest: Interval
    rounds: int


def decide(
    baseline: Sequence[float],
    arm: Sequence[float],
    same_again: Sequence[float],
    *,
    repeated: Sequence[float] | None = None,
    confidence: float = CONFIDENCE,
    looks: Looks | None = None,
) -> Decision:
    """The verdict on an arm from paired samples (times of any unit); `same_again` are the samples of the A/A arm.

    `repeated` are those of the arm that A/A repeats, where that is not `baseline`; `looks` says when growing samples were looked at, else
    their count was fixed before.
    FASTER or SLOWER when the interval of the speed-up excludes 1 and the estimate is more than 1 % from 1 and lies outside the A/A
    interval of 99 %, and, where A/A is more than 5 % apart, four times as far from 1 as that; SAME when the interval is inside 0.99 to
    1.01; otherwise INCONCLUSIVE. Raises ValueError as `paired_ratio` does.
    """
    speedup = paired_ratio(baseline, arm, confidence=confidence, looks=looks)
    once = baseline if repeated is None else repeated
    noise = noise_interval(once, same_again, confidence=confidence, looks=looks)
    widest = noise_interval(once, same_again, confidence=max(confidence, NOISE_CONFIDENCE), looks=looks)
    if (apart := _apart(noise)) > APART:
        doubt = (1 + apart) ** _DOUBTED
        speedup = Interval(speedup.estimate, speedup.low / doubt, speedup.high * doubt)
    speedup = _holding_thirds(speedup, [before / after for before, after in zip(baseline, arm, strict=True)])
    verdict, reason = _judge(speedup, widest, len(baseline))
    return Decision(verdict, reason, speedup, noise, widest, len(baseline))


def _holding_thirds(speedup: Interval, ratios: Sequence[float]) -> Interval:
    """The interval, with the ratio of each third of the rounds in it where one of them is another figure."""
    size = len(ratios) // 3
    if size < 3:
        return speedup
    thirds = [statistics.median(part) for part in (ratios[:size], ratios[size:-size], ratios[-size:])]
    low, high = ((end / speedup.estimate) ** _ANOTHER_FIGURE * speedup.estimate for end in (speedup.low, speedup.high))
    if min(thirds) >= low and max(thirds) <= high:
        return speedup
    return Interval(speedup.estimate, min(speedup.low, *thirds), max(speedup.high, *thirds))


def _apart(noise: Interval) -> float:
    """By which share of a call the slower process of A/A is slower than the other."""
    return max(noise.estimate, 1 / noise.estimate) - 1


def _judge(speedup: Interval, noise: Interval, rounds: int) -> tuple[SpeedVerdict, str]:
    if rounds < MIN_ROUNDS:
        return SpeedVerdict.INCONCLUSIVE, f"only {rounds} rounds were timed, at least {MIN_ROUNDS} are needed"
    far = abs(speedup.estimate - 1) > SMALLEST_EFFECT
    apart = _apart(noise)
    if apart > APART and abs(math.log(speedup.estimate)) < _CLEAR * math.log(1 + apart):
        return SpeedVerdict.INCONCLUSIVE, f"two processes that run the same program are {apart * 100:.1f} % apart here"
    if far and speedup.excludes(1) and noise.excludes(speedup.estimate):
        return (SpeedVerdict.FASTER if speedup.estimate > 1 else SpeedVerdict.SLOWER), ""
    if speedup.inside(1 - SMALLEST_EFFECT, 1 + SMALLEST_EFFECT):
        return SpeedVerdict.SAME, ""
    return SpeedVerdict.INCONCLUSIVE, _why_open(speedup, noise, far)


def _why_open(speedup: Interval, noise: Interval, far: bool) -> str:
    if not far:
        return f"the estimate is within 1 % of 1, but the interval reaches from {speedup.low:.3f} to {speedup.high:.3f}"
    if not speedup.excludes(1):
        return f"the interval from {speedup.low:.3f} to {speedup.high:.3f} includes 1"
    return f"two arms that run the same program already differ by up to {(noise.high - 1) * 100:.1f} % here"
