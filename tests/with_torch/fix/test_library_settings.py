"""A cure of the atlas sets attributes of a library's object otherwise: they are left out where runs are compared, and nothing else is."""

import pytest

from dynadiag.fix.inside.judging import first_difference, without_attributes

pytestmark = pytest.mark.any_torch


def run(cached, scale=2):
    given = [("value given", "step.rotary.cache_if_possible", cached), ("value given", "step.scale", scale)]
    return [{"callee": "1 Net", "number": 1, "before": given, "after": [("output", "the result", "a tuple")]}]


def test_only_the_named_attributes_are_left_out():
    names = frozenset({"cache_if_possible"})
    assert first_difference(run(True), run(False)) is not None
    assert first_difference(*(without_attributes(calls, names) for calls in (run(True), run(False)))) is None
    found = first_difference(*(without_attributes(calls, names) for calls in (run(True), run(False, scale=3))))
    assert found is not None and "step.scale" in found
    assert without_attributes(run(True), frozenset()) == run(True)
