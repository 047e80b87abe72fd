"""Options whose values are functions: captured by name or by source, set again around each candidate, written into the reproducer."""

from __future__ import annotations

import json
import operator
import os

import pytest
import torch
import torch._functorch.config
import torch._inductor.config

from dynadiag.capture.graph_watch import GraphWatch
from dynadiag.errors import UnreadableInputError
from dynadiag.reduce.graphs.candidate import Candidate, candidate_of
from dynadiag.reduce.graphs.judge import observe_isolated
from dynadiag.reduce.graphs.loading import load_capture
from dynadiag.reduce.graphs.reduction import ReductionOptions, reduce_graph
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.reproducer.graph_file import Header, reproducer
from dynadiag.reduce.reproducer.proving import prove
from dynadiag.torch_compat.dynamo.backend import OptionFunction, describe_option, option_value
from dynadiag.torch_compat.dynamo.compiling import configured

WORD = "relu"


def refuses_relu(graph):
    """A pass of the user's, with a bug."""
    if any(WORD in str(node.target) for node in graph.nodes):
        raise ValueError("this pass cannot take relu")


class Compiling:
    compiler_fn = staticmethod(torch._dynamo.lookup_backend("eager"))


def capture(gm, folder, function):
    for node in gm.graph.nodes:
        node.meta["example_value"] = torch.ones(3)
    with torch._inductor.config.patch(joint_custom_pre_pass=function):
        GraphWatch(str(folder), graph=0, call=0)._before_compile(0, Compiling, gm, [torch.ones(3)])
    return load_capture(folder / "graph-0")


def test_an_option_of_any_kind_is_described_or_named_as_lost():
    assert describe_option(torch.nn.functional.relu) == {"dynadiag_function": "relu", "module": "torch.nn.functional"}
    assert describe_option(refuses_relu)["source"].startswith("WORD = 'relu'\n\n\ndef refuses_relu")
    assert describe_option((1, "a", [True])) == [1, "a", [True]]
    assert [describe_option(one) for one in (object(), {1, 2}, lambda graph: operator.add, [object()])] == [None] * 4


def test_a_function_of_torch_comes_back_by_its_name():
    made = option_value({"dynadiag_function": "relu", "module": "torch.nn.functional"})
    assert made.function is torch.nn.functional.relu and repr(made) == "torch.nn.functional.relu"
    for bad in (
        {"dynadiag_function": "system", "module": "os"},
        {"dynadiag_function": "gone", "module": "torch"},
        {},
        {"dynadiag_function": 3},
    ):
        with pytest.raises(ValueError, match="no"):
            option_value(bad)


def test_what_cannot_be_set_is_one_line(tmp_path):
    (tmp_path / "graph.txt").write_text("class GraphModule:\n    def forward(self):\n        return ()\n")
    option = ["inductor.joint_custom_pre_pass", {"dynadiag_function": "system", "module": "os"}]
    (tmp_path / "setting.json").write_text(json.dumps({"backend": "eager", "configs": [option]}))
    with pytest.raises(UnreadableInputError, match="does not name a torch function"):
        load_capture(tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_failure_in_a_function_of_the_script_is_shown_by_one_file(tmp_path):
    """The pass runs before any code is generated: no C++ compiler is started."""
    gm = torch.fx.symbolic_trace(lambda x: (torch.sin(torch.relu(torch.cos(x))),))
    captured, _ = capture(gm, tmp_path, refuses_relu)
    assert [name for name, value in captured.configs if isinstance(value, OptionFunction)] == ["inductor.joint_custom_pre_pass"]
    with configured(captured.configs):
        assert torch._inductor.config.joint_custom_pre_pass.__name__ == "refuses_relu"
    setting = Setting(backend="inductor", grad=False)
    seen = observe_isolated(captured, setting, timeout_s=600.0)
    assert (seen.failure.phase, seen.failure.message) == ("compile", "this pass cannot take relu")
    source = reproducer(captured, setting, Header(failure=seen.failure, made_by="test", versions="", story=""))
    assert "def refuses_relu" in source and "config.joint_custom_pre_pass = refuses_relu" in source and "dynadiag" not in source
    assert prove(source, seen.failure, timeout_s=600.0, runs=1).holds


def test_what_was_not_captured_is_named_when_the_graph_does_not_fail(tmp_path):
    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x),))
    _, setting = capture(gm, tmp_path, lambda graph: graph)
    assert setting.lost_options == ("inductor.joint_custom_pre_pass",)
    with pytest.raises(Exception, match=r"not captured: the options inductor\.joint_custom_pre_pass"):
        reduce_graph(candidate_of(gm, [torch.ones(3)]), setting, ReductionOptions(timeout_s=600))
    assert Candidate(gm, (), (("a", OptionFunction("f")),)).text.endswith("a=f")
