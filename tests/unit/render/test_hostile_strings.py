"""200 hostile strings as names, reasons, source lines and texts in every renderer: none is live, none makes one fail."""

import dataclasses
import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping

import pytest

from dynadiag.model.run import SourceFunction
from dynadiag.render import chrome_trace, json_report, markdown, pictures
from dynadiag.render.document import Block, Column, Document, Headline, Part, Section, cells
from dynadiag.render.html import report_page
from tests.unit.render.hostile_strings import STRINGS
from tests.unit.render.page_samples import Page, rich_report
from tests.unit.render.test_every_string import assert_dead, assert_plain, assert_told, tokens

ROUNDS = 4
# Ids and enums are ours; of places the file stays, so that the ladder shows the hostile lines.
KEPT = ("id", "frame", "frames", "evidence", "severity", "outcome", "kind", "log", "file", "graphs_before", "graphs_after", "recompiles")


def spread(value, strings, but=KEPT):
    """The same data with the next of the strings in place of each string."""
    if isinstance(value, str):
        return next(strings)
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init and field.name not in but]
        return dataclasses.replace(value, **{name: spread(getattr(value, name), strings) for name in fields})
    if isinstance(value, Mapping):
        return {next(strings) if isinstance(key, str) else key: spread(item, strings) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return value
    return type(value)(spread(item, strings) for item in value) if isinstance(value, tuple | list | frozenset) else value


def hostile_reports(folder):
    """Reports in which together each string stands in several places; their source has a line of each."""
    plain = rich_report(folder)
    endless = itertools.cycle(STRINGS)
    lines = [" ".join(one[:400].split()) for one in STRINGS]
    for _ in range(ROUNDS):
        function = SourceFunction("/home/me/proj/train.py", 19, next(endless), "\n".join(["def f():", *(f"    {line}" for line in lines)]))
        made = spread(plain, endless)
        log = {"pictures": {}, "parity": None, "replayed": None}
        yield dataclasses.replace(made, run=dataclasses.replace(made.run, functions=(function,)), **log)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    return list(hostile_reports(tmp_path_factory.mktemp("hostile")))


def test_there_are_200_and_each_is_used(reports):
    assert len(STRINGS) >= 200

    def found(value):
        if isinstance(value, str):
            yield value
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                yield from found(getattr(value, field.name))
        elif isinstance(value, Mapping):
            yield from itertools.chain.from_iterable(map(found, (*value.keys(), *value.values())))
        elif isinstance(value, tuple | list | frozenset):
            yield from itertools.chain.from_iterable(map(found, value))

    assert set(STRINGS) <= {text for report in reports for text in found(report)}


def test_html(reports, tmp_path):
    ordinary = Page(report_page.render(rich_report(tmp_path)))
    for report in reports:
        text = report_page.render(report)
        page = Page(text)
        assert {tag for tag, _ in page.tags} <= {tag for tag, _ in ordinary.tags} | {"ul", "li", "table", "b", "fieldset", "label", "input"}
        assert page.raw["script"] == ordinary.raw["script"] and page.raw["style"] == ordinary.raw["style"]
        assert not [href for href in page.all("href") if not re.fullmatch(r"#[\w-]+", href)]
        assert all(src.startswith("data:image/svg+xml;base64,") for src in page.all("src"))
        assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]
        assert str(1234 * 4321) not in text
        assert_plain(text)


def test_markdown(reports):
    for report in reports:
        text = markdown.render(report)
        html = [token.content for token in tokens(text) if token.type in ("html_block", "html_inline")]
        assert all(re.fullmatch(r"(<details>\n<summary>[\w '-]+ \([\d,]+\)</summary>|</details>)\n?", one) for one in html)
        assert_dead("\n".join(line for line in text.split("\n") if not line.startswith(("<details>", "<summary>", "</details>"))))


def test_text(reports, show):
    for report in reports:
        for options in ({"summary": True}, {"limit": None, "show_free": True, "verbose": True}):
            assert_plain(show(report, **options))


def test_svg(reports, tmp_path):
    for report in reports:
        pictures.write(report, tmp_path, renderer="svg")
        drawn = list((tmp_path / "graphs").glob("*.svg"))
        assert drawn
        for file in drawn:
            text = file.read_text("utf-8")
            names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
            assert names <= {"svg", "g", "rect", "path", "polygon", "line", "text", "title", "desc", "style"}
            assert_plain(text)


def test_json(reports):
    for report in reports:
        assert_plain(json_report.dumps(report))
        assert chrome_trace.dumps(report).isascii()


def test_results_of_the_other_verbs():
    """In each place of a document, in each format."""
    rows = [cells(Part(text, code=True), Part(text, tone="bad"), text) for text in STRINGS]
    columns = (Column("id"), Column("name"), Column("value", label="said "))
    places = {"lines": tuple(STRINGS), "points": tuple(STRINGS), "block": Block(text="\n".join(STRINGS), language="python")}
    for start in range(0, len(STRINGS), 40):
        some = STRINGS[start : start + 40]
        assert_told(
            Document(
                title=some[0],
                facts=tuple(some),
                command=some[1],
                headlines=tuple(Headline(word=text, what=text, said=text) for text in some),
                figures=tuple((text, text) for text in some),
                sections=(
                    Section(title="Table", said=some[2], columns=columns, items=rows[start : start + 40]),
                    Section(title="Entries", columns=columns, items=rows[start : start + 40], as_entries=True, closing=some[3]),
                    *((Section(title="All", **places),) if start == 0 else ()),
                ),
            )
        )
