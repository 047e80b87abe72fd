"""The ATen level and the guilty part: what is lowered, which level is kept, and that only what cures every time is named.

The cases run in one process of their own, as the verb's worker is one: autograd refuses a fork of a process that has run a backward.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from dynadiag.reduce.graphs import levels
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.guilty_part import Suspected, bisect, find_guilty_layer
from dynadiag.reduce.graphs.judge import Observation
from dynadiag.reduce.graphs.levels import descend, lower, reduce_captured_graph
from dynadiag.reduce.graphs.reduction import ReductionOptions, reduce_graph
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.reproducer.graph_file import Header, reproducer
from dynadiag.torch_compat.dynamo.compiling import warm_up

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
ATEN = torch.ops.aten


def plain(gm, inputs):
    return make_boxed_func(gm.forward)


def refuses_tanh_backward(gm, inputs):
    if any(node.target is ATEN.tanh_backward.default for node in gm.graph.nodes):
        raise ValueError("cannot compile tanh_backward")
    return plain(gm, inputs)


def fault_in_the_backward_only(gm, inputs):
    return aot_autograd(fw_compiler=plain, bw_compiler=refuses_tanh_backward, inference_compiler=refuses_tanh_backward)(gm, inputs)


def refuses_relu(gm, inputs):
    if any(node.target is torch.nn.functional.relu for node in gm.graph.nodes):
        raise ValueError("cannot compile relu")
    return gm.forward


def miscompiles_rsqrt(gm, inputs):
    for node in gm.graph.nodes:
        if node.target is ATEN.rsqrt.default:
            node.target = ATEN.sqrt.default
    gm.recompile()
    return plain(gm, inputs)


def fault_below_a_decomposition(gm, inputs):
    table = torch._decomp.get_decompositions([ATEN.native_layer_norm])
    return aot_autograd(fw_compiler=miscompiles_rsqrt, decompositions=table)(gm, inputs)


def sin_becomes_cos(graph):
    for node in graph.nodes:
        if node.target is ATEN.sin.default:
            node.target = ATEN.cos.default


def has_two_passes(gm, inputs):
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    GraphTransformObserver(gm, "a_right_pass", "post_grad_passes").apply_graph_pass(lambda graph: None)
    GraphTransformObserver(gm, "a_wrong_pass", "post_grad_passes").apply_graph_pass(sin_becomes_cos)
    gm.recompile()
    return plain(gm, inputs)


def fault_in_a_pass(gm, inputs):
    return aot_autograd(fw_compiler=has_two_passes)(gm, inputs)


def reduced(function, inputs, **setting):
    made = Setting(**setting)
    found = reduce_graph(candidate_of(torch.fx.symbolic_trace(function), inputs), made, ReductionOptions(timeout_s=600, simplify=False))
    layer = find_guilty_layer(found.best, made, found.confirmed.failure, timeout_s=600)
    return found, layer


def told(found, layer, level="auto", **reducing):
    descent = descend(found, layer, ReductionOptions(timeout_s=600, simplify=False, **reducing), level)
    kept = descent.found
    return {
        "before": [str(node.target) for node in found.best.module.graph.nodes if node.op.startswith("call")],
        "layer": layer.layer,
        "why": descent.why,
        "after": None if kept is None else [str(node.target) for node in kept.best.module.graph.nodes if node.op.startswith("call")],
        "kinds": None if kept is None else [kept.asked.kind, kept.confirmed.failure.kind],
        "original": None if kept is None else kept.original is found.original,
        "queries": [sum(found.queries.values()), sum((kept or descent.spent).queries.values())],
    }


def guilty(candidate, **setting):
    found = bisect(Suspected(candidate=candidate, setting=Setting(**setting), timeout_s=600))
    return [cure.claim() for cure in found.cures]


def a_fault_in_the_backward_only():
    found, layer = reduced(
        lambda x, w: torch.sigmoid(torch.tanh(torch.sigmoid(x @ w)) @ w),
        [torch.randn(4, 8, requires_grad=True), torch.randn(8, 8)],
        backend=fault_in_the_backward_only,
        backward=True,
    )
    return told(found, layer) | {"refused": told(found, layer, "dynamo")["why"]}


def a_fault_below_a_decomposition():
    inputs = [torch.rand(3, 8)]
    made = {"backend": fault_below_a_decomposition, "check": "forward"}
    found, layer = reduced(lambda x: torch.nn.functional.layer_norm(torch.sin(x), (8,)) + 1, inputs, **made)
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "journal-aot.jsonl"
        other.write_text('{"journal": 1, "subject": "another graph"}\n')
        told_of = told(found, layer, journal=Path(folder) / "journal.jsonl", resume=True)
        return told_of | {"journal": len(other.read_text().splitlines())}


def a_wrong_decomposition():
    from torch._inductor import decomposition

    decomposition.decompositions[ATEN.gelu.default] = lambda x, approximate="none": torch.relu(x)
    decomposition.fast_random_decomps.cache_clear()
    made = {"backend": "aot_eager_decomp_partition", "check": "forward"}
    found, layer = reduced(lambda x: torch.nn.functional.gelu(torch.tanh(x)), [torch.randn(3, 4)], **made)
    return told(found, layer) | {"guilty": guilty(found.best, **made)}


def a_wrong_pass():
    candidate = candidate_of(torch.fx.symbolic_trace(lambda x: torch.sin(x)), [torch.randn(4)])
    return {"guilty": guilty(candidate, backend=fault_in_a_pass, check="forward")}


def a_fault_that_nothing_cures():
    candidate = candidate_of(torch.fx.symbolic_trace(lambda x: torch.relu(x)), [torch.randn(4)])
    return {"guilty": guilty(candidate, backend="relu_accuracy_error_TESTING_ONLY", check="forward")}


def a_write_in_place_without_gradients():
    def writes(x, w):
        return torch.nn.functional.relu(torch.sin(x) @ w, inplace=True) @ w

    found, _ = reduced(writes, [torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)], backend=refuses_relu, grad=False)
    return {"before": [node.name for node in found.best.module.graph.nodes if node.op.startswith("call")], "complete": found.complete}


def inputs_of_a_training_graph():
    def aliased(base):
        base.mul_(2)
        return (torch.tanh(base) * base).sum()

    base = torch.randn(2, 3, requires_grad=True)
    made = Setting(backend="aot_eager", backward=True)
    lowering = lower(candidate_of(torch.fx.symbolic_trace(lambda x: aliased(x * 1)), [base]), made, timeout_s=6000)
    inputs = {graph.kind: [graph.why_not, len(graph.candidate.inputs)] for graph in lowering.graphs}
    return inputs | {"operators": lowering.operators, "why_not": lowering.why_not}


def refuses(*args, **kwargs):
    raise ValueError("no lowering today")


@contextlib.contextmanager
def without_lowering(target):
    from torch._inductor.lowering import lowerings

    before = lowerings.pop(target, None)
    lowerings[target] = refuses
    try:
        yield
    finally:
        del lowerings[target]
        lowerings.update({} if before is None else {target: before})


def fails_when_run(source):
    try:
        exec(compile(source, "repro_min.py", "exec"), {"__name__": "repro"})
    except Exception as error:
        return str(error)
    return "it passes"


def a_captured_aten_graph_that_only_the_inner_compiler_refuses():
    """`aten.t` is gone when AOTAutograd has taken the graph again; what is left needs no C++."""
    graph = torch.fx.symbolic_trace(lambda x, w: (ATEN.mm.default(x, ATEN.t.default(ATEN.mm.default(w, w))),))
    made = Setting(backend="inductor", options={"max_autotune": False})
    with without_lowering(ATEN.t.default):
        inputs = [torch.randn(2, 3), torch.randn(3, 3)]
        found = reduce_captured_graph(candidate_of(graph, inputs), made, ReductionOptions(timeout_s=600, simplify=False))
        layer = find_guilty_layer(found.best, found.setting, found.confirmed.failure, timeout_s=600)
        source = reproducer(found.best, found.setting, Header(failure=found.confirmed.failure, made_by="", versions="", story=""))
        return told(found, layer) | {"source": source, "said": fails_when_run(source), "steps": dict(layer.steps)}


def a_lowered_graph_that_only_the_inner_compiler_refuses():
    """As if `torch.compile` left another graph of the ATen graph."""
    asked = levels.observe_isolated

    def passes_outside(candidate, setting, *, timeout_s):
        return asked(candidate, setting, timeout_s=timeout_s) if setting.inner else Observation()

    with without_lowering(ATEN.mm.default):
        found, layer = reduced(lambda x, w: torch.mm(x, w), [torch.randn(2, 3), torch.randn(3, 3)], backend="inductor", grad=False)
        levels.observe_isolated = passes_outside
        try:
            return told(found, layer, "aot")
        finally:
            levels.observe_isolated = asked


CASES = (
    a_fault_in_the_backward_only,
    a_fault_below_a_decomposition,
    a_wrong_decomposition,
    a_wrong_pass,
    a_fault_that_nothing_cures,
    a_write_in_place_without_gradients,
    inputs_of_a_training_graph,
    a_captured_aten_graph_that_only_the_inner_compiler_refuses,
    a_lowered_graph_that_only_the_inner_compiler_refuses,
)


@pytest.fixture(scope="module")
def results():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_fault_in_the_backward_ends_as_one_operator_of_its_graph(results):
    found = results["a_fault_in_the_backward_only"]
    assert found["before"] == ["<built-in method tanh of type object>"] or "tanh" in found["before"][0]
    assert found["after"] == ["aten.tanh_backward.default"] and found["original"]
    assert found["kinds"] == ["runtime_error", "compile_error"]
    assert found["why"].startswith("the backward graph fails on its own") and found["queries"][1] > found["queries"][0]
    assert found["refused"] == "asked for with --level dynamo"


def test_a_fault_below_a_decomposition_ends_as_the_one_operator_that_it_became(results):
    found = results["a_fault_below_a_decomposition"]
    assert len(found["before"]) == 1 and "layer_norm" in found["before"][0]
    assert found["journal"] > 1  # the journal of another graph was begun anew
    assert found["after"] == ["aten.rsqrt.default"] and found["layer"] == "fault_below_a_decomposition"


def test_a_wrong_decomposition_is_named_and_no_aten_graph_is_looked_for(results):
    found = results["a_wrong_decomposition"]
    assert found["layer"] == "decompositions" and found["after"] is None
    assert found["why"] == "the failure is above ATen, in the layer decompositions"
    assert found["guilty"] == ["the failure is gone without the decomposition of aten.gelu.default: run 3 of 3"]


def test_the_wrong_one_of_two_passes_is_named_with_the_option_that_leaves_it_out(results):
    part, option = results["a_wrong_pass"]["guilty"]
    assert part == "the failure is gone without the pass a_wrong_pass of inductor's post_grad_passes: run 3 of 3"
    assert option == "the failure is gone with `torch._inductor.config.disabled_passes = 'a_wrong_pass'`: run 3 of 3"


def test_nothing_is_named_where_nothing_cures(results):
    assert results["a_fault_that_nothing_cures"]["guilty"] == []


def test_a_value_that_is_written_in_place_becomes_an_input_that_may_be(results):
    assert results["a_write_in_place_without_gradients"] == {"before": ["relu"], "complete": True}


def test_a_training_graph_has_three_graphs_with_inputs_of_their_own(results):
    found = results["inputs_of_a_training_graph"]
    assert found["why_not"] is None
    assert {kind: found[kind][0] for kind in ("forward", "backward", "joint")} == {"forward": None, "backward": None, "joint": None}
    assert found["joint"][1] == 2 and found["operators"] >= 5


def test_an_aten_graph_that_passes_through_torch_compile_is_given_to_the_inner_compiler(results):
    found = results["a_captured_aten_graph_that_only_the_inner_compiler_refuses"]
    assert found["before"] == ["aten.t.default"] and found["layer"] == "inductor"
    assert found["why"] == "the captured graph is an ATen graph in Inductor's inner compiler"
    assert found["steps"] == {"eager": "passes", "aot_eager": "passes", "aot_eager_decomp_partition": "passes", "inductor": "fails"}
    assert "compile_fx_inner(graph, list(inputs))" in found["source"] and "'max_autotune': False" in found["source"]
    assert "no lowering today" in found["said"]


def test_a_lowered_graph_that_passes_through_torch_compile_is_given_to_the_inner_compiler(results):
    found = results["a_lowered_graph_that_only_the_inner_compiler_refuses"]
    assert found["after"] == ["aten.mm.default"] and found["original"]
    assert found["why"].startswith("the inference graph fails on its own in Inductor's inner compiler")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warm_up("aot_eager_decomp_partition")
    print(json.dumps({case.__name__: case() for case in CASES}))
