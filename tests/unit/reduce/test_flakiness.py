"""A flaky failure: the verdict on a candidate that fails just as often is wrong in less than 1 % of the cases, by simulation."""

from __future__ import annotations

import random

import pytest

from dynadiag.reduce.core.flakiness import CONFIRMATIONS, WRONG_VERDICT, repeats_for, wants_more

HUNTS = 30_000


def reduce_graph(chance: float, draw: random.Random) -> tuple[int, int]:
    """The original run as `reduction.confirm` does it: how often it failed, in how many runs."""
    failed = sum(draw.random() < chance for _ in range(CONFIRMATIONS))
    runs = CONFIRMATIONS
    while 0 < failed < runs and wants_more(failed, runs):
        failed += draw.random() < chance
        runs += 1
    return failed, runs


@pytest.mark.parametrize("chance", [0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95])
def test_a_wrong_verdict_on_a_flaky_failure_stays_below_one_percent(chance):
    draw, wrong, flaky = random.Random(1), 0.0, 0
    for _ in range(HUNTS):
        failed, runs = reduce_graph(chance, draw)
        if 0 < failed < runs:
            flaky += 1
            wrong += (1 - chance) ** repeats_for_cached(failed, runs)  # the candidate passes each time
    assert flaky > HUNTS / 20 and wrong / flaky < WRONG_VERDICT


def repeats_for_cached(failed: int, runs: int, known: dict[tuple[int, int], int] = {}) -> int:  # noqa: B006 - a cache for the simulation
    if (failed, runs) not in known:
        known[failed, runs] = repeats_for(failed, runs)
    return known[failed, runs]


def test_the_share_alone_would_not_do():
    """One failure in two by the count of ten runs may be three in ten: seven passing runs would prove too little."""
    assert repeats_for(5, 10) > 7 and (1 - 0.3) ** repeats_for(5, 10) < 0.01 < (1 - 0.3) ** 7


def test_a_failure_that_always_comes_is_asked_for_once():
    assert repeats_for(3, 3) == 1 and repeats_for(10, 10) == 1


def test_more_failures_ask_for_fewer_repeats_and_each_count_has_an_end():
    for runs in (3, 10, 40):
        repeats = [repeats_for(failed, runs) for failed in range(1, runs)]
        assert repeats == sorted(repeats, reverse=True) and repeats[-1] >= 2
    assert repeats_for(1, 40) < 5000
    assert wants_more(2, 9) and wants_more(3, 39) and not wants_more(4, 10) and not wants_more(1, 40)
