"""The tree of guards in a page: nested as torch printed it, bounded, and text whatever a log says."""

import re

import pytest

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
