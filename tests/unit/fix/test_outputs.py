"""Whether two outputs are the same: rounding is no difference, and of a line that prints a time the text alone counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, Span
from dynadiag.changes.library_messages import WARN_SLUG
from dynadiag.fix.proof import different_output, noisy_lines, why_not_warned
from dynadiag.fix.runs import Outcome
from dynadiag.fix.session import _why_not_in_the_end


def test_outputs_that_are_the_same_but_for_rounding_are_the_same():
    assert different_output("a\nloss 0.50001\n", "a\nloss 0.50002\n") is None
    assert different_output("loss 0.5\n", "loss 0.6\n") == "line 1 was 'loss 0.5', now 'loss 0.6'"
    assert different_output("step 1\n", "step 2\n") is not None
    assert different_output("a\n", "a\nb\n") == "it had 1 lines, now 2"


def test_a_line_whose_numbers_are_never_the_same_is_compared_by_its_text():
    one, two = "took 12 ms\nloss 0.5\nat 10:01\n", "took 13 ms\nloss 0.5\nat 10:02\n"
    noisy = noisy_lines(one, two)
    assert noisy == {1, 3}
    assert different_output(one, "took 99 ms\nloss 0.5\nat 11:59\n", noisy) is None
    assert different_output(one, "took 12 s\nloss 0.5\nat 10:01\n", noisy) is not None
    assert different_output(one, "took 12 ms\nloss 0.6\nat 10:01\n", noisy) is not None


def test_lines_that_differ_in_words_are_not_noise():
    assert noisy_lines("a 1\nb 2\n", "a 1\nc 2\n") == frozenset()


@pytest.mark.parametrize(("original", "said"), [("0 e5d2\n", None), ("0 2115\n", "stdout differs: line 1")])
def test_a_checksum_of_the_patched_script_is_compared_with_that_of_the_original_run_in_the_same_way(original, said):
    """The search runs with one thread, the last run with as many as the user has."""
    outcome = Outcome(ended=True, stdout="0 e5d2\n")
    runner = SimpleNamespace(last=lambda texts: Outcome(ended=True, stdout=original))
    prover: Any = SimpleNamespace(
        plain=outcome, again=outcome, noisy=frozenset(), runner=runner, why_other=lambda *_, rounds: "stdout differs: line 1 was '0 2115'"
    )
    why = _why_not_in_the_end(prover, None, outcome, [])  # type: ignore[arg-type]
    assert why == "nothing was recorded" if said is None else (why or "").startswith(said)


def test_a_warning_that_is_shown_at_each_call_has_to_be_shown_as_often():
    row = "/library.py:7: FutureWarning: old"
    edit = Edit(file="/library.py", old=("a",), new=("b",))
    change = Candidate(id="x1", slug=WARN_SLUG, text="", edits=(edit,), spans=(Span(1, 2),), cures=("f",))

    def why(was: int, now: int) -> str | None:
        return why_not_warned(Outcome(ended=True, warned={row: was}), Outcome(ended=True, warned={row: now}), [change])

    assert [why(*counts) for counts in ((1, 1), (1, 2), (3, 3))] == [None] * 3
    assert why(1, 0) == f"a warning was shown 1 times, now 0: {row}"
    assert why(3, 1) == f"a warning was shown 3 times, now 1: {row}"
