"""The pure search: what it finds is a failing subset of which nothing can go, and it asks few questions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag.reduce.core.search import cut, one_minimal


class Counting:
    """An oracle that fails when all of `needed` are there; counts distinct questions as the memo of the reducer would."""

    def __init__(self, fails):
        self.fails = fails
        self.asked = {}

    def __call__(self, kept):
        assert kept
        if kept not in self.asked:
            self.asked[kept] = self.fails(kept)
        return self.asked[kept]


@given(st.integers(1, 300), st.data())
@settings(max_examples=60, deadline=None)
def test_finds_exactly_what_is_needed_when_more_never_hides_it(n, data):
    needed = data.draw(st.frozensets(st.integers(0, n - 1), min_size=1, max_size=6))
    oracle = Counting(needed.issubset)
    found = one_minimal(cut(range(n), oracle), oracle)
    assert found == tuple(sorted(needed))
    assert len(oracle.asked) <= len(needed) * (math.log2(n) + 4) + 3


@given(st.integers(1, 40), st.integers(0, 2**32), st.sampled_from([None, 3, 7]))
@settings(max_examples=80, deadline=None)
def test_any_oracle_ends_one_minimal_and_failing(n, seed, block):
    def fails(kept):
        return len(kept) == n or hash((seed, kept)) % 3 == 0

    oracle = Counting(fails)
    everything = tuple(range(n))
    found = one_minimal(cut(everything, oracle, blocks=block and (lambda item: item // block)), oracle)
    assert found == everything or oracle(frozenset(found))
    assert list(found) == sorted(set(found))
    assert not any(fails(frozenset(found) - {item}) for item in found if len(found) > 1)


@pytest.mark.parametrize(("n", "at_most"), [(39, 7), (523, 11), (1177, 12)])
@pytest.mark.parametrize("where", [0.0, 0.3, 0.5, 0.99])
def test_one_needed_item_costs_one_bisection(n, at_most, where):
    oracle = Counting(frozenset({int(n * where)}).issubset)
    assert cut(range(n), oracle) == (int(n * where),)
    assert len(oracle.asked) <= at_most


def test_two_far_apart_items_cost_one_question_more():
    oracle = Counting(frozenset({5, 1100}).issubset)
    assert cut(range(1177), oracle) == (5, 1100)
    assert len(oracle.asked) <= 23


def test_blocks_take_whole_modules_away():
    needed = frozenset(range(0, 400, 50))
    plain, blocked = Counting(needed.issubset), Counting(needed.issubset)
    assert cut(range(400), plain) == cut(range(400), blocked, blocks=lambda item: item // 10) == tuple(sorted(needed))
    assert len(blocked.asked) <= 1.5 * len(plain.asked)


@given(st.integers(2, 12), st.integers(2, 25), st.data())
@settings(max_examples=60, deadline=None)
def test_what_lies_on_no_way_between_the_first_and_the_last_goes_at_once(branches, length, data):
    """`branches` chains that take turns in the order of the graph; what is needed are neighbours in one of them."""
    items = range(branches * length)

    def between(first, last):
        return set(range(first, last + 1, branches)) if (last - first) % branches == 0 else {first, last}

    branch = data.draw(st.integers(0, branches - 1))
    steps = data.draw(st.sets(st.integers(0, length - 1), min_size=1, max_size=4))
    needed = frozenset(step * branches + branch for step in steps)
    with_ways, without = Counting(needed.issubset), Counting(needed.issubset)
    assert (
        one_minimal(cut(items, with_ways, between=between), with_ways) == one_minimal(cut(items, without), without) == tuple(sorted(needed))
    )
    assert len(with_ways.asked) <= len(without.asked) + 1


def test_on_a_wide_graph_a_row_of_operators_costs_fewer_questions():
    needed = frozenset(range(1000, 1100, 20))
    asked = []
    for between in (None, lambda first, last: set(range(first, last + 1, 20))):
        oracle = Counting(needed.issubset)
        assert cut(range(2000), oracle, between=between) == tuple(sorted(needed))
        asked.append(len(oracle.asked))
    assert asked[1] <= 0.7 * asked[0]


def test_what_the_last_needed_operator_reads_is_tried_alone():
    needed = frozenset({1060, 1080, 1100})
    asked = []
    for near in (None, lambda last: {last - 20 * step for step in range(5)}):
        oracle = Counting(needed.issubset)
        assert cut(range(2000), oracle, near=near) == tuple(sorted(needed))
        asked.append(len(oracle.asked))
    assert asked[1] <= 0.6 * asked[0]
    oracle = Counting(frozenset({7, 1100}).issubset)
    assert cut(range(2000), oracle, near=lambda last: {last, last - 1}) == (7, 1100)


def test_the_first_and_the_last_needed_are_not_tried_to_go_again():
    needed = frozenset({100, 500, 900})
    oracle = Counting(needed.issubset)
    assert one_minimal(cut(range(1000), oracle), oracle) == tuple(sorted(needed))
    assert len(oracle.asked) <= 36


def test_a_failure_that_needs_more_than_the_ways_between_is_found_as_well():
    needed = frozenset({3, 50, 97})
    oracle = Counting(needed.issubset)
    assert cut(range(100), oracle, between=lambda first, last: {first, last, first + 1}) == tuple(sorted(needed))
