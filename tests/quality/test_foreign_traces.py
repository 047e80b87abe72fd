"""Logs that other people recorded (torch 2.4 to 2.8, edited and damaged ones among them): all are read, with exactly these facts."""

import json
from collections import Counter
from pathlib import Path

import pytest

from dynadiag.render import json_report
from dynadiag.report import build
from dynadiag.trace import graph_nodes, load, read_payload

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="no ../shared/traces here")

# name: (records, frames by outcome, graphs by kind, recompiles, cache look-ups, problems)
TRUTH = {
    "artifacts.log": (20, {"compiled": 1}, {"dynamo": 1, "aot_forward": 1}, 0, 0, []),
    "cache_hit_miss.log": (380, {"compiled": 6}, {"dynamo": 6, "aot_inference": 3, "post_grad": 2}, 0, 6, []),
    "comp_failure.log": (21, {"skipped": 1}, {"dynamo": 1}, 0, 0, ["suppressed_error"]),
    "export_guard_added.log": (39, {}, {}, 0, 0, []),
    "inductor_provenance_jit_cuda_log.txt": (140, {"compiled": 1}, {"dynamo": 1, "aot_inference": 1, "post_grad": 1}, 0, 2, []),
    "simple.log": (76, {"compiled": 1}, {"dynamo": 1, "aot_inference": 1, "post_grad": 1}, 0, 1, []),
    "simple_corrupted_json.log": (76, {"compiled": 1}, {"dynamo": 1, "aot_inference": 1, "post_grad": 1}, 0, 1, []),
    "multi_rank_logs/dedicated_log_torch_trace_rank_0.log": (21, {"skipped": 1}, {"dynamo": 1}, 0, 0, ["suppressed_error"]),
    "multi_rank_logs/dedicated_log_torch_trace_rank_1.log": (
        810, {"compiled": 15}, {"dynamo": 15, "aot_inference": 15, "post_grad": 15}, 14, 30, []),
    "multi_rank_logs/dedicated_log_torch_trace_rank_2.log": (21, {"skipped": 1}, {"dynamo": 1}, 0, 0, ["suppressed_error"]),
    "multi_rank_logs/dedicated_log_torch_trace_rank_3.log": (
        299, {"compiled": 7}, {"dynamo": 7, "aot_inference": 7, "post_grad": 7}, 6, 14, []),
}  # fmt: skip


def test_every_trace_has_its_truth():
    found = {str(path.relative_to(TRACES)) for path in TRACES.rglob("*") if path.suffix in (".log", ".txt")}
    assert found == set(TRUTH)


@pytest.mark.parametrize("name", TRUTH)
def test_facts_of_one_log(name):
    run = load(TRACES / name)
    records, outcomes, graphs, recompiles, caches, problems = TRUTH[name]
    assert [process.records for process in run.processes] == [records]
    assert Counter(frame.outcome for frame in run.frames) == outcomes
    assert Counter(graph.kind for graph in run.graphs) == graphs
    assert len(run.recompiles) == recompiles and len(run.caches) == caches
    assert [problem.kind for problem in run.problems] == problems
    assert run.breaks == () and sum(run.processes[0].skipped.values()) == (1 if "corrupted" in name else 0)


@pytest.mark.parametrize("name", TRUTH)
def test_graphs_are_counted_as_torch_counts_them(name):
    """`graph_node_count` and `graph_op_count` of torch's own metrics, and the parser of the text, agree with the quick count."""
    run = load(TRACES / name)
    for graph in run.graphs:
        nodes = graph_nodes(read_payload(graph.text))
        assert len(nodes) == graph.nodes
        assert Counter(node.target for node in nodes if node.op.startswith("call_")) == graph.ops
        metrics = run.frame(graph.frame).metrics
        if graph.kind == "dynamo" and metrics.graph_nodes is not None:
            assert (graph.nodes, sum(graph.ops.values())) == (metrics.graph_nodes, metrics.graph_ops)


@pytest.mark.parametrize("name", [*TRUTH, "multi_rank_logs", "."])
def test_every_log_becomes_a_report(name):
    report = json.loads(json_report.dumps(build(load(TRACES / name))))
    assert report["schema_version"] == 1


def test_compile_ids_that_repeat_are_epochs():
    run = load(TRACES / "cache_hit_miss.log")
    assert [(frame.key.text, frame.key.epoch) for frame in run.frames] == [
        ("0/0", 0), ("1/0", 0), ("0/0", 1), ("1/0", 1), ("0/0", 2), ("1/0", 2)]  # fmt: skip
    assert [event.why for event in run.caches if event.result == "bypass"][0].startswith("Unsupported call_function target flex_attention")


def test_ranks_of_a_folder():
    run = load(TRACES / "multi_rank_logs")
    assert [process.rank for process in run.processes] == [0, 1, 2, 3]
    assert Counter(frame.key.process for frame in run.frames) == {0: 1, 1: 15, 2: 1, 3: 7}
    reason = next(event.reasons[0] for event in run.recompiles)
    assert reason.startswith("0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3")


def test_windows_line_ends_of_a_log_are_no_damage():
    assert b"\r\n" in (TRACES / "multi_rank_logs/dedicated_log_torch_trace_rank_1.log").read_bytes()[:1000]
    assert [load(TRACES / name).notes for name in TRUTH] == [()] * len(TRUTH)


def test_the_damaged_record_is_counted_and_the_rest_used():
    damaged, whole = load(TRACES / "simple_corrupted_json.log"), load(TRACES / "simple.log")
    assert damaged.processes[0].skipped == {"payload is not JSON": 1} and whole.processes[0].skipped == {}
    names = {phase.name for phase in whole.phases} - {phase.name for phase in damaged.phases}
    assert names == {"compile_file"} or len(damaged.phases) == len(whole.phases)
    assert [(graph.kind, graph.nodes) for graph in damaged.graphs] == [(graph.kind, graph.nodes) for graph in whole.graphs]
