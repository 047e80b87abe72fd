"""`form.json`: written, and read when somebody else wrote it."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.render import document_json
from dynadiag.render.document import Block, Column, Document, Headline, Part, Section, cells

TOLD = Document(
    title="a title",
    facts=("torch 2.15",),
    headlines=(Headline(word="Worse", what="by far", tone="bad"),),
    figures=(("nodes", "3"),),
    sections=(
        Section(title="rows", columns=(Column("name"),), items=[1, 2], row=lambda item: cells(f"number {item}")),
        Section(title="code", block=Block(text="x = 1\n", language="python"), points=("a", "b"), depth=3),
    ),
)


def form(**changes):
    return json.dumps(json.loads(document_json.dumps(TOLD)) | changes)


def test_what_was_written_is_read():
    again = document_json.loads(document_json.dumps(TOLD))
    assert (again.title, again.facts, again.headlines, again.figures) == (TOLD.title, TOLD.facts, TOLD.headlines, TOLD.figures)
    rows, code = again.sections
    assert rows.items == [cells("number 1"), cells("number 2")] and rows.columns == (Column("name"),)
    assert (code.block, code.points, code.depth) == (Block(text="x = 1\n", language="python"), ("a", "b"), 3)


def test_numbers_and_languages_are_those_that_renderers_take():
    section = json.loads(form())["sections"][1] | {"depth": 10**9, "block": {"text": "", "language": "python\n# no"}}
    rows = json.loads(form())["sections"][0]
    rows["items"][0][0][0]["limit"] = -3
    first, second = document_json.loads(form(sections=[rows, section])).sections
    assert (second.depth, second.block.language) == (6, "text")
    assert first.items[0] == ((Part("number 1", limit=1),),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deep"),
        ("[]", "not a form of this version"),
        ('{"format": 2}', "not a form of this version"),
        ('{"format": 1}', "missing required field"),
        (form(title=1), r"got `int` - at `\$.title`"),
        (form(sections=[1]), r"got `int` - at `\$.sections"),
    ],
)
def test_what_is_no_form_is_refused(text, why):
    with pytest.raises(ValueError, match=why) as refused:
        document_json.loads(text)
    assert "\n" not in str(refused.value)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from(["title", "facts", "headlines", "figures", "sections", "name"]), value=_ANY)
def test_any_value_is_read_or_refused(name, value):
    with contextlib.suppress(ValueError):
        assert isinstance(document_json.loads(form(**{name: value})), Document)
