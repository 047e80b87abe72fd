import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.errors import NotRebuildableError
from dynadiag.trace import sizes


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("s0", 4), ("2*s0", 8), ("(s0//3)", 1), ("s0**2", 16), ("Max(1, s0)", 4), ("Mod(s0, 3)", 1), ("s0 + 1", 5), ("-s0", -4)],
)
def test_expression_has_its_value(text, value):
    assert sizes.evaluate(text, {"s0": 4}) == value


@pytest.mark.parametrize(
    "text",
    ["s9", "__import__('os')", "(lambda: 1)()", "[1][0]", "s0 if s0 else 1", "9**9**9**9", "1//0", "s0.real", "'a'", "f'{s0}'", ")("],
)
def test_anything_else_is_refused(text):
    with pytest.raises(NotRebuildableError):
        sizes.evaluate(text, {"s0": 4})


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e400-1e400", "0.5", "-1", "2**62"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(NotRebuildableError):
        sizes.whole(text, {})
    assert sizes.whole("2*s0", {"s0": 3}) == 6


def test_symbols_are_found_in_order():
    assert sizes.symbols_of("Max(s1, s0*s1)") == ("s1", "s0")


@given(st.text(alphabet="s01+-*/()%<>= ,Maxin", max_size=30))
def test_any_text_gives_a_number_or_a_refusal(text):
    try:
        value = sizes.evaluate(text, {"s0": 3, "s1": 5})
    except NotRebuildableError:
        return
    assert isinstance(value, int | float)
