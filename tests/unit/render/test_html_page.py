"""`report.html`: nothing from outside is live in it, its links lead somewhere, and it loads nothing."""

import base64
import dataclasses
import hashlib
import re
from collections import Counter
from dataclasses import replace

import pytest

from dynadiag.model.report import Advice, Change, RankDifference
from dynadiag.render.html import compilations, graphs, report_page, tables
from tests.unit.render.page_samples import Page, of_two_ranks, rich_report
from tests.unit.render.test_every_string import HOSTILE, assert_plain, filled


@pytest.fixture
def page(samples):
    return Page(report_page.render(samples.sample_report()))


def allowed(page):
    """What the policy lets run, by kind."""
    (policy,) = [value for value in page.all("content") if "default-src" in value]
    return {name: set(rest) for name, *rest in (part.split() for part in policy.split(";"))}


def test_every_link_leads_to_a_place_in_the_page(page):
    anchors = Counter(page.all("id"))
    assert [name for name, count in anchors.items() if count > 1] == []
    inner = [href for href in page.all("href") if href.startswith("#")]
    assert {"#findings", "#b0", "#g0"} <= set(inner)
    assert [href for href in inner if href[1:] not in anchors] == []


def test_sections_are_in_the_order_of_a_person_debugging(samples, tmp_path):
    rank = RankDifference(id="d3", what="graphs", values={"0": "1", "1": "2"}, odd_ranks=(1,))
    report = dataclasses.replace(rich_report(tmp_path), ranks=(rank,))
    page = Page(report_page.render(report))
    linked = [attributes["href"][1:] for tag, attributes in page.tags if tag == "a" and "class" not in attributes][: len(page.headings)]
    assert linked == page.headings
    titles = [one["title"] for one in tables.tables(report)]
    named = [titles[int(name[6:])] if name.startswith("table-") else name for name in linked]
    assert named == [
        *("source", "findings", "breaks", "time", "versions", "Recompiles", "Ran eagerly"),
        *("graphs", "guards", "Ranks", "stacks", "shapes", "caches", "metrics", "frames", "environment"),
    ]


def test_what_is_not_in_the_page_is_named_and_no_link(samples, monkeypatch):
    for module in (report_page, tables, compilations):
        monkeypatch.setattr(module, "ROWS_AT_MOST", 1)
    monkeypatch.setattr(graphs, "GRAPHS_AT_MOST", 1)
    report = samples.sample_report()
    found = replace(
        report.findings[0], evidence=tuple(one.id for some in (report.run.frames, report.graph_breaks, report.run.graphs) for one in some)
    )
    page = Page(report_page.render(replace(report, findings=(found,))))
    inner = [href for href in page.all("href") if href.startswith("#")]
    assert {"#f0", "#b0", "#g0"} <= set(inner) and not {"#f1", "#b1", "#g1"} & set(inner)
    assert [href for href in inner if href[1:] not in page.all("id")] == []


def test_a_difference_between_ranks_is_where_its_finding_leads(samples):
    report = samples.sample_report()
    rank = RankDifference(id="d3", what="graphs", values={"0": "1", "1": "2"}, odd_ranks=(1,))
    found = replace(report.findings[0], evidence=("d3",))
    page = Page(report_page.render(replace(report, ranks=(rank,), findings=(found,))))
    assert "#d3" in page.all("href") and "d3" in page.all("id")


def test_the_policy_lets_only_our_style_and_scripts_in(page):
    rules = allowed(page)
    assert rules["default-src"] == {"'none'"} and rules["img-src"] == {"data:"}

    def hashes(texts):
        return {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts}

    assert rules["style-src"] == hashes(page.raw["style"]) and rules["script-src"] == hashes(page.raw["script"])
    assert not [name for name in page.all("src") if not name.startswith("data:")]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_what_a_log_says_is_text(samples, number):
    ordinary = Page(report_page.render(samples.sample_report()))
    text = report_page.render(filled(samples.sample_report(), HOSTILE[number], but=("id", "evidence", "severity", "outcome", "kind")))
    found = Page(text)
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in ordinary.tags} | {"ul", "li", "table", "code", "span"}
    assert len(found.raw["script"]) == 2 and found.raw["script"] == ordinary.raw["script"]
    assert not [href for href in found.all("href") if not href.startswith("#")]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on") or name == "style"]
    assert_plain(re.sub(r"[\t\r]", "", text))


def test_only_torchs_own_pages_are_linked(samples):
    report = samples.sample_report()
    sites = tuple(
        dataclasses.replace(report.graph_breaks[0], id=f"b{at}", gb_id=name) for at, name in enumerate(("GB0123", "GB1/../x", "GBabcd"))
    )
    found = Page(report_page.render(dataclasses.replace(report, graph_breaks=sites)))
    outside = [href for href in found.all("href") if not href.startswith("#")]
    assert outside == ["https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0123.html"]


def test_pictures_and_texts_have_limits(samples, tmp_path, monkeypatch):
    report = dataclasses.replace(samples.sample_report(), pictures={"g0": "graphs/a.svg", "g1": "graphs/b.svg", "g3": "../c.svg"})
    (tmp_path / "graphs").mkdir()
    for name in ("a", "b"):
        (tmp_path / "graphs" / f"{name}.svg").write_text("<svg/>" + " " * 200)
    monkeypatch.setattr(graphs, "PICTURE_BYTES", 400)
    found = Page(report_page.render(report, tmp_path))
    assert len([value for value in found.all("src") if value.startswith("data:image/svg+xml;base64,")]) == 1


def test_versions_are_rows_and_guarded_values_are_columns(samples):
    report = samples.sample_report()
    first, second = report.run.frames[2:4]
    second = dataclasses.replace(second, key=first.key._replace(compile=1))
    run = dataclasses.replace(report.run, frames=(*report.run.frames[:3], second, report.run.frames[4]))
    (matrix,) = tables.matrices(dataclasses.replace(report, run=run))
    assert [column["heading"] for column in matrix["columns"]] == ["version", "L['scale']"]
    shown = [[(cell["parts"][0]["text"], cell["changed"]) for cell in row["cells"]] for row in matrix["rows"]]
    assert shown == [[("f2 [2/0]", False), ("1.0", False)], [("f3 [2/1] r0", False), ("1.0 → 2.0", True)]]
    (matrix,) = tables.matrices(report)  # the first version is not in the log: nothing is said of it
    assert [row["id"] for row in matrix["rows"]] == ["r0"]


def test_a_value_of_the_stack_is_called_in_versions_what_it_is_called_elsewhere(samples):
    report = samples.sample_report()
    changed = Change(source="___stack0 >= 0.5", kind="condition", old="___stack0 >= 0.5", new="___stack0 = 0.25")
    name = "a value computed before the break at line 6"
    row = dataclasses.replace(report.transitions[0], source=name, kind="condition", values=("___stack0 >= 0.5",), recompiles=("r0",))
    said = dataclasses.replace(report, recompiles=(dataclasses.replace(report.recompiles[0], changed=(changed,)),), transitions=(row,))
    (matrix,) = tables.matrices(said)
    assert matrix["columns"][1]["heading"] == name
    assert matrix["rows"][-1]["cells"][1]["parts"][0]["text"] == "value >= 0.5 → value = 0.25"
    assert "___stack" not in report_page.render(said)


def test_frames_of_several_processes_say_which(samples):
    (*_, frames) = tables.tables(of_two_ranks(samples.sample_report()))
    assert [column["heading"] for column in frames["columns"]][:3] == ["id", "process", "compile id"]
    assert [row["cells"][1]["plain"] for row in frames["rows"]] == ["rank 0"] * 3 + ["rank 1"] * 2
    (*_, frames) = tables.tables(samples.sample_report())
    assert [column["heading"] for column in frames["columns"]][:2] == ["id", "compile id"]


def test_of_many_frames_the_longest_have_a_bar(samples, monkeypatch):
    monkeypatch.setattr(tables, "BARS_AT_MOST", 1)
    report = samples.sample_report()
    shown = tables.bars(report)
    assert len(shown["rows"]) == 1 < len(report.compile_time.frames)
    assert shown["said"].endswith(f"The 1 longest of {len(report.compile_time.frames)} are drawn.")


def test_the_first_guards_that_failed_are_shown_and_the_others_counted(samples):
    report = samples.sample_report()
    one = dataclasses.replace(report.guards[0], failed=tuple(f"x == {number}" for number in range(20)))
    shown = report_page.render(dataclasses.replace(report, guards=(one,)))
    assert shown.count("Failed: <code>") == graphs.FAILED_AT_MOST and "14 more that failed are in report.json." in shown


def test_only_what_is_added_can_be_copied(samples):
    report = samples.sample_report()
    advice = Advice(slug="remove", text="Remove it", before="print(1)", after=None)
    finding = dataclasses.replace(report.findings[0], fix=(advice,))
    bare = dataclasses.replace(report, findings=(finding,), graph_breaks=(), recompiles=(), fallbacks=(), mutations=())
    assert Page(report_page.render(bare)).all("data-copy") == ["Copy as issue"]


def test_a_run_that_compiled_nothing_has_a_page(samples):
    text = report_page.render(samples.empty_report())
    assert "No line of your own is known" in text and "None." in text


def test_each_advice_has_its_label_and_its_imports(samples):
    report = samples.sample_report()
    first = report.findings[0].fix[0]
    fix = (
        first,
        dataclasses.replace(first, text="Another way."),
        dataclasses.replace(first, text="Needed too.", follows=True, imports=("import x",)),
    )
    text = report_page.render(dataclasses.replace(report, findings=(dataclasses.replace(report.findings[0], fix=fix),)))
    assert re.findall(r"<p><b>(\w+):</b> (?:Another way|Needed too)", text) == ["Or", "Then"]
    assert "Needs <code>import x</code>." in text


def test_of_a_long_table_the_first_rows_are_open(samples):
    report = samples.sample_report()
    frames = tuple(dataclasses.replace(report.run.frames[0], id=f"f{number}") for number in range(30))
    text = report_page.render(dataclasses.replace(report, run=dataclasses.replace(report.run, frames=frames)))
    assert "<details><summary>10 more</summary>" in text and text.count('id="f29"') == 1
