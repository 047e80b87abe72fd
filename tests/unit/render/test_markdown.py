import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dynadiag.render import markdown, markdown_text

LIVE = {
    "link_open",
    "image",
    "html_inline",
    "strong_open",
    "em_open",
    "s_open",
    "heading_open",
    "bullet_list_open",
    "blockquote_open",
    "hr",
}
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
NASTY = st.text(st.sampled_from("`*_[]()<>#+-!|~&$\\@1w. :/a\n"), max_size=40) | st.text(max_size=40)


def tokens(text):
    found = []
    for token in PARSER.parse(text):
        found.append(token)
        found.extend(token.children or ())
    return found


@given(NASTY)
def test_prose_is_text_and_nothing_else(text):
    kinds = {token.type for token in tokens("x " + markdown_text.prose(text)) + tokens(markdown_text.prose(text))}
    assert not kinds & LIVE
    assert not kinds & {"html_block", "fence", "code_block", "ordered_list_open", "table_open"}


@given(NASTY)
def test_a_code_span_shows_exactly_its_text(text):
    spans = [token.content for token in tokens("x " + markdown_text.code(text)) if token.type == "code_inline"]
    body = " ".join(text.split())
    ordinary = all(" " <= character <= "~" or character == "\n" for character in text)
    if body and ordinary and not ("|" in body and "\\" in body):
        assert spans == [body]


@given(NASTY)
def test_a_fence_cannot_be_closed_from_inside(text):
    found = [token for token in PARSER.parse(markdown_text.fenced(text)) if token.type == "fence"]
    assert len(found) == 1
    assert len(PARSER.parse(markdown_text.fenced(text))) == 1


@given(NASTY, NASTY)
def test_a_table_keeps_its_shape(one, two):
    text = markdown_text.table(("a", "b"), [(markdown_text.prose(one), markdown_text.code(two))])
    kinds = [token.type for token in PARSER.parse(text)]
    assert kinds.count("tr_open") == 2
    assert kinds.count("td_open") == 2
    assert not {token.type for token in tokens(text)} & LIVE


@pytest.mark.parametrize("text", ["@torvalds", "see #12", "GH-7", "https://evil.example", "www.evil.example", "mailto:a@b.c"])
def test_github_finds_nothing_to_link(text):
    shown = markdown_text.prose(text)
    assert not re.search(r"@\w|#\d|GH-\d|https?:|www\.e|mailto:", shown)
    assert shown.replace("\u200b", "").replace("\\", "") == text


def test_a_pair_of_backticks_in_our_advice_stays_a_code_span():
    assert markdown_text.prose("use `torch.where` here") == "use `torch.where` here"
    assert markdown_text.prose("a lone ` tick") == "a lone \\` tick"


def test_a_hostile_report_has_no_live_markup_but_ours(samples):
    found = tokens(markdown.render(samples.hostile_report()))
    html = [token.content for token in found if token.type in ("html_block", "html_inline")]
    assert html
    assert all(re.fullmatch(r"(<details>\n<summary>[\w '-]+ \([\d,]+\)</summary>|</details>)\n?", text) for text in html)
    assert not [token for token in found if token.type in ("link_open", "image", "em_open")]


def test_findings_keep_their_order_and_everything_a_reader_needs(samples):
    text = markdown.render(samples.sample_report())
    for part in (
        "### 1. error DF0001",
        "### 2. warning GB0123",
        "`train.py:41 in train_step`",
        "- step = torch.compile(train_step)",
        "2 sites, 6 events",
    ):
        assert part in text
    assert "- torch: 2.15.0" in text
    assert "| mutations | not known:" in text


def test_a_huge_report_fits_into_an_issue_and_says_what_is_missing(samples):
    text = markdown.render(samples.big_report(3000))
    assert len(text) <= markdown_text.MAX_CHARACTERS
    assert re.search(r"2,9\d\d more findings in `report.json`", text)


def test_nothing_compiled_is_said(samples):
    assert "**Nothing was compiled.**" in markdown.render(samples.empty_report())


def test_a_log_of_strangers_is_marked_as_such(samples):
    from dynadiag.model.run import RunInfo

    report = samples.sample_report()
    text = markdown.render(replace(report, run=replace(report.run, info=RunInfo())))
    assert "- recorded by: not known (foreign log)" in text


@pytest.mark.parametrize(("grad_mode", "shown"), [(True, False), (False, True)])
def test_the_recorded_grad_mode_is_an_option_only_when_it_is_off(samples, grad_mode, shown):
    report = samples.empty_report()
    process = replace(report.run.processes[0], config={"torch": {"grad_mode": grad_mode}})
    text = markdown.render(replace(report, run=replace(report.run, processes=(process,))))
    assert ("Non-default options" in text, "`torch.grad_mode` | `False`" in text) == (shown, shown)
