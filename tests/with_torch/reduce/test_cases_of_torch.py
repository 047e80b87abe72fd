"""What the tests of torch's own minifier ask for, family by family, asked of ours: test_minifier of functorch, Dynamo and inductor,
test_after_aot (those of whole scripts, saved storages, symbolic sizes, what a script's class holds and process groups stand in
test_minify_script, test_torch_repros and test_torch_repro_classes).
"""

from __future__ import annotations

import os

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import dynadiag
from dynadiag.capture.graph_watch import GraphWatch, save_graph_files
from dynadiag.errors import NothingFoundError
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.candidate import Candidate, candidate_of
from dynadiag.reduce.graphs.inputs import TensorInput
from dynadiag.reduce.graphs.judge import observe_isolated
from dynadiag.reduce.graphs.loading import load_capture
from dynadiag.reduce.graphs.reduction import ReductionOptions, reduce_graph
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.reproducer.graph_file import Header, reproducer
from dynadiag.reduce.reproducer.proving import run_fresh

ATEN = torch.ops.aten
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
HEADER = Header(failure=Failure(kind="compile_error", phase="compile"), made_by="test", versions="", story="")


def operators(gm):
    return [node.target for node in gm.graph.nodes if node.op.startswith("call")]


# -- functorch: any oracle


def test_one_operator_of_two_inputs_is_left_alone():
    def f(x, y):
        y = y / 3
        x = (x + 3) * y
        return x + y

    gm = make_fx(f)(torch.randn(3), torch.randn(3))
    found = dynadiag.minify(gm, [torch.randn(3), torch.randn(3)], oracle=lambda g, i: ATEN.mul.Tensor in operators(g))
    assert operators(found.graph_module) == [ATEN.mul.Tensor] and len(found.graph_module.graph.nodes) <= 4


@pytest.mark.parametrize("as_module", [False, True])
def test_the_operator_that_makes_nan_is_found_by_its_results(as_module):
    class Makes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = torch.nn.ReLU()

        def forward(self, x):
            y = self.relu(x) if as_module else torch.cos(x * 3 + 5)
            zero = y - y
            return (zero / zero + 3) * 2

    def makes_nan(gm, inputs):
        if any(torch.isnan(one).any() for one in inputs):
            return False
        result = gm(*inputs)
        return bool(torch.isnan(result[0] if isinstance(result, tuple) else result).any())

    gm = torch.fx.symbolic_trace(Makes()) if as_module else make_fx(Makes())(torch.randn(3))
    found = dynadiag.minify(gm, [torch.randn(3)], oracle=makes_nan)
    assert len(found.graph_module.graph.nodes) == 3 and len(found.inputs) == 1


def test_an_input_that_is_returned_as_it_is_needs_no_operator():
    def f(a, b, c):
        a, c = a.sin(), c.cos()
        return a, b, c, a * c

    def returns_an_input(gm, inputs):
        (output,) = [node for node in gm.graph.nodes if node.op == "output"]
        return any(node.op == "placeholder" for node in output.all_input_nodes)

    gm = make_fx(f)(*[torch.randn(3) for _ in range(3)])
    found = dynadiag.minify(gm, [torch.randn(3) for _ in range(3)], oracle=returns_an_input)
    assert [node.op for node in found.graph_module.graph.nodes] == ["placeholder", "output"]


def test_what_uses_a_tuple_is_cut_from_it():
    gm = make_fx(lambda a, b: (torch.std_mean(a)[0] + b * torch.std_mean(a)[1],))(torch.randn(3), torch.randn(3))
    found = dynadiag.minify(gm, [torch.randn(3), torch.randn(3)], oracle=lambda g, i: ATEN.add.Tensor in operators(g))
    assert operators(found.graph_module) == [ATEN.add.Tensor] and len(found.graph_module.graph.nodes) <= 4


def test_the_number_of_a_gpu_is_kept():
    one = TensorInput(shape=(2, 3), stride=(3, 1), dtype=torch.float32, device="cuda:7", requires_grad=False, fill="zeros")
    gm = torch.fx.symbolic_trace(lambda x: (x + 1,))
    assert "torch.zeros(2, 3).to('cuda:7')" in reproducer(Candidate(gm, (one,)), Setting(backend="eager"), HEADER)


# -- Dynamo


class Compiling:
    compiler_fn = staticmethod(torch._dynamo.lookup_backend("eager"))


@needs_fork
def test_an_input_that_is_no_leaf_stays_none(tmp_path):
    gm = torch.fx.symbolic_trace(lambda x: (torch.cos(x + 1),))
    value = torch.randn(4, requires_grad=True) + 1
    for node in gm.graph.nodes:
        node.meta["example_value"] = value.detach()
    GraphWatch(str(tmp_path), graph=0, call=0)._before_compile(0, Compiling, gm, [value])
    captured, _ = load_capture(tmp_path / "graph-0")
    assert not captured.inputs[0].leaf and candidate_of(gm, [value]).inputs[0].leaf is False
    setting = Setting(backend="non_leaf_compile_error_TESTING_ONLY")
    found = reduce_graph(captured, setting, ReductionOptions(timeout_s=600))
    assert found.best.nodes == 3 and not found.best.inputs[0].leaf
    assert found.confirmed.failure.exceptions[-1].endswith("TestingOnlyCompileError")
    source = reproducer(found.best, setting, HEADER)
    assert ".requires_grad_().clone()" in source
    status, output = run_fresh(source, timeout_s=600.0)
    assert status == 1 and "TestingOnlyCompileError" in output


@needs_fork
@pytest.mark.parametrize("kind", ["compile", "runtime", "accuracy"])
def test_faulty_backends_pass_without_their_operator(kind):
    gm = torch.fx.symbolic_trace(lambda x: (torch.cos(torch.sin(x)),))
    setting = Setting(backend=f"relu_{kind}_error_TESTING_ONLY", check="forward" if kind == "accuracy" else "raises")
    with pytest.raises(NothingFoundError, match="does not fail on its own"):
        reduce_graph(candidate_of(gm, [torch.randn(4)]), setting, ReductionOptions(timeout_s=600))


@needs_fork
def test_a_constant_in_the_graph_is_no_obstacle(tmp_path):
    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x),))
    (x, relu, end) = gm.graph.nodes
    with gm.graph.inserting_before(end):
        constant = gm.graph.call_function(torch.tensor, (2,))
        total = gm.graph.call_function(torch.add, (constant, relu))
    end.args = ((total,),)
    gm.recompile()
    for node in gm.graph.nodes:
        node.meta["example_value"] = torch.tensor(2) if node is constant else torch.randn(3)
    save_graph_files(str(tmp_path), gm, [torch.randn(3)])
    (tmp_path / "setting.json").write_text('{"backend": "relu_accuracy_error_TESTING_ONLY", "configs": [], "check": "forward"}')
    captured, setting = load_capture(tmp_path)
    found = reduce_graph(captured, setting, ReductionOptions(timeout_s=600))
    assert operators(found.best.module) == [torch.relu] and found.confirmed.failure.kind == "wrong_result"


@needs_fork
def test_random_operators_and_two_results_stand_beside_the_fault():
    def f(x, y):
        one, two = x + torch.randn(4), y + torch.randn(4)
        return torch.relu(torch.sin(one) + torch.cos(two)), two

    setting = Setting(backend="relu_compile_error_TESTING_ONLY", grad=False)
    found = reduce_graph(
        candidate_of(torch.fx.symbolic_trace(f), [torch.randn(4), torch.randn(4)]), setting, ReductionOptions(timeout_s=600)
    )
    assert operators(found.best.module) == [torch.relu] and found.best.nodes == 3
    assert found.confirmed.failed == found.confirmed.of == 3


def test_a_graph_without_operators_stays_as_it_is():
    gm = torch.fx.symbolic_trace(lambda x, y: (x, y))
    found = dynadiag.minify(gm, [torch.randn(3), torch.randn(3)], oracle=lambda g, i: len(i) > 0)
    assert operators(found.graph_module) == [] and found.complete and len(found.inputs) == 1


# -- inductor: what is a wrong result


def in_float32(gm, inputs):
    """More exact than eager, as inductor is in half precision."""

    def call(*values):
        factor, x = sorted(values, key=float)
        return ((x.float() - factor.float() * 100).half(),)

    return call


@needs_fork
def test_a_result_that_is_more_exact_than_eager_is_not_wrong():
    gm = torch.fx.symbolic_trace(lambda x, factor: (x - factor * 100,))
    setting = Setting(backend=in_float32, check="forward", grad=False)
    inputs = [torch.tensor(655 * 100, dtype=torch.half), torch.tensor(655, dtype=torch.half)]
    seen = observe_isolated(candidate_of(gm, inputs), setting, timeout_s=600)
    assert seen.failure is None and seen.invalid is None


def doubled_relu_and_late_log(gm, inputs):
    """Two faults: relu is wrong by far, and log1p so little that only a comparison with it is seen to change."""
    for node in gm.graph.nodes:
        if node.target is torch.relu:
            node.target = doubled_relu
        if node.target is torch.log1p:
            node.target = late_log
    gm.recompile()
    return gm.forward


def doubled_relu(x):
    return torch.relu(x) * 2


def late_log(x):
    return torch.log1p(x) + 1e-7


@needs_fork
def test_a_wrong_number_does_not_end_as_a_turned_comparison():
    def f(x):
        b = torch.logical_not(torch.logical_not(torch.log1p(x) > 0))
        return (torch.where(b, torch.relu(x), torch.relu(x)),)

    inputs = [torch.cat((torch.zeros(4), torch.linspace(0.5, 2, 12)))]
    setting = Setting(backend=doubled_relu_and_late_log, check="forward", grad=False)
    found = reduce_graph(candidate_of(torch.fx.symbolic_trace(f), inputs), setting, ReductionOptions(timeout_s=600))
    assert torch.relu in operators(found.best.module) and torch.log1p not in operators(found.best.module)
    only = torch.fx.symbolic_trace(lambda x: (torch.log1p(x) > 0,))
    turned = observe_isolated(candidate_of(only, inputs), setting, timeout_s=600).failure
    assert turned.kind == "wrong_result" and not turned.same_as(found.confirmed.failure)


# -- after AOT


@needs_fork
def test_a_graph_that_only_writes_its_inputs_is_run_on_fresh_ones():
    def f(a, b):
        one, two = torch._foreach_add([a, b], 1)
        a.copy_(one)
        b.copy_(two)
        return ()

    gm = torch.fx.symbolic_trace(f)
    setting = Setting(backend="aot_eager", check="mutation", grad=False)
    seen = observe_isolated(candidate_of(gm, [torch.zeros(()), torch.ones(())]), setting, timeout_s=600)
    assert seen.failure is None and seen.invalid is None
