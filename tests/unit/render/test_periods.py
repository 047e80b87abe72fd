"""Blocks that repeat in a sequence of operators."""

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.render.graph_parts import REPEATS_AT_MOST, Repeat, repeats


def chain(length):
    return [(position - 1,) if position else () for position in range(length)]


def found(text, sources=None, **options):
    return repeats(text, chain(len(text)) if sources is None else sources, lambda first, length: (), **options)


def test_one_period_is_found_with_what_stands_around_it():
    assert found("xy" + "abcd" * 12 + "z") == [Repeat(2, 4, 12)]


def test_what_saves_most_is_taken_and_the_rest_is_searched_again():
    assert found("abc" * 5 + "u" + "defg" * 9 + "v" + "hij" * 4) == [Repeat(0, 3, 5), Repeat(16, 4, 9), Repeat(53, 3, 4)]


def test_the_shortest_period_wins():
    assert found("ab" * 8) == [Repeat(0, 2, 8)]


def test_a_sequence_without_repeats_has_none():
    assert found("abcdefghijklmnop") == []
    assert found("") == []


def test_little_is_not_worth_a_block():
    assert found("abab") == []
    assert found("ababab", least=4) == [Repeat(0, 2, 3)]


def test_blocks_that_are_wired_differently_inside_are_not_alike():
    length = 8
    sources = chain(4 * length)
    sources[2 * length + 5] = (2 * length + 1,)  # in the third block, one operator takes another value
    assert found("abcdefgh" * 4, sources) == [Repeat(0, 8, 2)]


def test_what_a_block_takes_from_outside_may_differ():
    sources = [(0,) if position % 4 == 0 and position else (position - 1,) * (position > 0) for position in range(48)]
    assert found("abcd" * 12, sources) == [Repeat(0, 4, 12)]


def test_the_phase_decides_where_a_block_begins():
    text = "cd" + "abcd" * 6 + "ab"
    assert found(text) == [Repeat(0, 4, 7)]
    begins = repeats(text, chain(len(text)), lambda first, length: (text[first] != "a",))
    assert begins == [Repeat(0, 4, 7)]  # there is no other place for seven
    text = "cd" + "abcd" * 6 + "x"
    assert repeats(text, chain(len(text)), lambda first, length: (text[first] != "a",)) == [Repeat(2, 4, 6)]


@given(st.text("abc", max_size=120))
def test_every_repeat_is_one_and_none_overlaps(text):
    made = found(text)
    assert len(made) <= REPEATS_AT_MOST
    for one in made:
        block = text[one.start : one.start + one.length]
        assert text[one.start : one.end] == block * one.count and one.count > 1
    assert all(before.end <= after.start for before, after in zip(made, made[1:], strict=False))
