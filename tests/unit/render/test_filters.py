"""Findings of the own code, of libraries and of ranks can be told apart, with style rules alone."""

from dataclasses import replace

from dynadiag.render.html import filters, report_page
from tests.unit.render.page_samples import of_two_ranks
from tests.unit.render.test_html_page import Page


def classes(page):
    return {attributes["id"]: attributes.get("class", "") for tag, attributes in page.tags if tag == "article"}


def test_a_break_is_a_librarys_where_dynamo_stopped_in_one(samples):
    page = Page(report_page.render(samples.sample_report()))
    assert classes(page) == {"n0": "mine", "n1": "library", "n2": "mine", "b0": "library", "b1": "mine"}
    assert {"only-all", "only-mine", "only-library"} <= set(page.all("id"))
    (style,) = page.raw["style"]
    assert "main:has(#only-mine:checked) article.library{display:none}" in style


def test_what_has_no_line_is_never_hidden(samples):
    report = samples.sample_report()
    lost = replace(report.findings[2], where=None, evidence=())
    page = Page(report_page.render(replace(report, findings=(lost,), graph_breaks=report.graph_breaks[:1])))
    assert classes(page) == {"n2": "", "b0": "library"}
    assert "only-mine" not in page.all("id")  # there is nothing to choose


def test_a_fallback_is_of_the_ranks_that_it_names_and_may_be_any_ones_where_it_names_none(samples):
    report = of_two_ranks(samples.sample_report())
    fallback = report.fallbacks[0]
    finding = replace(report.findings[1], evidence=(fallback.id, fallback.frame))
    for events, processes, wanted in ((1, (), "rank-1"), (2, (), ""), (2, (1,), "rank-1"), (2, (0, 1), "rank-0 rank-1")):
        made = replace(report, findings=(finding,), fallbacks=(replace(fallback, events=events, processes=processes),))
        assert classes(Page(report_page.render(made)))["n1"].split() == ["mine", *(["ranked", *wanted.split()] if wanted else [])]


def test_ranks_can_be_chosen_where_there_are_several(samples):
    page = Page(report_page.render(of_two_ranks(samples.sample_report())))
    assert classes(page)["n1"] == "library ranked rank-0" and classes(page)["b1"] == "mine ranked rank-1"
    assert [name for name in page.all("id") if name.startswith("rank-")] == ["rank-all", "rank-0", "rank-1"]
    assert all(f"#rank-{rank}:checked" in filters.RULES for rank in range(filters.RANKS_AT_MOST))
