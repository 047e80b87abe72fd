"""A graph that sends Dynamo back to trace its frame again has not failed."""

import pytest
import torch
from torch._dynamo import output_graph

from dynadiag.capture.graph_capture import NONE
from dynadiag.capture.graph_watch import GraphWatch
from dynadiag.torch_compat.dynamo.user_compiler import watch_compiler


@pytest.mark.skipif(torch.__version__ < "2.12", reason="torch 2.11 compiles this without a restart")
def test_a_restart_is_no_failure(tmp_path, monkeypatch):
    """`minify` took the restart for the failure and never looked at what failed later (`TensorifyScalarRestartAnalysis`)."""
    told = []
    compiler = output_graph.OutputGraph.call_user_compiler
    monkeypatch.setattr(output_graph.OutputGraph, "call_user_compiler", compiler)  # restored after the test
    watch_compiler(output_graph, lambda *_: None, failed=lambda _, error: told.append(error), restarted=lambda _: told.append("restarted"))
    GraphWatch(str(tmp_path), graph=NONE, call=0).attach(output_graph)
    torch._dynamo.reset()

    @torch.compile(backend="aot_eager")
    def scaled(x, factor):
        return x * factor, factor + 1.0

    for factor in (1.5, 2.5, 3.5):
        scaled(torch.ones(3), factor)
    assert told == ["restarted"]
    assert not list(tmp_path.glob("failures-*")) and not (tmp_path / "problems.txt").exists()
