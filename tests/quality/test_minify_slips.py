"""No slip to another failure, or to another cause of wrong numbers: some of the planted cases of `benchmarks/minify_slips.py` and
`benchmarks/minify_causes.py` (which run all of them).
"""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")

from benchmarks import minify_causes as causes  # noqa: E402
from benchmarks import minify_slips as slips  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


CHOSEN = (
    "machine: no compiler: the program is missing",
    "machine: the disk is full in the compiler",
    "bug at sin: same type, other text",
    "bug at sin: other type, same text",
    "bug at sin: same text, other function",
    "bug at sin: same text, other chain",
    "at the call, other text",
    "results compared",
    "crash, same signal in another function",
)


def test_there_are_at_least_thirty_cases_of_both_sorts():
    names = [case.name for case in slips.CASES]
    assert len(names) == len(set(names)) >= 30 and set(CHOSEN) <= set(names)
    assert sum(name.startswith("machine") for name in names) >= 10 and sum(case.isolated for case in slips.CASES) >= 10


@pytest.mark.parametrize("case", [case for case in slips.CASES if case.name in CHOSEN], ids=lambda case: case.name)
def test_the_failure_that_was_looked_for_is_the_one_that_is_found(case):
    row = slips.run_case(case)
    assert row["slip"] is None
    # The trap was met, and kept apart: as another failure, or as no failure where the machine was to blame.
    assert row["other_failures"] > 0 or case.name.startswith("machine")


@pytest.mark.parametrize("name", ["- 8 becomes - 1: another pass", "only one result: a pass then", "pytorch#115261"])
def test_a_simplification_that_leads_to_another_cause_is_taken_back(name):
    (case,) = [case for case in (*causes.SLIPS, *causes.REPORTS) if case.name.startswith(name)]
    row = causes.run_case(case)
    assert row["slip"] is None and row["taken_back"]
    assert row["named"] == ("the pass fold_pass of inductor's joint_graph_passes" if case.first.part == causes.FOLD else None)


def test_as_many_causes_are_planted_as_the_page_says():
    names = [case.name for case in (*causes.SLIPS, *causes.REPORTS)]
    assert len(names) == len(set(names)) and len(causes.SLIPS) >= 40 and len(causes.REPORTS) == 12
