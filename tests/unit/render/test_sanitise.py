import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.render.sanitise import clean, clean_block, clean_code, encodable, slug, xml_text

ANY = st.text(st.characters(codec=None), max_size=200) | st.text(
    st.sampled_from("\x1b[]0;m\x07\u202e\u2066\ud800\x00\x9b\n\r\ta"), max_size=60
)


@given(ANY, st.integers(3, 50))
def test_one_line_holds_nothing_that_moves_a_cursor_or_text_and_keeps_its_limit(text, limit):
    shown = clean(text, limit=limit)
    assert len(shown) <= limit
    assert not [character for character in shown if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    shown.encode("utf-8")


@given(ANY)
def test_a_block_keeps_line_breaks_only(text):
    shown = clean_block(text, limit=60, lines=3)
    assert len(shown) <= 60
    assert shown.count("\n") <= 2
    assert not [character for character in shown if character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Cs")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jcleared", "cleared"),
        ("a\u202eb\u2066c", "abc"),
        ("a\x00b", "ab"),
        ("a\ud800b", "a\ufffdb"),
        ("a\ufffeb", "a\ufffdb"),
        ("two\nlines", "two lines"),
        ("日本語 é", "日本語 é"),
        ("x" * 400, "x" * 297 + "..."),
    ],
)
def test_what_is_removed_and_what_stays(text, shown):
    assert clean(text) == shown


def test_code_keeps_blanks_inside_the_line():
    assert clean_code("  x =  1\n") == "x =  1"


def test_a_megabyte_is_cut_before_it_is_looked_at_letter_by_letter():
    assert len(clean_block("\u202e" * 10_000_000 + "x")) < 10


@given(ANY)
def test_a_slug_is_a_harmless_file_name(text):
    made = slug(text)
    assert 0 < len(made) <= 40
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert not made.startswith("-")


def test_a_slug_of_nothing_has_a_default():
    assert slug("../../", default="graph") == "graph"
    assert slug("../../etc/passwd") == "etc-passwd"


@given(ANY)
def test_encodable_text_only_loses_lone_surrogates(text):
    encodable(text).encode("utf-8")
    if not any(0xD800 <= ord(character) < 0xE000 for character in text):
        assert encodable(text) == text


@given(ANY)
def test_xml_text_can_be_parsed(text):
    import xml.etree.ElementTree as ElementTree

    element = ElementTree.Element("t")
    element.text = xml_text(text)
    ElementTree.fromstring(ElementTree.tostring(element))
