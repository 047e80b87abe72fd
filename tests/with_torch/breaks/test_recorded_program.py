"""What only a recorded run tells: who called a frame of torch's own, and which functions somebody wanted compiled."""

from pathlib import Path

import pytest

import dynadiag
from tests.recorded_here import recorded_here

PROGRAM = Path(__file__).with_name("recorded_program.py")
LINES = PROGRAM.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("recorded") / "run"
    recorded_here(PROGRAM, out)
    return dynadiag.load(out)


def marked(text):
    return next(number for number, line in enumerate(LINES, 1) if line.endswith(f"# {text}"))


def test_a_recompile_of_torchs_own_code_names_the_line_that_called_it(report):
    lines = [recompile.own_frame.line for recompile in report.recompiles]
    assert lines[:2] == [marked("recompiles: first"), marked("recompiles: second")]


def test_a_break_that_was_raised_in_torchs_own_code_names_the_line_that_called_it(report):
    (site,) = [site for site in report.graph_breaks if site.fullgraph]
    assert (site.own_frame.line, site.own_frame.function) == (marked("breaks: fullgraph"), "main")
    assert site.doubts == ()


def test_only_functions_that_were_compiled_are_told_as_empty(report):
    empty = [entry for entry in report.fallbacks if entry.kind == "no_graph"]
    assert sorted(LINES[entry.own_frame.line - 1].split("(")[0].strip() for entry in empty) == ["def forward", "def nothing"]


def test_a_disabled_function_is_told_where_compiled_code_called_it(report):
    disabled = [entry for entry in report.fallbacks if entry.kind == "disabled"]
    assert [(entry.own_frame.line, bool(entry.breaks)) for entry in disabled] == [(marked("runs eager: called"), True)]


def test_nothing_else_is_a_fallback(report):
    others = [entry for entry in report.fallbacks if entry.kind not in ("no_graph", "disabled")]
    assert [(entry.kind, entry.own_frame.function, bool(entry.breaks)) for entry in others] == [("skipped_frame", "step", True)] * len(
        others
    )
