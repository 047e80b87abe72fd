"""What JSON does not have is null in our files, with the reason beside it."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.masking import masked_text
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


SECRET = "hf_" + "a1B2c3D4e5" * 3
WORDS = [
    SECRET,
    SECRET.upper(),
    "api_key",
    "x",
    "\n",
    "HF_TOKEN=abcdefgh1",
    "https://me:pw@host/x",
    "password: hunter22x",
    '"token": "abcdefgh"',
]
WORDS += ["Bearer abc.def-123456", "\\secret=\tabcdefg", "pas\u017fword=hunter22x", "api_to\u212aen=hunter22x"]
words = st.sampled_from(WORDS)
texts = st.lists(words | st.text(max_size=4), max_size=3).map("".join)
held = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


def walked(value):
    """The plain definition: every string of the data masked, on its own."""
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, dict):
        return {masked_text(key): walked(item) for key, item in value.items()}
    return [walked(item) for item in value] if isinstance(value, list | tuple) else value


def finite(value):
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    return all(map(finite, value)) if isinstance(value, list | tuple) else not isinstance(value, float) or math.isfinite(value)


@given(held.filter(finite), st.booleans(), st.sampled_from((None, 1)))
def test_every_string_is_masked_at_any_depth_whatever_stands_beside_it(value, ensure_ascii, indent):
    found = dumps(value, ensure_ascii=ensure_ascii, indent=indent)
    assert found == json.dumps(walked(value), ensure_ascii=ensure_ascii, indent=indent)


def test_a_secret_in_one_string_of_a_large_entry_is_masked():
    entry = {"id": "f1", "stack": [{"file": "a.py", "line": number, "code": "y = model(x)"} for number in range(50)]}
    entry["stack"][40]["code"] = f"login({SECRET!r})"
    assert SECRET not in dumps(entry, ensure_ascii=False) and SECRET not in dumps({SECRET: [1, {"a": (SECRET,)}]}, ensure_ascii=False)
