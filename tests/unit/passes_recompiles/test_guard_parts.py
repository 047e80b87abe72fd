"""A guard's text cut into code and comment: quoted strings are the user's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.passes.guard_parts import first_outside_quotes, split


def closing(text, start):
    i = start + 1
    while i < len(text):
        if text[i] == text[start]:
            return i
        i += 2 if text[i] == "\\" else 1
    return -1


def slowly(text, mark):
    """The same, character by character."""
    i = 0
    while i < len(text):
        end = closing(text, i) if text[i] in "'\"" else -1
        if end > i:
            i = end + 1
        elif text.startswith(mark, i):
            return i
        else:
            i += 1
    return None


@given(st.text(alphabet="'\"\\ #=ab\n", max_size=40), st.sampled_from(["  #", " == "]))
def test_a_mark_is_found_where_reading_every_character_finds_it(text, mark):
    assert first_outside_quotes(text, mark) == slowly(text, mark)


@pytest.mark.parametrize(
    ("text", "code", "comment"),
    [
        ("k == 2    # return x * k", "k == 2", "# return x * k"),
        ("k == 'a  # b'  # if k:", "k == 'a  # b'", "# if k:"),
        ("k == 'it\\'s  # x'", "k == 'it\\'s  # x'", ""),
        ("it's 2  # x", "it's 2", "# x"),
    ],
)
def test_code_and_comment(text, code, comment):
    parts = split(text)
    assert (parts.code, parts.comment) == (code, comment)
