"""Whether two outputs are the same: rounding is no difference, and of a line that prints a time the text alone counts."""

from __future__ import annotations

from dynadiag.fix.proof import different_output, noisy_lines


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
