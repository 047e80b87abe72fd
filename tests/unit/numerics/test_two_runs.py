"""Two runs compared by the hashes that they wrote: the first graph that differs, and what is said of it; the hashes are made up."""

import json
from pathlib import Path

import jsonschema
import pytest

from dynadiag.errors import NothingFoundError, UnreadableInputError
from dynadiag.numerics.result import NumericsResult
from dynadiag.numerics.showing import document_of
from dynadiag.numerics.two_runs import compare_runs
from dynadiag.render.page import text_of
from tests.unit.trace.conftest import LogBuilder

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "numerics.schema.json").read_text())
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8][1]cpu"):
        cos: "f32[8][1]cpu" = L_x_.cos();  L_x_ = None
        return (cos,)
"""


def call(graph, number, inputs=("a",), outputs=("b",), after=None):
    function = ["step", "/home/me/train.py", 7]
    return {"graph": graph, "call": number, "function": function, "inputs": inputs, "outputs": outputs, "after": after or inputs}


def written(folder, *calls, pid=4242, code=None):
    """A run with these hashes, and the code that Inductor generated for its one graph."""
    folder.mkdir(exist_ok=True)
    (folder / f"hashes-{pid}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in calls))
    if code is not None:
        (folder / "recording").mkdir()
        log = LogBuilder(pid).intern("/home/me/train.py").start(0)
        log.record("dynamo_output_graph", {"sizes": {}}, GRAPH, frame=0)
        log.record("inductor_output_code", {"filename": "/tmp/x.py"}, code, frame=0)
        log.metrics(0, entire_frame_compile_time_s=1.0)
        log.write(folder / "recording")
    return folder


def told(old, new):
    runs = compare_runs(old, new)
    result = NumericsResult(program="old new", torch="2.15.0", graphs=(), two_runs=runs)
    jsonschema.validate(json.loads(json.dumps(result.to_json("0"))), SCHEMA)
    return runs, result.exit_code, " ".join(text_of(document_of(result)).split())


def test_equal_hashes_are_equal_runs(tmp_path):
    old, new = (written(tmp_path / name, call(0, 1), call(1, 1)) for name in ("old", "new"))
    runs, status, text = told(old, new)
    assert (runs["outcome"], runs["equal_calls"], status) == ("equal", 2, 0)
    assert "Equal to the bit: 2 calls of graphs in both runs" in text


@pytest.mark.parametrize(
    ("changed", "outcome", "what"),
    [
        ({"outputs": ("c",)}, "graph", "output 0"),
        ({"inputs": ("z",), "outputs": ("c",)}, "inputs", "input 0"),
        ({"after": ("z",)}, "graph", "input after the call 0"),
    ],
)
def test_the_first_call_that_differs_is_named(tmp_path, changed, outcome, what):
    old = written(tmp_path / "old", call(0, 1), call(1, 1), call(0, 2))
    new = written(tmp_path / "new", call(0, 1), call(1, 1, **changed), call(0, 2, outputs=("y",)))
    runs, status, text = told(old, new)
    assert (runs["outcome"], runs["graph"], runs["call"], runs["what"], status) == (outcome, 1, 1, what, 1)
    assert f"graph-1, call 1 of step (train.py:7): {what}" in text and "1 calls of graphs before it are equal" in text


def test_other_graphs_are_no_other_values(tmp_path):
    runs, *_ = told(written(tmp_path / "old", call(0, 1), call(1, 1)), written(tmp_path / "new", call(0, 1)))
    assert (runs["outcome"], runs["graph"]) == ("order", 1)


@pytest.mark.parametrize(
    ("other", "said"), [("BLOCK = 64", "differs from line 2: BLOCK = 32 -> BLOCK = 64"), ("BLOCK = 32", "is the same in both runs")]
)
def test_the_code_that_was_generated_for_the_graph_is_compared(tmp_path, other, said):
    old = written(tmp_path / "old", call(0, 1), code="import torch\nBLOCK = 32\n")
    new = written(tmp_path / "new", call(0, 1, outputs=("c",)), code=f"import torch\n{other}\n")
    runs, _, text = told(old, new)
    assert runs["code"]["equal"] is (other == "BLOCK = 32") and said in text


def test_a_run_without_hashes_and_one_with_other_processes_are_refused(tmp_path):
    old = written(tmp_path / "old", call(0, 1))
    written(old, call(0, 1), pid=4243)
    new = written(tmp_path / "new", call(0, 1))
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingFoundError, match="no hashes"):
        compare_runs(new, tmp_path / "empty")
    with pytest.raises(UnreadableInputError, match="2 and 1 processes"):
        compare_runs(old, new)


def test_lines_that_are_no_calls_are_passed_over(tmp_path):
    old, new = (written(tmp_path / name, call(0, 1)) for name in ("old", "new"))
    with (new / "hashes-4242.jsonl").open("a") as file:
        file.write('[1]\nnull\n{"graph": "x"}\n{"graph": 1, "ca')
    assert told(old, new)[0]["outcome"] == "equal"
