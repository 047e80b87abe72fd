"""What the capture keeps of calls before the one that fails, and the candidate that is made of it."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import torch
import torch._dynamo.output_graph as output_graph

from dynadiag.capture.graph_capture import EVERY
from dynadiag.capture.graph_watch import GraphWatch
from dynadiag.reduce.graphs.calling import with_earlier_calls
from dynadiag.reduce.graphs.inputs import make_values
from dynadiag.reduce.graphs.loading import load_capture
from dynadiag.reduce.sources.failing_script import Suspect, _captured, _owner, _region, _whole

pytestmark = pytest.mark.oldest


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """Run a function under the watch of a capture."""

    def watch(function, **wanted):
        monkeypatch.setattr(output_graph.OutputGraph, "call_user_compiler", output_graph.OutputGraph.call_user_compiler)
        torch._dynamo.reset()
        GraphWatch(str(tmp_path), **wanted).attach(output_graph)
        function()
        assert not (tmp_path / "problems.txt").exists(), (tmp_path / "problems.txt").read_text()
        return tmp_path

    return watch


def script():
    """Three sizes of one function, another function between."""
    step = torch.compile(lambda x, w: torch.tanh(x @ w), backend="eager")
    other = torch.compile(torch.sin, backend="eager")
    weight = torch.ones(4, 4)
    with torch.no_grad():
        step(torch.full((6, 4), 1.0), weight)
        other(torch.ones(3))
    for size in (8, 8, 5):
        step(torch.full((size, 4), float(size)), weight)


def suspect(graph):
    return Suspect(graph=graph, phase="call", call=1, title="")


def shapes(candidate):
    return [tuple(one.value if hasattr(one, "value") else one.shape for one in call.inputs) for call in candidate.calls]


def test_the_calls_of_the_same_code_are_kept_with_their_sizes_and_grad_modes(watched):
    folder = watched(script, graph=2, call=3, region=(0, 2))
    assert [_region(folder, suspect(graph)) for graph in (2, 1, 9)] == [(0, 2), (1,), ()]
    candidate, setting = load_capture(folder / "graph-2")
    whole = with_earlier_calls(folder / "graph-2", candidate)
    assert shapes(whole) == [(6, (6, 4), (4, 4)), (8, (8, 4), (4, 4)), (8, (8, 4), (4, 4)), (5, (5, 4), (4, 4))]
    assert [call.grad for call in whole.calls] == [False, None, None, None] and setting.grad
    assert whole.calls[0].inputs[1].data[0, 0] == 1 and whole.calls[1].inputs[1].data[0, 0] == 8
    (region,) = folder.glob("region-*")
    assert len(list(region.iterdir())) == 3


def test_each_graph_at_its_first_call_is_followed_by_calls_of_other_kinds(watched):
    folder = watched(script, graph=EVERY, call=0)
    candidate, _ = load_capture(folder / "graph-2")
    assert shapes(candidate) == [(8, (8, 4), (4, 4))]
    assert [shape[0] for shape in shapes(with_earlier_calls(folder / "graph-2", candidate))] == [6, 8, 5]
    first, _ = load_capture(folder / "graph-0")
    assert with_earlier_calls(folder / "graph-0", first) is None


def test_what_is_missing_or_damaged_is_no_earlier_call(watched):
    folder = watched(script, graph=2, call=3, region=(0, 2))
    candidate, _ = load_capture(folder / "graph-2")
    paths = sorted(folder.glob("region-*/*.pt"))
    paths[0].write_bytes(paths[0].read_bytes()[:99])
    assert len(with_earlier_calls(folder / "graph-2", candidate).calls) == 3
    (folder / "graph-2" / "inputs.pt").unlink()
    assert with_earlier_calls(folder / "graph-2", candidate) is None
    (folder / "graphs-1.jsonl").write_text('{"graph": 7}\n[]\n{"graph": 9, "region": 3}\n' + json.dumps({"graph": 8, "region": 3}))
    assert _region(folder, suspect(9)) == (9, 8)


def test_graphs_of_two_processes_with_one_number_lie_apart(watched, monkeypatch):
    """Another pid stands for the other process."""
    folder = watched(script, graph=1, call=1)
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    assert watched(script, graph=1, call=1) == folder
    monkeypatch.undo()
    first, second = _whole(folder)
    assert (first.name, second.name) == ("graph-1", f"graph-1.{here + 1}") and (_owner(first), _owner(second)) == (here, here + 1)
    for pid, path in ((here, first), (here + 1, second), (None, first)):
        assert _captured(folder, replace(suspect(1), pid=pid), "-")[0] == path


def test_inputs_of_several_dtypes_in_one_memory_are_captured(watched):
    def mixed():
        x = torch.arange(6.0).to(torch.complex64)
        torch.compile(lambda a, b, c: a.abs() + b.sum() + c, backend="eager")(x, torch.view_as_real(x), x.view(torch.int32)[::2])

    candidate, _ = load_capture(watched(mixed, graph=0, call=1) / "graph-0")
    values = make_values(candidate.inputs)
    assert len({one.untyped_storage().data_ptr() for one in values}) == 1
    assert {one.dtype for one in values} == {torch.complex64, torch.float32, torch.int32}
    assert next(one for one in values if one.is_complex()).real.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_files_of_a_capture_follow_no_link_and_have_no_name_that_can_be_known_before(tmp_path):
    from dynadiag.torch_compat.dispatch.saved_values import EarlierCalls, save_values

    (tmp_path / "precious").write_text("precious")
    for name in ("inputs.pt", "inputs.pt.part", f"graphs-{os.getpid()}.jsonl"):
        (tmp_path / name).symlink_to(tmp_path / "precious")
    save_values(str(tmp_path / "inputs.pt"), [torch.ones(2), 3], {"order": 1})
    assert torch.load(tmp_path / "inputs.pt", weights_only=True)["inputs"][1] == 3
    with pytest.raises(OSError, match="it is a link"):
        EarlierCalls(str(tmp_path), only=None).compiling(0, None, torch.fx.symbolic_trace(torch.nn.Identity()))
    assert (tmp_path / "precious").read_text() == "precious"
