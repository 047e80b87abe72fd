"""What must not touch a GPU before the fork: loading a captured graph, and asking whether a candidate can run. Needs no GPU."""

from __future__ import annotations

import json

import torch
import torch._dynamo.output_graph  # a graph is watched where Dynamo is there, whichever test came first

from dynadiag.capture.graph_watch import GraphWatch
from dynadiag.fx.rebuild import RebuildOptions, rebuild
from dynadiag.reduce.graphs import loading
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.judge import IsolatedOracle
from dynadiag.reduce.graphs.loading import load_capture

ON_GPU = """
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[2, 3][3, 1]cuda:0"):
        l_x_ = L_x_

        # File: /tmp/a.py:3 in f, code: return torch.relu(x) + table
        _tensor_constant0: "f32[3][1]cuda:0" = self._tensor_constant0
        relu: "f32[2, 3][3, 1]cuda:0" = torch.relu(l_x_);  l_x_ = None
        add: "f32[2, 3][3, 1]cuda:0" = relu + _tensor_constant0;  relu = _tensor_constant0 = None
        return (add,)
"""


def test_values_of_a_gpu_are_made_on_the_cpu_and_remember_their_home(tmp_path, monkeypatch):
    rebuilt = rebuild(ON_GPU, options=RebuildOptions(values_on="cpu"))
    assert [one.device.type for one in rebuilt.example_inputs()] == ["cpu"]
    assert [one.device for one in (*rebuilt.inputs, *rebuilt.attributes)] == ["cuda:0", "cuda:0"]
    monkeypatch.setattr(loading, "missing_device", lambda rebuilt: None)
    (tmp_path / "graph.txt").write_text(ON_GPU)
    (tmp_path / "setting.json").write_text(json.dumps({"backend": "eager", "configs": []}))
    candidate, _ = load_capture(tmp_path)
    assert [one.device for one in candidate.inputs] == ["cuda:0", "cuda:0"]
    assert all(one.data.device.type == "cpu" for one in candidate.inputs) and candidate.accelerated
    assert not torch.cuda.is_initialized()


def test_a_graph_that_only_makes_tensors_on_a_gpu_is_never_tried_in_the_process_that_forks(monkeypatch):
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.arange, (3,), {"device": torch.device("cuda:0")}),))
    here, asked = candidate_of(torch.fx.symbolic_trace(lambda x: torch.relu(x)), [torch.ones(3)]), []
    there = candidate_of(torch.fx.GraphModule({}, graph), [])
    monkeypatch.setattr("dynadiag.reduce.graphs.judge.impossible", lambda candidate: asked.append(candidate))
    oracle = IsolatedOracle(None, None, timeout_s=60.0)
    assert (here.accelerated, there.accelerated) == (False, True)
    oracle.impossible(here)
    oracle.impossible(there)
    assert asked == [here]


class FakeCuda:
    """A GPU whose kernels tell of their errors when one waits for them."""

    capturing = False
    waited = 0

    def is_initialized(self):
        return True

    def is_current_stream_capturing(self):
        return self.capturing

    def synchronize(self):
        self.waited += 1
        raise RuntimeError("CUDA error: device-side assert triggered")


def test_an_error_of_a_kernel_is_told_of_the_graph_that_started_it(tmp_path, monkeypatch):
    gpu = FakeCuda()
    monkeypatch.setattr(torch, "cuda", gpu)
    watch = GraphWatch(str(tmp_path), graph=-1, call=0)
    call = watch._watched(lambda x: x, 4)
    gpu.capturing = True
    assert call(1) == 1 and gpu.waited == 0
    gpu.capturing = False
    try:
        call(1)
    except RuntimeError as error:
        assert "device-side" in str(error)
    (path,) = tmp_path.glob("failures-*.jsonl")
    found = json.loads(path.read_text())
    assert (found["graph"], found["phase"], found["call"]) == (4, "call", 2)
