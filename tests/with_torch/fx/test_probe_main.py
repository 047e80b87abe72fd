"""The probe as a process of its own: what it appends to a run directory, and what it does with a run that is none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag import trace
from dynadiag.fx import probe_graph, probe_main

PROBE = Path(probe_main.__file__)
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cuda:0", L_y_: "f32[4][1]cuda:0"):
        l_x_ = L_x_
        l_y_ = L_y_

        # File: /a/train.py:12 in step, code: x.add_(y)
        add_: "f32[4][1]cuda:0" = l_x_.add_(l_y_);  l_x_ = l_y_ = None
        return (add_,)
"""
HOSTILE = GRAPH.replace("l_x_.add_(l_y_)", "__import__('os').system('touch CANARY')")
PRIVATE = GRAPH.replace("l_x_.add_(l_y_)", "torch.ops.mylib.put(l_x_)")
STUCK = GRAPH.replace("l_x_.add_(l_y_)", "l_x_.add_(l_y_); " + "; ".join(f"a{i} = add_.sin()" for i in range(30000)))
REFUSED = "BackendCompilerFailed: backend='b' raised:\nAssertionError: no\n  keep_input_mutations=False"


def record(metadata, payload):
    lines = [f"V1121 07:22:11.076000 3362 torch/_dynamo/output_graph.py:1] {json.dumps(metadata)}"]
    return "\n".join([*lines, *(f"\t{line}" for line in payload.splitlines())]) + "\n"


@pytest.fixture
def make_run(tmp_path):
    def make(*texts, after=""):
        run = tmp_path / "run"
        run.mkdir()
        (run / "dynadiag-run.json").write_text('{"format": 1}')
        parts = []
        for number, text in enumerate(texts):
            ids = {"frame_id": number, "frame_compile_id": 0, "attempt": 0, "has_payload": "0"}
            parts.append(record({"dynamo_output_graph": {}, **ids}, text))
            if text is GRAPH:
                problem = json.dumps({"kind": "aot_rejected", "text": REFUSED, "stack": []})
                parts.append(record({"artifact": {"name": "dynadiag_problem", "encoding": "json"}, **ids}, problem))
                parts.append(record({"aot_inference_graph": {}, **ids}, GRAPH))
        (run / "dedicated_log_torch_trace_1.log").write_text("".join(parts) + after)
        return run

    return make


def probe(run, *options):
    return subprocess.run([sys.executable, "-S", str(PROBE), str(run), *options], cwd=run.parent, capture_output=True, text=True)


def by_graph(run):
    return {graph.id: (graph, graph.probe and trace.probe_result(graph.probe)) for graph in trace.load(run).graphs}


def in_process(run, *options):
    return probe_main.main([str(run), *options])


def test_each_graph_gets_one_record_that_the_reader_takes(make_run, tmp_path):
    run = make_run(GRAPH, HOSTILE, PRIVATE, after="V1121 07:22:11.076000 1 torch/a.py:1] {half a record")
    log = run / "dedicated_log_torch_trace_1.log"
    before = log.read_bytes()
    done = subprocess.run([sys.executable, str(PROBE), str(run)], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert log.read_bytes().startswith(before)
    found = by_graph(run)
    (mutation,) = found["g0"][1].mutations
    assert found["g0"][0].runnable is True
    assert (mutation.name, mutation.kinds, mutation.where) == ("l_x_", ("data",), "epilogue")
    assert [(site.stack[-1].file, site.stack[-1].line) for site in mutation.sites] == [("/a/train.py", 12)]
    assert found["g1"][0].runnable is None and "only Dynamo's graphs" in found["g1"][0].why_not
    assert found["g2"][0].runnable is False and "__import__" in found["g2"][0].why_not and found["g2"][1].mutations is None
    assert found["g3"][0].runnable is False and "mylib::put" in found["g3"][0].why_not
    assert "is not recorded: more may be mutated" in found["g3"][1].error
    payloads = [json.loads(trace.read_payload(graph.probe)) for graph, _ in found.values()]
    assert [content["refusal"] for content in payloads] == [{"text": REFUSED, "basis": "observed"}, None, None, None]
    assert not list(tmp_path.glob("CANARY"))
    once = log.read_bytes()
    assert in_process(run) == 0 and log.read_bytes() == once


def test_time_that_is_over_is_the_reason_of_every_graph(make_run):
    run = make_run(GRAPH, PRIVATE)
    assert in_process(run, "--budget-s", "0") == 0
    found = by_graph(run)
    assert found["g0"][1].error == found["g2"][1].error == "the probe's time limit was reached before this graph"
    assert found["g0"][0].runnable is None and found["g0"][1].mutations is None


def test_graph_that_takes_too_long_is_left_and_the_next_is_probed(make_run, monkeypatch):
    run = make_run(STUCK, PRIVATE)
    monkeypatch.setattr(probe_graph, "LONGEST_S", 1.0)
    left = []

    def restart(seconds):
        left.append(seconds)
        monkeypatch.setattr(probe_graph, "LONGEST_S", 1000.0)

    assert probe_main.main([str(run), "--budget-s", "1000"], restart=restart) == 0
    found = by_graph(run)
    assert "took longer than 1 s" in found["g0"][1].error and "mylib" in found["g1"][0].why_not
    assert len(left) == 1 and 0 < left[0] < 1000


@pytest.mark.parametrize("lost_in", ["an error of its own", "nothing"])
def test_time_that_was_over_is_said_where_the_exception_for_it_was_lost(make_run, monkeypatch, lost_in):
    """Python drops what is raised in a destructor or a gc callback; on 3.11 `ast.parse` then fails with a SystemError (gh-106905)."""

    class Endless:
        def __del__(self):
            while True:
                pass

    def loses_it(_graph, _run):
        Endless()
        if lost_in != "nothing":
            raise SystemError("AST constructor recursion depth mismatch")
        return {"runnable": True, "why_not": None}

    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    monkeypatch.setattr(probe_graph, "_probe", loses_it)
    graph = trace.load(make_run(GRAPH)).graphs[0]
    content, stopped = probe_graph.probe_graph(graph, None, seconds=0.05)
    assert stopped and "took longer than 0.05 s" in content["error"]
    assert said == [] and sys.unraisablehook.__self__ is said


@pytest.mark.parametrize("content", [None, "not json", "{}"])
def test_what_is_no_run_of_ours_is_left_alone(tmp_path, capsys, content):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "dedicated_log_torch_trace_1.log").write_text(record({"dynamo_output_graph": {}, "has_payload": "0"}, GRAPH))
    if content is not None:
        (folder / "other.json").write_text(content)
    before = {item.name: item.read_bytes() for item in folder.iterdir()}
    assert in_process(folder) == 2
    assert capsys.readouterr().err.startswith("dynadiag: ")
    assert {item.name: item.read_bytes() for item in folder.iterdir()} == before


def test_python_without_torch_says_so(make_run):
    run = make_run(GRAPH)
    done = probe(run)
    assert done.returncode == 3 and done.stderr == "dynadiag: mutations are not probed: this interpreter has no torch\n"


def test_modules_of_the_program_are_not_mistaken_for_ours(make_run, tmp_path):
    (tmp_path / "inputs.py").write_text("raise SystemExit('imported')")
    code = f"import runpy, sys; sys.argv = ['probe', {str(make_run())!r}]; runpy.run_path({str(PROBE)!r}); import inputs"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.strip() == "imported"
