"""In which order arms run, and how many rounds are enough."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.bench.arms import pairs
from dynadiag.bench.statistics import Looks, drift
from dynadiag.bench.verdict import MIN_ROUNDS, SpeedVerdict, decide

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
