"""What is a name in an expression of torch, and what is only a letter of a number."""

import re

import pytest

from dynadiag.facts.guard_sources import named_in
from dynadiag.trace.values import NAME


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1e-05 < L['eps']", ("eps",)),
        ("x.size()[0] <= 1e-05*y.size()[0]", ("x.size(0)", "y.size(0)")),
        ("2.5E3 <= s and 0x1f == n and 1.e-5 < z", ("s", "n", "z")),
        ("Eq(e, 1j*z)", ("e", "z")),
    ],
)
def test_the_sources_of_a_condition(text, names):
    assert named_in(text) == names


def test_the_names_of_an_argument():
    assert re.findall(NAME, "[add, 1e-05, mul_1.stride, 0x1f, e]") == ["add", "mul_1", "e"]
