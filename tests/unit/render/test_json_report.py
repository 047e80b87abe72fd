import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from dynadiag.model.parity import Parity, ParityCall
from dynadiag.model.run import Problem, RunInfo
from dynadiag.render import json_report
from dynadiag.render.completeness import completeness

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text())
TRACES = ROOT.parent / "shared" / "traces"


def validate(document):
    jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("which", ["sample_report", "empty_report", "hostile_report"])
def test_hand_made_reports_fit_the_schema_and_can_be_written(samples, which):
    text = json_report.dumps(getattr(samples, which)())
    document = json.loads(text.encode("utf-8"))
    validate(document)
    assert document == json_report.to_dict(getattr(samples, which)())


@pytest.mark.skipif(not TRACES.is_dir(), reason="no foreign logs beside this checkout")
def test_reports_on_foreign_logs_fit_the_schema():
    from dynadiag import report, trace

    logs = [path for path in sorted(TRACES.iterdir()) if path.suffix in (".log", ".txt") or path.is_dir()]
    for path in logs:
        validate(json.loads(json_report.dumps(report.build(trace.load(path)))))


def test_the_schema_refuses_a_null_without_its_reason(samples):
    document = json_report.to_dict(samples.sample_report())
    validate(document)
    del document["summary"]["mutations_why"]
    with pytest.raises(jsonschema.ValidationError):
        validate(document)


def test_an_entry_of_a_list_is_one_line(samples):
    lines = json_report.dumps(samples.sample_report()).splitlines()
    assert sum(line.startswith(' {"id": "g') for line in lines) == 5


def test_ids_are_unique_and_evidence_points_to_them(samples):
    document = json_report.to_dict(samples.sample_report())
    ids = [
        entry["id"]
        for key in ("frames", "graphs", "graph_breaks", "recompiles", "fallbacks", "findings", "guards")
        for entry in document[key]
    ]
    assert len(ids) == len(set(ids))
    assert {name for finding in document["findings"] for name in finding["evidence"]} <= set(ids)


def test_frames_know_their_graphs_and_breaks(samples):
    frame = json_report.to_dict(samples.sample_report())["frames"][0]
    assert frame["graphs"] == ["g0", "g2"]
    assert frame["breaks"] == ["b0"]
    assert (frame["attempt"], frame["attempts"]) == (1, 2)


def test_values_that_json_lacks_become_null():
    assert json_report.plain((math.nan, math.inf, 1.5)) == [None, None, 1.5]
    assert json_report.plain({1: frozenset({"b", "a"})}) == {"1": ["a", "b"]}
    assert json_report.plain("a\ud800b") == "a\ufffdb"


def test_pictures_and_unknown_graphs_carry_their_reason(samples):
    graphs = json_report.to_dict(samples.sample_report())["graphs"]
    assert graphs[0]["svg"] == "graphs/g0-train-step.svg"
    assert graphs[1]["svg"] is None
    assert graphs[1]["svg_why"]
    assert graphs[4]["nodes_why"] == "the graph's text is cut short"
    assert graphs[0]["runnable"] is None
    assert graphs[0]["why_not"]


@pytest.mark.parametrize(
    ("change", "complete", "why"),
    [
        ({}, True, None),
        ({"exit_status": 7}, True, None),
        ({"exit_status": None, "running": True}, False, "still running"),
        ({"exit_status": None, "killed": True}, False, "dynadiag was killed"),
        ({"exit_status": None, "killed": True, "observed": True}, False, "ended inside dynadiag.observe"),
        ({"exit_status": None, "unended": True}, None, "cannot be seen from this machine"),
        ({"stopped": ("recording stopped in process 7: No space left on device",)}, False, "process 7: No space left"),
        ({"stopped": ("recording stopped in process 7: File too large", "more")}, False, "(and in 1 more)"),
        ({"timed_out": True}, False, "time limit"),
        ({"interrupted": True}, False, "interrupted"),
        ({"stopped_stable": True}, False, "nothing new compiled"),
        ({"signal": "SIGSEGV", "exit_status": 139}, False, "SIGSEGV"),
    ],
)
def test_completeness_of_a_run(samples, change, complete, why):
    run = samples.sample_run()
    found, said = completeness(replace(run, info=replace(run.info, **change)))
    assert found is complete
    assert (why in said) if why else said is None


def test_completeness_of_a_foreign_log_a_full_log_and_a_lost_process(samples):
    run = samples.sample_run()
    assert completeness(replace(run, info=RunInfo()))[0] is None
    full = replace(run, problems=(Problem(kind="log_limit", process=0, text="cap"),))
    assert completeness(full) == (False, "the log reached its size limit")
    failed = replace(run, problems=(Problem(kind="recorder", process=0, text="handler: KeyError"),))
    assert completeness(failed) == (False, "a recorder hook failed, so records may be missing (see the notes)")
    unmeasured = replace(run, problems=(Problem(kind="no_cost", process=0, text="--cost: no run time: needs 23 steady calls, saw 4"),))
    assert completeness(unmeasured) == (True, None)
    vanished = replace(run, processes=(replace(run.processes[0], finished=False),))
    how = "it called os._exit or was killed, which is how multiprocessing.Pool ends its workers"
    assert completeness(vanished) == (None, f"not known: process 4242 ended without a normal exit ({how})")
    replaced = replace(run, processes=(*vanished.processes, replace(run.processes[0], index=1, finished=True)))
    assert completeness(replaced) == (True, None)  # os.execv
    lost = replace(run, info=replace(run.info, exit_status=1), processes=(replace(run.processes[0], finished=False, rank=1),))
    assert completeness(lost) == (False, "process 4242 (rank 1) ended without a normal exit")


def test_what_was_compared_is_written_call_by_call(samples):
    call = ParityCall(process=0, frame="f0", graph=0, call=1, verdict="different")
    facts = {"graphs_compared": 1, "calls_equal": 0, "calls_different": 1, "random_values": 0, "not_shown": "nothing"}
    many = replace(samples.sample_report(), parity=Parity(not_compared=(), different=(call,) * 2000, **facts))
    assert max(map(len, json_report.chunks(many))) < 10_000
    assert json.loads(json_report.dumps(many)) == json_report.to_dict(many)


def test_a_big_report_streams_quickly(samples):
    report = samples.big_report(20_000)
    assert sum(map(len, json_report.chunks(report))) > 10_000_000
