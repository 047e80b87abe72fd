"""What was raised into the program is told as a failure, on the user's line; what fell back as a fallback."""

import logging
from pathlib import Path

import pytest

import dynadiag
from tests.recorded_here import recorded_here

PROGRAM = Path(__file__).with_name("recorded_errors.py")
LINES = PROGRAM.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("errors") / "run"
    try:
        recorded_here(PROGRAM, out)
    finally:
        logging.disable(logging.NOTSET)  # the program disables it
    return dynadiag.load(out)


def marked(text):
    return next(number for number, line in enumerate(LINES, 1) if line.endswith(f"# {text}"))


def finding_at(report, mark):
    (found,) = [one for one in report.findings if one.where is not None and one.where.line == marked(mark) and one.code[:2] in ("GB", "DF")]
    return found


@pytest.mark.parametrize(
    ("mark", "title"),
    [
        ("raises: forbidden", "Compilation failed: graph break under error_on_graph_break"),
        ("raises: in_branch", "Compilation failed: graph break inside a higher-order operator"),
        ("raises: no_fake", "Compilation failed with TorchRuntimeError"),
        ("raises: refused", "Compilation failed with BackendCompilerFailed"),
    ],
)
def test_an_error_that_reached_the_program_is_a_failure(report, mark, title):
    finding = finding_at(report, mark)
    assert (finding.severity, finding.title.partition(" (")[0]) == ("error", title)


def test_a_break_in_a_frame_that_failed_is_a_break_and_no_more(report):
    (site,) = [site for site in report.graph_breaks if site.own_frame.line == marked("breaks: refused")]
    assert (site.skipped_frames, site.skip_reason, site.fullgraph) == ((), None, False)
    assert "picky' raised: NotImplementedError: no kernel for cos" in finding_at(report, "raises: refused").why


def test_a_frame_that_was_skipped_while_logging_was_off_ran_eager(report):
    (entry,) = report.fallbacks
    assert (entry.kind, entry.own_frame.function) == ("skipped_frame", "silent")
    (site,) = [site for site in report.graph_breaks if site.id in entry.breaks]
    assert (site.own_frame.line, site.fullgraph) == (marked("skips: silent"), False)


def test_each_frame_has_its_outcome(report):
    assert {frame.name: frame.outcome for frame in report.run.frames} == {
        "forbidden": "failed",
        "with_cond": "failed",
        "with_no_fake": "failed",
        "refused": "failed",
        "silent": "skipped",
    }
