"""The timeline of calls: which of them compiled, compiled again or were left to eager."""

from dataclasses import replace

import pytest

from dynadiag.render.html import compilations
from dynadiag.render.html.compilations import calls
from dynadiag.render.html.report_page import render
from tests.gold import sample_report as samples


@pytest.fixture
def report():
    report = samples.sample_report()
    at = {"f0": 1, "f1": 1, "f2": 2, "f3": 5, "f4": 5}
    frames = tuple(replace(one, call=at[one.id]) for one in report.run.frames)
    return replace(report, run=replace(report.run, frames=frames, processes=(replace(report.run.processes[0], calls=10),)))


def test_each_call_in_which_dynamo_was_at_work_is_marked(report):
    (track,) = calls(report)["tracks"]
    assert track["name"] == "pid 4242: 10 calls"
    assert [(mark["x"], mark["kind"]) for mark in track["marks"]] == [(0.0, "first"), (100.0, "first"), (400.0, "gone")]
    assert track["marks"][-1]["tip"] == "call 5 of 10: recompiled: f3 forward [3/0]; left to eager: f4 log_metrics [4/0]"
    assert "Timeline of calls" in render(report)


def test_a_compilation_that_failed_was_not_left_to_eager_unless_torch_suppressed_the_error(report):
    frames = (*report.run.frames[:4], replace(report.run.frames[4], outcome="failed"))
    failed = replace(report, run=replace(report.run, frames=frames), fallbacks=())
    assert calls(failed)["tracks"][0]["marks"][-1]["kind"] == "failed"
    suppressed = replace(failed, fallbacks=(replace(report.fallbacks[0], kind="suppressed_error", frame="f4"),))
    assert calls(suppressed)["tracks"][0]["marks"][-1]["kind"] == "gone"


def test_there_is_none_where_calls_were_not_counted(report):
    assert calls(replace(report, run=replace(report.run, processes=(replace(report.run.processes[0], calls=None),)))) is None
    assert "Timeline of calls" not in render(samples.sample_report())


def test_a_call_that_cannot_be_is_left_out_and_marks_are_limited(report, monkeypatch):
    few = replace(report, run=replace(report.run, processes=(replace(report.run.processes[0], calls=1),)))
    assert [mark["tip"][:12] for mark in calls(few)["tracks"][0]["marks"]] == ["call 1 of 1:"]
    monkeypatch.setattr(compilations, "MARKS_AT_MOST", 2)
    assert calls(report)["left"] == 1
