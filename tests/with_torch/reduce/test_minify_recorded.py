"""Graphs from a recording: rebuilt from the log with inputs made to measure, then reduced; nothing of the log is run as it stands."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

import dynadiag
from dynadiag.errors import NothingFoundError, UnreadableInputError, UsageError
from dynadiag.reduce import graph_worker
from dynadiag.reduce.graphs.loading import load_capture
from dynadiag.reduce.graphs.reduction import ReductionOptions, confirm, reduce_graph
from dynadiag.reduce.sources.recording import capture_recorded


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A recording of one graph that its backend could not have compiled, had it failed then."""
    folder = tmp_path_factory.mktemp("run")
    table = torch.arange(24.0).reshape(4, 6)

    def f(x, w):
        y = torch.tanh(x @ table) + 1
        return torch.relu(y @ w).sum() * 2

    with dynadiag.observe(folder / "run"), torch.no_grad():
        torch.compile(f, backend="eager")(torch.randn(3, 4), torch.randn(6, 5))
    torch._dynamo.reset()
    return folder / "run"


def test_a_recorded_graph_is_reduced_with_another_backend(run, tmp_path):
    folder = capture_recorded(run, "g0", tmp_path, backend="relu_compile_error_TESTING_ONLY")
    candidate, setting = load_capture(folder)
    assert setting.backend == "relu_compile_error_TESTING_ONLY" and not setting.grad
    assert sorted(tuple(one.shape) for one in candidate.inputs) == [(3, 4), (4, 6), (6, 5)]
    found = reduce_graph(candidate, setting, ReductionOptions(timeout_s=600, simplify=False))
    assert [node.target for node in found.best.module.graph.nodes if node.op == "call_function"] == [torch.relu]


def test_the_recorded_backend_is_taken_when_none_is_named(run, tmp_path):
    candidate, setting = load_capture(capture_recorded(run, "g0", tmp_path, backend=None))
    assert setting.backend == "eager"
    with pytest.raises(NothingFoundError, match="the captured graph does not fail on its own"):
        confirm(candidate, setting, ReductionOptions(timeout_s=600))


@pytest.mark.parametrize("backend", ["inductr", "[red]\x1b[31m"])
def test_a_backend_that_torch_does_not_have_is_refused(run, tmp_path, backend):
    candidate, setting = load_capture(capture_recorded(run, "g0", tmp_path, backend=backend))
    with pytest.raises(UsageError, match="has no back end .*list_backends"):
        graph_worker._checked(setting, candidate, {"kind": None, "backward": False})


def test_a_backend_that_torch_does_not_have_is_no_compile_error(run, tmp_path):
    """It was: "Invalid backend" was reduced to a reproducer that is proven."""
    job = {"kind": None, "backward": False, "resume": False, "out": str(tmp_path)}
    job["captures"] = [str(capture_recorded(run, "g0", tmp_path, backend="os:system"))]
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, "-m", "dynadiag.reduce.graph_worker", str(tmp_path / "job.json")], capture_output=True, text=True
    )
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["exit_code"] == 2 and "has no back end" in said["error"] and "list_backends" in said["error"]


def test_what_is_not_there_is_said_in_one_line(run, tmp_path):
    with pytest.raises(UsageError, match="has no graph 'g9': it has g0 to g0"):
        capture_recorded(run, "g9", tmp_path, backend=None)
    with pytest.raises(UnreadableInputError):
        capture_recorded(tmp_path / "nothing", "g0", tmp_path, backend=None)
    (tmp_path / "graph-0").mkdir()
    for name in ("graph.txt", "setting.json"):
        (tmp_path / "graph-0" / name).write_text("{")
    with pytest.raises(UnreadableInputError, match="cannot be read"):
        load_capture(tmp_path / "graph-0")


def test_tensors_are_never_unpickled(run, tmp_path):
    """A stranger's `inputs.pt` with an object in it is refused, not loaded."""
    import pickle

    folder = capture_recorded(run, "g0", tmp_path, backend=None)
    (folder / "inputs.pt").write_bytes(pickle.dumps(tmp_path))
    with pytest.raises(UnreadableInputError, match="cannot be read"):
        load_capture(folder)
