"""In which order arms run, and how many rounds are enough."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.bench.arms import pairs
from dynadiag.bench.verdict import MIN_ROUNDS, Verdict, decide

# Looking often at growing samples finds "significance" by chance; so looks are few (each a half more rounds than the last), and stopping
# early asks for more than the report does.
_GROWTH = 1.5
STOPPING_CONFIDENCE = 0.99
# Seconds that a block lasts at least, and how much longer it is planned, since it may come out shorter than the estimate.
SHORTEST_S = 0.02
_MARGIN = 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long timing may go on: rounds at least and at most, and seconds after which no further round starts."""

    min_rounds: int = MIN_ROUNDS
    max_rounds: int = 300
    max_s: float = 60.0


def orders(arms: Sequence[str], *, seed: int) -> Iterator[tuple[str, ...]]:
    """The order of the arms in each round, drawn anew every time so that no arm profits from its place."""
    source = random.Random(seed)
    while True:
        yield tuple(source.sample(arms, len(arms)))


def is_look(rounds: int, budget: Budget) -> bool:
    """Whether the samples are looked at after so many rounds."""
    look = budget.min_rounds
    while look < rounds:
        look = max(look + 1, int(look * _GROWTH))
    return look == rounds


def settled(samples: Mapping[str, Sequence[float]], *, baseline: str, same_again: str, confidence: float = STOPPING_CONFIDENCE) -> bool:
    """Whether every comparison has a verdict that stands at the stricter confidence as well."""
    names = [baseline, *(name for name in samples if name not in (baseline, same_again))]
    again, repeated = samples[same_again], samples[baseline]
    decided = (decide(samples[one], samples[two], again, repeated=repeated, confidence=confidence) for one, two in pairs(names))
    return all(decision.verdict is not Verdict.INCONCLUSIVE for decision in decided)


def enough(samples: Mapping[str, Sequence[float]], *, baseline: str, same_again: str, elapsed_s: float, budget: Budget) -> bool:
    """Whether to stop after this round: the budget is used up, or at a look every arm is settled."""
    rounds = len(samples[baseline])
    if rounds < budget.min_rounds:
        return False
    if rounds >= budget.max_rounds or elapsed_s >= budget.max_s:
        return True
    return is_look(rounds, budget) and settled(samples, baseline=baseline, same_again=same_again)


def calls_for(call_s: float, shortest_s: float = SHORTEST_S) -> int:
    """How many calls of so many seconds make a block of at least `shortest_s`."""
    return max(1, math.ceil(_MARGIN * shortest_s / max(call_s, 1e-9)))
