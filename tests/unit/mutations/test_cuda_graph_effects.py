"""Whether a written input costs a CUDA graph: asked for by its own function, skipped or recorded. Records as of torch 2.11 on an H200."""

import pytest

from dynadiag.render import mutation_words
from dynadiag.report import build as build_report
from tests.unit.mutations import mutation_builders as build

X = 'L_x_: "f32[4]"'
SKIPPED = "skipping cudagraphs due to mutated inputs (1 instances)"
INDUCTOR = {"dynamic": None, "mode": None, "backend": "inductor", "registered": True}
GRAPHS = {"triton.cudagraphs": True, "max_autotune": False}


def written(log, frame, name, line, backend, static=(), source="L['x']", marked=False):
    log.start(frame=frame, name=name, line=line).tensor(source, frame=frame)
    log.graph(X, f"# File: /home/me/train.py:{line + 2} in {name}, code: x.add_(1)", "add_ = L_x_.add_(1)", "return (add_,)", frame=frame)
    described = {
        "name": "l_x_",
        "source": source,
        "static": "unguarded" if static or marked else None,
        "type": "Tensor",
        "dtype": "torch.float32",
    }
    details = {"graph": frame, "inputs": [{**described, "shape": [4]}], "nodes": [], "strings": [], "backend": backend}
    log.artifact("dynadiag_graph", details, frame=frame)
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True}, static=static), frame=frame)
    return log.metrics(frame=frame, co_name=name, co_firstlineno=line)


def problem(log, kind, text, frame=0):
    return log.artifact("dynadiag_problem", {"kind": kind, "text": text, "stack": []}, frame=frame)


def call(log, mode, target):
    return log.artifact("dynadiag_compile_call", {"mode": mode, "target": target, "backend": "inductor", "stack": []}, frame=None)


def told(log, folder):
    report = build_report(log.load(folder))
    return report, [finding for finding in report.findings if finding.code in ("DM01", "DM02")]


def test_the_mode_of_another_function_is_no_cost_of_this_one(tmp_path):
    log = call(call(build.LogBuilder(), "reduce-overhead", "net"), None, "update")
    written(log, 0, "net", 5, {**INDUCTOR, "options": GRAPHS})
    written(log, 1, "update", 20, {**INDUCTOR, "options": {}})
    report, (asked, other) = told(log, tmp_path)
    assert [(asked.where.line, asked.severity), (other.where.line, other.severity)] == [(7, "warning"), (22, "note")]
    assert "compiled without CUDA graphs" in other.why
    assert (mutation_words.costly(report), [one.worst for one in report.mutations]) == (1, ["cudagraph_skip", "free"])


def test_a_back_end_that_uses_no_cuda_graphs_is_not_warned_of_for_another_function(tmp_path):
    log = call(build.LogBuilder(), "reduce-overhead", "net")
    written(log, 0, "update", 20, {"backend": "aot_eager", "options": {}, "registered": True})
    assert told(log, tmp_path)[1][0].severity == "note"


@pytest.mark.parametrize(
    ("backend", "wants"),
    [
        ({**INDUCTOR, "options": {}, "cuda_graphs": True}, True),
        ({**INDUCTOR, "options": {"triton.cudagraphs": False}}, False),
        ({"backend": "cudagraphs", "options": {}}, True),
        (None, True),
    ],
    ids=["environment", "option", "back end", "not recorded"],
)
def test_what_asks_for_cuda_graphs(tmp_path, backend, wants):
    log = written(call(build.LogBuilder(), "reduce-overhead", "net"), 0, "net", 5, backend)
    assert told(log, tmp_path)[1][0].severity == ("warning" if wants else "note")


def test_a_skip_without_a_line_is_known_by_its_graph(tmp_path):
    log = written(build.LogBuilder(), 0, "net", 5, {**INDUCTOR, "options": GRAPHS})
    problem(log, "cudagraph_skip", SKIPPED)
    (finding,) = told(log, tmp_path)[1]
    assert finding.title == "Written input without a fixed address: CUDA graphs were skipped (x)"
    assert "would be" not in finding.why


def test_a_graph_that_torch_recorded_was_not_skipped(tmp_path):
    log = written(build.LogBuilder(), 0, "net", 5, {**INDUCTOR, "options": GRAPHS})
    problem(log, "cudagraph_recorded", "recorded")
    report, findings = told(log, tmp_path)
    assert (findings, mutation_words.costly(report)) == ([], 0)
    assert [(one["kind"], one["basis"]) for one in report.mutations[0].effects] == [("free", "observed")]


@pytest.mark.parametrize("static", [[0], []], ids=["metadata of now", "metadata from the cache"])
def test_a_marked_input_that_torch_skipped_for_all_the_same_is_told(tmp_path, static):
    """Marked after a first run on torch 2.11: what AOTAutograd kept in its cache says that the input has no fixed address."""
    log = written(build.LogBuilder(), 0, "net", 5, {**INDUCTOR, "options": GRAPHS}, static=static, marked=True)
    log.artifact("dynadiag_environment", {"torch": "2.11.0"}, frame=None)
    problem(log, "cudagraph_skip", SKIPPED)
    report, (finding,) = told(log, tmp_path)
    assert [(one["kind"], one["basis"]) for one in report.mutations[0].effects] == [("cudagraph_skip", "observed")]
    assert (finding.code, finding.severity) == ("DM01", "warning")
    assert finding.title == "CUDA graphs were skipped for a written input that is marked as static (x)"
    assert "keeps what this torch decided when the address was not marked" in finding.why
    assert [advice.slug for advice in finding.fix] == ["compiled-anew"]


@pytest.mark.parametrize(("version", "again"), [("2.11.0+cu130", True), ("2.15.0", False)])
def test_a_mark_is_advised_with_the_run_that_makes_an_older_torch_heed_it(tmp_path, version, again):
    log = build.LogBuilder().artifact("dynadiag_environment", {"torch": version}, frame=None)
    written(log, 0, "net", 5, {**INDUCTOR, "options": GRAPHS}, source="G['cache']")
    problem(log, "cudagraph_skip", SKIPPED)
    (finding,) = told(log, tmp_path)[1]
    assert finding.fix[0].after == "torch._dynamo.mark_static_address(cache)"
    assert ("Then delete torch's cache on disk once" in finding.fix[0].text) is again
