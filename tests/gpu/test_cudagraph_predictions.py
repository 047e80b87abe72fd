"""Predicted and seen CUDA-graph skips agree: predicted from a recording with aot_eager, seen with mode="reduce-overhead"."""

import importlib.util
from pathlib import Path

import pytest
import torch

import dynadiag
from dynadiag.passes.find_mutations import find_mutations
from dynadiag.trace import load

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", zeros())
        self.t = zeros()
        self.w = torch.nn.Parameter(ones())


class Plain:
    def __init__(self):
        self.t = zeros()


def zeros():
    return torch.zeros(4, device="cuda")


def ones():
    return torch.ones(4, device="cuda")


def leaf():
    return torch.ones(4, device="cuda", requires_grad=True)


def marked():
    cache = zeros()
    torch._dynamo.mark_static_address(cache)
    return cache


def optimizer():
    weight = torch.nn.Parameter(ones())
    weight.grad = ones()
    return torch.optim.AdamW([weight], capturable=True, foreach=True)


def buffer(m, x):
    m.b.add_(x)
    return m.b * 2


def attribute(m, x):
    m.t.add_(x)
    return m.t * 2


def argument(c, x):
    c.add_(x)
    return c * 2


def in_place(v, x):
    v.mul_(2)
    return (v * x).sum()


def through_data(v, x):
    v.data.mul_(2)
    return (v * x).sum()


def parameter_data(m, x):
    m.w.data.mul_(2)
    return (m.w * x).sum()


def under_no_grad(v, x):
    with torch.no_grad():
        v.mul_(2)
    return (v * x).sum()


def new_storage(v, x):
    v.data = x * 2
    return v + 1


def behind_break(v, x):
    y = v * 2
    torch._dynamo.graph_break()
    y.relu_()
    return y + x


def step(opt, _x):
    opt.step()


# name: function, first argument, whether it is called under no_grad
CASES = {
    "buffer": (buffer, Holder, False),
    "module attribute": (attribute, Holder, False),
    "object attribute": (attribute, Plain, False),
    "plain argument": (argument, zeros, False),
    "static address": (argument, marked, False),
    "requires grad": (in_place, lambda: leaf().clone(), False),
    "requires grad, called under no_grad": (in_place, lambda: leaf().clone(), True),
    ".data of an argument": (through_data, leaf, False),
    ".data of an argument, called under no_grad": (through_data, leaf, True),
    ".data of a parameter": (parameter_data, Holder, False),
    "leaf under no_grad": (under_no_grad, leaf, False),
    "new storage": (new_storage, ones, False),
    "behind a graph break": (behind_break, ones, False),
    "optimizer": (step, optimizer, False),
}


def predicted(function, make, no_grad, folder):
    """Whether the report predicts a skip, and whether it does so without a condition."""
    torch._dynamo.reset()
    with dynadiag.observe(folder), torch.set_grad_enabled(not no_grad):
        torch.compile(function, backend="aot_eager")(make(), ones())
    file = Path(dynadiag.__file__).parent / "fx" / "probe_main.py"
    spec = importlib.util.spec_from_file_location("probe_main", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main([str(folder)])
    effects = [effect for one in find_mutations(load(folder)).mutations for effect in one.effects]
    return any(effect["kind"] == "cudagraph_skip" and "condition" not in effect for effect in effects)


def seen(function, make, no_grad):
    """Whether torch skipped a CUDA graph."""
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    compiled, first = torch.compile(function, mode="reduce-overhead"), make()
    with torch.set_grad_enabled(not no_grad):
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            compiled(first, ones())
    return counters["inductor"]["cudagraph_skips"] > 0


@pytest.mark.parametrize("name", CASES)
def test_prediction(name, tmp_path):
    function, make, no_grad = CASES[name]
    assert predicted(function, make, no_grad, tmp_path / "run") == seen(function, make, no_grad)
