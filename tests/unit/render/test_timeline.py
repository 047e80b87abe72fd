"""Compile time as pictures and as Chrome's trace: what is drawn is what was recorded."""

import json
from dataclasses import replace

import pytest

from dynadiag.model.compiled import PhaseSpan
from dynadiag.render import chrome_trace
from dynadiag.render.html import timeline
from tests.unit.render.page_samples import rich_report


@pytest.fixture
def report(tmp_path):
    return rich_report(tmp_path)


def cells(table):
    return [[cell["parts"][0]["text"] for cell in row["cells"]] for row in table["rows"]]


def test_each_compilation_is_where_it_ran(report):
    shown = timeline.times(report)["timeline"]
    assert cells(shown["table"]) == [
        ["f0 train_step [0/0]", "pid 4242", "0.00 s", "2.50 s", "first compilation"],
        ["f3 forward [3/0]", "pid 4242", "8.00 s", "0.50 s", "recompile"],
        ["f4 log_metrics [4/0]", "pid 4242", "8.80 s", "0.10 s", "gave no code (skipped or failed)"],
    ]
    assert [(bar["x"], bar["width"], bar["kind"]) for bar in shown["bars"]] == [
        (0.0, 280.9, "first"),
        (898.9, 56.2, "again"),
        (988.8, 11.2, "gone"),
    ]
    assert shown["said"].startswith(
        "3 compilations, in 8.90 s from the first to the last. When calls began and how long they took is not recorded"
    )


def test_the_names_of_processes_stand_above_their_bars(report):
    second = replace(report.run.processes[0], index=1, rank=1)
    spans = (*report.run.spans, PhaseSpan(1, "f0", "dynamo", 1_000_000.0, 2_500_000.0, 0))
    shown = timeline.times(replace(report, run=replace(report.run, processes=(*report.run.processes, second), spans=spans)))["timeline"]
    bars = sorted({bar["y"] for bar in shown["bars"]})
    for label, bar, above in zip(shown["labels"], bars, [0, *(bar + 18 for bar in bars)], strict=False):
        assert above <= label["y"] - 11 and label["y"] < bar
    assert bars[-1] + 18 < shown["height"] - 15


def test_the_flame_graph_nests_phases_below_functions(report):
    boxes = timeline.times(report)["flame"]["boxes"]
    assert [(box["level"], box["tip"]) for box in boxes][:3] == [
        (0, "train_step: 2.50 s, 1 time"),
        (1, "dynamo: 2.50 s, 1 time"),
        (2, "inductor_compile: 0.90 s, 1 time"),
    ]
    assert sum(box["width"] for box in boxes if box["level"] == 0) == pytest.approx(1000, abs=5)


def test_a_log_without_timed_phases_has_neither(report):
    assert timeline.times(replace(report, run=replace(report.run, spans=()))) is None


def test_what_is_not_drawn_is_counted(report, monkeypatch):
    monkeypatch.setattr(timeline, "BARS_AT_MOST", 1)
    shown = timeline.times(report)["timeline"]
    assert len(shown["bars"]) == 1 and shown["left"].startswith("2 shorter compilations")


def test_the_trace_is_one_that_chrome_opens(report):
    overlapping = (PhaseSpan(0, "f1", "a", 500_000.0, 1_000_000.0, 0), PhaseSpan(0, None, "\ud800<b>\x00", 8_999_999.0, 2.0, 0))
    text = chrome_trace.dumps(replace(report, run=replace(report.run, spans=(*report.run.spans, *overlapping))))
    events = json.loads(text)["traceEvents"]
    phases = [event for event in events if event["ph"] == "X"]
    assert len(phases) == len(report.run.spans) + 2 and text.isascii()
    assert min(event["ts"] for event in phases) == 0 and all(event["dur"] >= 0 and event["pid"] == 4242 for event in phases)
    keys = {"X": {"cat", "ts", "dur"}, "i": {"cat", "ts", "s"}, "M": set()}  # the Trace Event Format, of which we write three kinds
    assert all(event.keys() == {"ph", "name", "pid", "tid", "args"} | keys[event["ph"]] for event in events)
    tracks = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert all(type(event["tid"]) is int and (event["pid"], event["tid"]) in tracks for event in phases)
    for lane in {event["tid"] for event in phases}:  # phases of one track lie inside each other or apart
        ends = []
        for event in sorted((one for one in phases if one["tid"] == lane), key=lambda one: (one["ts"], -one["dur"])):
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            assert not ends or event["ts"] + event["dur"] <= ends[-1] + 0.01
            ends.append(event["ts"] + event["dur"])
    (mark,) = [event for event in events if event["ph"] == "i"]
    assert (mark["name"], mark["ts"], mark["args"]) == ("recompile r0", 8_500_000.0, {"why": ["0/0: L['scale'] == 1.0"]})
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {
        "compilation",
        "compilation at the same time (2)",
    }


def test_ranks_of_several_machines_with_equal_pids_stay_apart(report):
    first = replace(report.run.processes[0], rank=0)
    run = replace(report.run, processes=(first, replace(first, index=1, rank=1)))
    run = replace(run, spans=(*run.spans, PhaseSpan(1, None, "dynamo", 1.0, 1.0, 0)))
    events = json.loads(chrome_trace.dumps(replace(report, run=run)))["traceEvents"]
    assert {(event["pid"], event["args"]["name"]) for event in events if event["name"] == "process_name"} == {
        (0, "rank 0 (pid 4242)"),
        (1, "rank 1 (pid 4242)"),
    }
