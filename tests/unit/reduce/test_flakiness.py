"""A flaky failure: the verdict on a candidate that fails just as often is wrong in less than 1 % of the cases, by simulation."""

from __future__ import annotations

import random

import pytest

from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.core.verdict import CONFIRMATIONS, LOOKS, WRONG_VERDICT, is_proven, needs_run, repeats_for, wants_more, wants_proof
from dynadiag.reduce.reproducer import proving

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


def prove(shown, *, sometimes):
    """The proof when the runs show the failure as `shown` says, and how many were asked for."""
    asked = iter(shown)
    failure = Failure(kind="compile_error", phase="compile", exceptions=("E",), message=f"{shown} {sometimes}")
    proof = proving.proof_by(f"# {shown}", failure, lambda _: (1, ""), lambda *_: next(asked), runs=proving.RUNS, sometimes=sometimes)
    return (proof.reproduced, proof.runs), proof.holds


def chance_of_a_proof(chance, *, sometimes):
    """Exactly, over all outcomes of the runs."""
    states, proven = {(0, 0): 1.0}, 0.0
    while states:
        further = {}
        for (shown, of), weight in states.items():
            if not wants_proof(shown, of, sometimes=sometimes):
                proven += weight * is_proven(shown, of)
                continue
            for more, likely in ((1, chance), (0, 1 - chance)):
                further[shown + more, of + 1] = further.get((shown + more, of + 1), 0.0) + weight * likely
        states = further
    return proven


def test_one_that_comes_in_half_of_its_runs_is_proven_but_for_one_in_a_hundred():
    assert 1 - chance_of_a_proof(0.5, sometimes=True) < 0.01
    assert 0.5**LOOKS < 0.01


def test_the_proof_of_one_that_always_or_never_comes_takes_three_runs():
    assert prove((True,) * 20, sometimes=False) == prove((True,) * 20, sometimes=True) == ((3, 3), True)
    assert prove((False,) * 20, sometimes=False) == ((0, 3), False)


def test_a_proof_goes_on_where_the_failure_comes_sometimes():
    assert prove((True, False, False, True, False, True, True), sometimes=False) == ((3, 6), True)
    assert prove((False,) * 5 + (True,) * 3, sometimes=True) == ((3, 8), True)
    assert prove((True, *(False,) * 20), sometimes=False) == ((1, 14), False)
    assert "it failed in the same way in 3 of 6 fresh processes" in proving.headline({"reproduced": 3, "runs": 6}).text
    assert proving.headline({"reproduced": 3, "runs": 6}).text.endswith("; it does not always come")
    assert proving.headline({"reproduced": 2, "runs": 3}).word == "not proven"


def test_the_original_is_run_until_it_is_known_how_often_it_fails():
    assert needs_run([]) and needs_run([True, True]) and not needs_run([True] * 3)
    assert needs_run([False] * 2) and not needs_run([False] * 3)
    assert needs_run([False] * 6, looks=7) and not needs_run([False] * 7, looks=7)
    assert needs_run([True, False, True]) and needs_run([True, False] * 4) and not needs_run([True, False] * 5)
