"""When a ratio is a verdict: FASTER, SLOWER, SAME, or INCONCLUSIVE; in which order arms run, and how many rounds are enough for one."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dynadiag.bench.arms import pairs
from dynadiag.bench.statistics import CONFIDENCE, Interval, Looks, drift, noise_interval, paired_ratio

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


# In which order arms run, and how many rounds are enough.

# Looks are few, each after a half more rounds than the last: what each may add to the error is then worth something.
_GROWTH = 1.5
# Seconds that a block lasts at least, and how much longer it is planned, since it may come out shorter than the estimate.
SHORTEST_S = 0.02
_MARGIN = 1.15
# A ratio that changed by so much from the first third of the rounds to the last is not one figure yet.
_MOVES = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long timing may go on: rounds at least and at most, and seconds after which no further round starts.

    A verdict ends the rounds after `min_s` at the earliest: a process may be slow for its first seconds, and twenty rounds of a short call
    take 1.6 s.
    """

    min_rounds: int = MIN_ROUNDS
    max_rounds: int = 300
    min_s: float = 4.0
    max_s: float = 60.0


def orders(arms: Sequence[str], *, seed: int) -> Iterator[tuple[str, ...]]:
    """The order of the arms in each round, drawn anew every time so that no arm profits from its place."""
    source = random.Random(seed)
    while True:
        yield tuple(source.sample(arms, len(arms)))


def planned_looks(budget: Budget) -> tuple[int, ...]:
    """After how many rounds the samples are looked at; the last time when the rounds are used up."""
    looks = [max(1, min(budget.min_rounds, budget.max_rounds))]
    while looks[-1] < budget.max_rounds:
        looks.append(min(budget.max_rounds, max(looks[-1] + 1, int(looks[-1] * _GROWTH))))
    return tuple(looks)


def is_look(rounds: int, budget: Budget) -> bool:
    """Whether the samples are looked at after so many rounds."""
    return rounds in planned_looks(budget)


def looks_until(rounds: int, budget: Budget, *, last: bool) -> Looks:
    """The looks at samples of so many rounds, now included; `last` where it was not the samples that ended the rounds."""
    planned = planned_looks(budget)
    return Looks(at=(*(look for look in planned if look < rounds), rounds), planned=len(planned), last=last)


def settled(samples: Mapping[str, Sequence[float]], *, baseline: str, same_again: str, looks: Looks) -> bool:
    """Whether every comparison has a verdict at this look."""
    names = [baseline, *(name for name in samples if name not in (baseline, same_again))]
    again, repeated = samples[same_again], samples[baseline]
    decided = (decide(samples[text], samples[two], again, repeated=repeated, looks=looks) for text, two in pairs(names))
    if not all(decision.verdict is not SpeedVerdict.INCONCLUSIVE for decision in decided):
        return False
    return not any(_moves(samples[item], samples[two]) for item, two in [*pairs(names), (baseline, same_again)])


def _moves(first: Sequence[float], second: Sequence[float]) -> bool:
    return abs(drift([number / two for number, two in zip(first, second, strict=True)])) > _MOVES


def enough(samples: Mapping[str, Sequence[float]], *, baseline: str, same_again: str, elapsed_s: float, budget: Budget) -> str:
    """Why to stop after this round: "settled", when at a look every arm is, or "budget", when that is used up; empty to go on."""
    rounds = len(samples[baseline])
    if rounds < budget.min_rounds:
        return ""
    now = looks_until(rounds, budget, last=False)
    if is_look(rounds, budget) and elapsed_s >= budget.min_s and settled(samples, baseline=baseline, same_again=same_again, looks=now):
        return "settled"
    return "budget" if rounds >= budget.max_rounds or elapsed_s >= budget.max_s else ""


def calls_for(call_s: float, shortest_s: float = SHORTEST_S) -> int:
    """How many calls of so many seconds make a block of at least `shortest_s`."""
    return max(1, math.ceil(_MARGIN * shortest_s / max(call_s, 1e-9)))
