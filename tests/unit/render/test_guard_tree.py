"""The tree of guards in a page: nested as torch printed it, bounded, and text whatever a log says."""

import re
from dataclasses import replace

import pytest

from dynadiag.model.compiled import GuardCost
from dynadiag.render.html import graphs, guard_tree
from tests.unit.render.page_samples import GUARDS, rich_report
from tests.unit.render.test_html_page import Page


def test_checks_are_nested_as_torch_printed_them():
    html, shown, of = guard_tree.tree(GUARDS)
    assert (shown, of) == (9, 9)
    path = [str(inner) for inner in re.findall(r"<summary>(.*?)</summary>", html)]
    assert ["L[&#39;x&#39;]" in path[1], "torch.Tensor" in path[1], "L[&#39;x&#39;].a" in path[2], "<code>G</code>" in path[3]] == [
        True
    ] * 4
    assert "· 4 checks</span>" in path[0]  # the checks below the root, without the lambda guard beside it
    assert "<b class='kind'>EQUALS_MATCH</b> <code>L[&#39;x&#39;].a == 1</code> <span class='dim'>for y = x.a # train.py:4 in f" in html


def test_a_value_shows_what_it_cost_where_that_was_measured():
    html, _, _ = guard_tree.tree(GUARDS, {"L['x']": 1.234, "L['gone']": 9.0})
    assert re.findall(r"<code>([^<]*)</code> <span class='dim'>[^<]*</span> <b>([^<]*)</b>", html) == [("L[&#39;x&#39;]", "1.23 µs")]


def test_the_page_says_what_was_timed_or_how_to_time_it(tmp_path):
    report = rich_report(tmp_path)
    (untimed,) = [one for one in graphs.guards(report) if one["tree"]]
    assert "was not measured" in untimed["tree_cost"] and "µs</b>" not in untimed["tree"]
    cost = GuardCost(frame="f0", attempt=0, checks=50, whole_us=7.24, root_us=0.65, parts={"L['x']": 0.18})
    other = replace(cost, frame="f1", parts={"G": 3.0})
    (timed,) = [one for one in graphs.guards(replace(report, run=replace(report.run, guard_costs=(cost, other)))) if one["tree"]]
    assert "(the fastest of 50 checks); 1 part was timed." in timed["tree_cost"]
    assert timed["tree_cost"].startswith("One check of all takes 7.24 µs with warm caches, 0.65 µs of it")
    assert timed["tree_cost"].endswith("dictionaries that did not change.") and timed["tree"].count("µs</b>") == 1


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{'| ' * depth}+- GuardManager: source=L[{depth}], accessed_by=x\n" for depth in range(600)),
        "+- X: <script>alert(1)</script>  # <img src=x>\n| | | | +- <b>: source=<i>, accessed_by=\n",
        "+- " * 9999,
        "",
    ],
)
def test_any_tree_is_bounded_and_text(text):
    html, shown, _ = guard_tree.tree(text)
    tags = [tag for tag, _ in Page(html).tags]
    assert shown <= guard_tree.LINES_AT_MOST and set(tags) <= {"ul", "li", "details", "summary", "code", "span", "b"}
    assert tags.count("ul") <= guard_tree.LINES_AT_MOST + 1 and html.count("<ul") == html.count("</ul>")


def test_a_frame_shows_its_tree_or_says_where_it_is(tmp_path, monkeypatch):
    report = rich_report(tmp_path)
    (one,) = graphs.guards(report)
    assert "TENSOR_MATCH" in one["tree"] and one["said"] == "12 guards, 41.0 µs a check" and one["tree_of"] == "t0"
    monkeypatch.setattr(guard_tree, "LINES_AT_MOST", 3)
    assert graphs.guards(report)[0]["tree_said"] == "The first 3 of 9 lines."
    monkeypatch.setattr(graphs, "TREE_BYTES", 10)
    (one,) = graphs.guards(report)
    assert not one["tree"] and one["tree_of"] == "t0"
