"""What JSON does not have is null in our files, with the reason beside it."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.render.finite_json import dumps


def test_what_is_no_number_is_null_and_says_why():
    data = {"a": math.nan, "list": [1.0, math.inf], "inner": {"error": -math.inf, "unknown": {"worst": "nothing was compared"}}}
    read = json.loads(dumps(data), parse_constant=lambda text: 1 / 0)
    assert read["a"] is None and read["a_why"] == "it is not a number (NaN)"
    assert read["list"] == [1.0, None] and read["list_why"] == "it is infinite"
    assert read["inner"] == {"error": None, "unknown": {"error": "it is infinite", "worst": "nothing was compared"}}


def test_a_reason_that_is_there_stays():
    assert json.loads(dumps({"a": math.nan, "a_why": "the step overflowed"})) == {"a": None, "a_why": "the step overflowed"}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(plain)
def test_any_plain_data_is_strict_json(value):
    json.loads(dumps(value), parse_constant=lambda text: 1 / 0)
