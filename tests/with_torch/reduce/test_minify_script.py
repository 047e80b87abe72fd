"""`dynadiag minify SCRIPT`, from a script that dies to a proven file; and what is captured on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from dynadiag.capture import graph_watch
from dynadiag.capture.graph_capture import NONE
from dynadiag.capture.graph_watch import GraphWatch
from dynadiag.record import Target
from dynadiag.reduce.graphs.loading import load_capture
from dynadiag.reduce.sources.failing_script import CaptureOptions, find_and_capture

CRASHING = """
import os, signal, sys
import torch

LIMIT = 3

def has_relu(gm):
    return any(node.target is torch.relu for node in gm.graph.nodes)

def crashing(gm, inputs):
    def call(*values):
        if has_relu(gm) and len(values) < 1000 * LIMIT:
            os.kill(os.getpid(), signal.SIGSEGV)
        return gm.forward(*values)
    return call

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))

def f(x):
    return torch.relu(model(x) + x).sum() * 2

if len(sys.argv) > 1:
    print(torch.compile(f, backend=crashing if sys.argv[1] == "crash" else "eager")(torch.randn(4, 8)))
"""


def minify(folder, script, *arguments, options=()):
    (folder / "script.py").write_text(textwrap.dedent(script))
    verb = [sys.executable, "-c", "from dynadiag_cli.main import main; main()", "minify"]
    command = [*verb, "--out", "out", *options, "script.py", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_a_script_that_dies_ends_as_one_proven_file(tmp_path):
    done = minify(tmp_path, CRASHING, "crash", options=["--no-ablation"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "out" / "repro_min.py")
    result = json.loads((tmp_path / "out" / "minify.json").read_text())
    assert (result["kind"], result["signature"]["phase"], result["signature"]["message"]) == ("crash", "call", "SIGSEGV")
    assert result["size_after"]["nodes"] == 3 and result["proven"] == {"runs": 3, "reproduced": 3}
    assert result["guilty"]["layer"] == "crashing" and result["guilty"]["steps"]["aot_eager"] == "passes"
    assert result["level"] == "dynamo" and result["level_why"].startswith("there is no ATen graph: ")
    assert result["guilty"]["pass"] is None and result["guilty"]["pass_why"]
    assert set(result["queries"]) == {"confirm", "cut", "simplify", "minimal"} and result["complete"] and result["flaky"] is None
    source = (tmp_path / "out" / "repro_min.py").read_text()
    assert "import dynadiag" not in source and "def has_relu" in source and "LIMIT = 3" in source
    assert result["almost"] == "almost.py" and "almost.py does not fail: " + result["almost_differs"] in done.stderr
    for name in ("almost.py", "before.svg", "after.svg", "kept.svg", "report.md"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_a_script_that_does_not_fail_is_said_in_one_line(tmp_path):
    done = minify(tmp_path, CRASHING + "\ntorch.save(model.state_dict(), 'best.pt')\n")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "script.py"]  # and not what it saves
    assert done.returncode == 1 and "nothing failed: nothing to reduce (no graph was compiled" in done.stderr
    assert "Traceback" not in done.stderr


CALLED_TWICE = """
import torch

def picky(gm, inputs):
    calls = []
    def call(*values):
        calls.append(1)
        if len(calls) == 2 and any(node.target is torch.sinh for node in gm.graph.nodes):
            raise ValueError("the second call")
        return gm.forward(*values)
    return call

table = torch.arange(12.0).reshape(3, 4)

@torch.compile(backend=picky)
def first(x):
    return torch.cosh(x)

@torch.compile(backend=picky)
def second(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.sinh(x @ table) + y

with torch.no_grad():
    for step in range(4):
        base = torch.arange(40.0) + 100 * step
        first(base)
        second(base[:6].view(2, 3), base[4:12].view(2, 4))
"""


@pytest.fixture(scope="module", params=[False, True], ids=["failing", "always"])
def captured(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("captured")
    (folder / "script.py").write_text(CALLED_TWICE)
    found = find_and_capture(Target("script", (str(folder / "script.py"),)), folder / "out", CaptureOptions(always=request.param))
    assert (folder / "out" / "first-run").exists() is not request.param
    return found


@pytest.mark.oldest
def test_the_failing_call_is_captured_with_its_own_inputs(captured):
    suspect, (folder,) = captured
    assert (suspect.graph, suspect.phase, suspect.call) == (1, "call", 2) and "the second call" in suspect.title
    candidate, setting = load_capture(folder)
    values = [one.data for one in candidate.inputs]
    shapes = {tuple(value.shape): value for value in values}
    assert torch.equal(shapes[(2, 3)], (torch.arange(40.0) + 100)[:6].view(2, 3))
    assert shapes[(2, 3)].untyped_storage().data_ptr() == shapes[(2, 4)].untyped_storage().data_ptr()
    assert torch.equal(shapes[(3, 4)], torch.arange(12.0).reshape(3, 4))
    assert setting.backend.__name__ == "picky" and not setting.grad and "def picky" in setting.backend_source
    assert torch.sinh in [node.target for node in candidate.module.graph.nodes]


def test_only_the_suspected_graph_was_captured(captured):
    _, (folder,) = captured
    assert [path.name for path in folder.parent.glob("graph-*")] == ["graph-1"]
    assert not list((folder.parents[1] / "first-run").glob("graph-*")), "each was compiled"
    assert not list(folder.parent.glob("problems.txt"))


def with_a_table():
    gm = torch.fx.symbolic_trace(lambda x: (x + 1,))
    gm.register_buffer("table", torch.arange(3.0))
    with gm.graph.inserting_before(list(gm.graph.nodes)[1]):
        table = gm.graph.get_attr("table")
    list(gm.graph.nodes)[2].args = (list(gm.graph.nodes)[0], table)
    gm.recompile()
    for node, value in zip(list(gm.graph.nodes)[:3], (torch.ones(3), torch.arange(3.0), torch.arange(3.0) + 1), strict=True):
        node.meta["example_value"] = value

    class Compiling:
        compiler_fn = staticmethod(torch._dynamo.lookup_backend("eager"))

    return Compiling, gm, lambda: [torch.ones(3)]


def test_tensors_of_the_module_become_inputs(tmp_path):
    GraphWatch(str(tmp_path), graph=0, call=0)._begin(*with_a_table())
    candidate, _ = load_capture(tmp_path / "graph-0")
    assert [node.op for node in candidate.module.graph.nodes] == ["placeholder", "placeholder", "call_function", "output"]
    assert torch.equal(candidate.inputs[1].data, torch.arange(3.0))
    assert torch.equal(candidate.module(*[one.data for one in candidate.inputs])[0], torch.arange(3.0) + 1)


def test_a_graph_is_on_disk_while_it_is_compiled(tmp_path, monkeypatch):
    """Its compiler may end the process: then the script need not run again."""
    watch = GraphWatch(str(tmp_path), graph=NONE, call=0)
    begun = watch._begin(*with_a_table())
    assert torch.equal(load_capture(tmp_path / "graph-0")[0].inputs[1].data, torch.arange(3.0))
    watch._end(begun, len)
    assert not list(tmp_path.glob("graph-*"))
    monkeypatch.setattr(graph_watch, "_SMALL_BYTES", 20)  # of 24
    begun = watch._begin(*with_a_table())
    assert not list(tmp_path.glob("graph-*"))
    watch._raised(begun, ValueError())
    assert load_capture(tmp_path / "graph-1")[0].nodes == 4 and not list(tmp_path.glob("problems.txt"))
    assert not graph_watch._is_small([torch.eye(2).to_sparse()])
