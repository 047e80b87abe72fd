"""What the entries of the comparing process become: exit status, text, Markdown, and JSON to its schema."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from dynadiag.errors import DynadiagError
from dynadiag.numerics import reproducing
from dynadiag.numerics.result import NumericsResult
from dynadiag.numerics.showing import document_of
from dynadiag.render.markdown_text import document
from dynadiag.render.page import text_of

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "numerics.schema.json").read_text())
PLACE = {
    "node": "mul",
    "operator": "aten.mul",
    "graph": "inference",
    "module": "L['self'].gate",
    "line": {"file": "/home/u/gate.py", "line": 9, "function": "forward", "code": "y = p * s"},
}
MEASURED = {"error": 2.4e-3, "rounding": 4.2e-3, "fault": None}
KERNEL = {"name": "cpp_fused_mul_0", "language": "C++", "text": "auto tmp2 = tmp0 * tmp1;"}
OPERATOR = {**PLACE, **MEASURED, "fusion": [], "kernel": KERNEL}
ROW = {**PLACE, **MEASURED, "equal": False, "from_eager": 2.8e-3, "compiled_from_float64": 1e-3, "eager_from_float64": 2e-3}
OUTPUT = {
    "name": "output 0",
    "dtype": "bfloat16",
    "elements": 8192,
    "largest": 0.0078125,
    "from_eager": 2.6e-3,
    "compiled_from_float64": 1.7e-3,
    "eager_from_float64": 2.2e-3,
}
CASTS = {"line": "torch._inductor.config.emulate_precision_casts = True", "cause": "float32 is kept"}


def graph(status="rounding", **changes):
    known = {"graph": "graph-0", "status": status, "backend": "inductor", "nodes": 18, "random": False, "outcome": "rounding"}
    known |= {"outputs": [OUTPUT], "layers": [{"layer": "aot_eager", "outcome": "equal"}], "operator": OPERATOR, "growth": None}
    known |= {"operators": [ROW], "options_tried": [CASTS["line"]], "ended_by": [CASTS], "eager_kernels": []}
    return {**known, **changes}


def result(*graphs, **changes):
    return NumericsResult(program="gate.py", torch="2.15.0", graphs=graphs, **changes)


def as_text(made):
    """Without the places where lines are folded."""
    return " ".join(text_of(document_of(made)).split())


def test_a_later_call_is_named_with_how_many_calls_are_alike():
    calls = [{"call": number, "outcome": outcome} for number, outcome in enumerate(("equal", "rounding", "rounding"), 1)]
    text = as_text(result(graph(call=2, calls=calls)))
    assert "the first 3 calls of each graph" in text and "first at aten.mul, in call 2 (2 of 3 calls are within rounding)" in text


SKIPPED = {"graph": "graph-1", "status": "skipped", "why_not": "eager itself gives other values in a second run: first at relu"}


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (result(graph()), 0),
        (result(graph("equal")), 0),
        (result(graph("fault"), graph()), 1),
        (result(graph(), failed=True), 1),
        (result(SKIPPED), 5),
        (result(SKIPPED, graph()), 0),
    ],
)
def test_the_exit_status(made, status):
    assert made.exit_code == status


def test_rounding_names_operator_line_kernel_cause_and_cure():
    text = as_text(result(graph()))
    assert "Within rounding: graph-0" in text
    assert "first at aten.mul --> /home/u/gate.py:9 in forward: y = p * s" in text
    assert "kernel cpp_fused_mul_0 (C++)" in text
    assert "how far 2.4e-03 of its size from float64, where rounding explains 4.2e-03" in text
    assert "output 0 (bfloat16) differs by at most 0.00781" in text
    assert "cause float32 is kept" in text
    assert "ends it torch._inductor.config.emulate_precision_casts = True" in text


def test_a_fault_that_no_option_ends_names_the_kernel_of_eager_that_does():
    fault = {**OPERATOR, "fault": "12 of 40 elements are off"}
    kernels = [{"operator": "aten.mul.Tensor", "decomposed": False}]
    text = as_text(result(graph("fault", operator=fault, ended_by=[], eager_kernels=kernels)))
    assert "Fault: first at aten.mul" in text
    assert "12 of 40 elements are off" in text
    assert "cause Inductor's own code for aten.mul.Tensor, which is not eager's" in text
    assert "no option: none of 1 that were tried does; eager's kernel for aten.mul.Tensor would" in text
    assert "torch.compiler.disable on forward" in text


def test_many_kernels_are_counted_and_no_sentence_is_cut():
    kernels = [{"operator": f"aten.operator_{at}.default", "decomposed": at < 4} for at in range(20)]
    text = as_text(result(graph(ended_by=[], eager_kernels=kernels)))
    assert "aten.operator_2.default and 17 more" in text and "operator_3" not in text
    assert "(4 of 20 decomposed into other operators)" in text and "..." not in text


def test_what_ends_only_in_a_fusion_is_said_of_the_fusion():
    fused = {**OPERATOR, "fusion": ["mul", "add"], "error": None, "rounding": None}
    text = as_text(result(graph("fault", operator=fused, ended_by=[])))
    assert "in the fused kernel of mul, add" in text
    assert "the difference ends when the value of aten.mul is stored" in text
    assert "ends it no option: none of 1 that were tried does" in text


def test_where_no_operator_was_found_the_reason_is_said():
    text = as_text(
        result(graph(operator=None, operators=[], why_not_located="its ATen graphs, each compiled alone, give what eager gives"))
    )
    assert "the operator was not found: its ATen graphs, each compiled alone, give what eager gives" in text


def test_a_graph_that_was_not_compared_has_its_reason():
    text = as_text(result(SKIPPED))
    assert "Not compared: graph-1" in text
    assert "eager itself gives other values in a second run: first at relu" in text


def test_a_failed_script_is_said():
    assert "the script failed: exit status 3" in as_text(result(graph(), failed=True, notes=("the script failed: exit status 3",)))


def test_hostile_names_do_not_become_markup():
    line = {**PLACE["line"], "code": "x = '<script>' + '\x1b[31m'"}
    text = document(document_of(result(graph(operator={**OPERATOR, "line": line}))))
    assert "\x1b" not in text
    assert "\\<script>" in text


def test_json_fits_its_schema():
    jsonschema.validate(result(graph(), graph("fault"), SKIPPED).to_json("0.1"), SCHEMA)


def a_fault(**changes):
    return graph("fault", outcome="different", **changes)


def reduced(monkeypatch, folder, made):
    """What is said of a fault, and what `minify` is asked, where it gives `made` or raises it."""
    asked = []

    def reduce_captured(captures, suspect, out, options, on_message):
        asked.append((options.kind, {path.name: path.read_text() for path in captures[0].iterdir()}))
        if isinstance(made, Exception):
            raise made
        return made

    monkeypatch.setattr(reproducing, "reduce_captured", reduce_captured)
    (folder / "capture" / "graph-0").mkdir(parents=True)
    for name in ("inputs.pt", "inputs-3.pt"):
        (folder / "capture" / "graph-0" / name).write_text(name)
    return asked


MINIFIED = {
    "reproducer": "repro_min.py",
    "proven": {"reproduced": 3, "runs": 3},
    "size_before": {"nodes": 18},
    "size_after": {"nodes": 4},
}


def test_a_fault_in_a_later_call_is_reduced_with_the_inputs_of_that_call(monkeypatch, tmp_path):
    asked = reduced(monkeypatch, tmp_path, MINIFIED)
    calls = [{"call": call, "outcome": outcome} for call, outcome in ((1, "equal"), (2, "equal"), (3, "different"))]
    fault = a_fault(call=3, calls=calls, operator={**OPERATOR, "graph": "backward"})
    made = result(graph(), fault)
    made = replace(made, reproducer=reproducing.reduce_fault(made, tmp_path, 60.0))
    assert asked == [("wrong_gradient", {"inputs.pt": "inputs-3.pt", "inputs-3.pt": "inputs-3.pt"})]
    jsonschema.validate(json.loads(json.dumps(made.to_json("0"))), SCHEMA)
    assert "18 -> 4 nodes" in as_text(made) and "failed in 3 of 3 fresh processes" in as_text(made)


def test_what_minify_cannot_reduce_is_said(monkeypatch, tmp_path):
    reduced(monkeypatch, tmp_path, DynadiagError("the captured graph passes on its own"))
    made = result(a_fault())
    made = replace(made, reproducer=reproducing.reduce_fault(made, tmp_path, 60.0))
    assert "there is no reproducer: the captured graph passes on its own" in as_text(made)


def test_a_fault_within_the_tolerance_is_not_reduced(tmp_path):
    assert reproducing.reduce_fault(result(graph("fault")), tmp_path, 60.0) is None
