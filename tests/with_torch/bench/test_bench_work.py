"""Operations, bytes and what is kept for backward, beside what torch itself counts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dynadiag.bench.inside.loading import CompileSwitch
from dynadiag.bench.inside.steps import CallUnit, WholeStep
from dynadiag.bench.inside.work import saved_for_backward, step_work

pytestmark = pytest.mark.oldest


def unit(model, *arguments):
    model(*arguments)
    return CallUnit(original=model, function=model, arguments=arguments, compiled_by="bench")


def switch():
    made = CompileSwitch(arm="eager", overrides={})
    made.original = torch.compile
    return made


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.all = nn.Linear(16, 48)

    def forward(self, x):
        query, key, value = self.all(x).chunk(3, -1)
        return (query @ key.transpose(1, 2)).softmax(-1) @ value


class Broken(nn.Module):
    """Its graph breaks between two products."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4)), torch.randn(2, 3, 9, 9)


MODELS = {
    "perceptron": lambda: (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)), torch.randn(4, 16)),
    "convolutions": convolutions,
    "transposed": lambda: (nn.ConvTranspose1d(4, 6, 3, stride=2), torch.randn(2, 4, 10)),
    "attention": lambda: (Attention(), torch.randn(2, 8, 16)),
    "encoder layer": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), torch.randn(2, 8, 16)),
    "embedding": lambda: (nn.Sequential(nn.Embedding(10, 8), nn.LayerNorm(8), nn.Linear(8, 10)), torch.randint(0, 10, (3, 5))),
    "batched products": lambda: (lambda x: torch.baddbmm(x, x, x).sin() @ x, torch.randn(3, 4, 4)),
    "a graph break": lambda: (Broken(), torch.randn(4, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_graphs_compute_what_eager_computes(name):
    torch.compiler.reset()
    work = step_work(unit(*MODELS[name]()), switch())
    assert work["graph_flops"] == work["eager_flops"] > 0
    assert all(graph["bytes"] > 0 and graph["runs"] == 1 for graph in work["graphs"])


def test_the_fused_layer_of_inference_is_counted():
    torch.compiler.reset()
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).eval()
    with torch.no_grad():
        work = step_work(unit(layer, torch.randn(2, 8, 16)), switch())
    assert work["graph_flops"] == work["eager_flops"] > 0
    assert torch.backends.mha.get_fastpath_enabled()


def test_bytes_are_distinct_inputs_and_outputs():
    torch.compiler.reset()
    model = nn.Linear(16, 32, bias=False)
    forward, backward = step_work(unit(model, torch.randn(4, 16)), switch())["graphs"]
    x, weight, out = 4 * 4 * 16, 4 * 16 * 32, 4 * 4 * 32
    assert forward["flops"] == {"float32": 2 * 4 * 16 * 32}
    assert forward["bytes"] == x + weight + out
    assert backward["bytes"] == x + out + weight, "the input, the cotangent, and the gradient of the weight"


def test_what_is_kept_for_backward_leaves_out_parameters_and_inputs():
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
    kept = saved_for_backward(unit(model, torch.randn(4, 16)))
    assert kept["saved_bytes"] == 2 * 4 * 4 * 32, "before and after the activation"
    assert kept["saved"] == [{"shape": [4, 32], "dtype": "float32", "count": 2, "bytes": 2 * 4 * 4 * 32}]
    with torch.no_grad():
        assert saved_for_backward(unit(model, torch.randn(4, 16)))["saved_bytes"] == 0


def accumulating():
    """A step with several backwards, in a loop whose frame Dynamo leaves: only what it calls is compiled."""
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
    forward = torch.compile(model)
    batches = [torch.randn(4, 16) for _ in range(5)]

    def step():
        for batch in batches:
            forward(batch).square().mean().backward()

    step()
    return WholeStep(original=step, function=step, arguments=(), compiled_by="program")


def test_a_module_that_the_program_compiles_is_counted_where_its_step_breaks():
    torch.compiler.reset()
    installed = CompileSwitch(arm="eager", overrides={})
    installed.install()
    work = step_work(accumulating(), installed)
    assert work["graph_flops"] == work["eager_flops"] == 5 * 2 * 4 * (2 * 16 * 32 + 3 * 32 * 8)


def test_several_backwards_keep_what_is_there_at_one_time():
    CompileSwitch(arm="eager", overrides={}).install()
    kept = saved_for_backward(accumulating())
    one_batch = 2 * 4 * 4 * 32 + 4 * 4 * 8
    assert kept["saved_bytes"] == sum(item["bytes"] for item in kept["saved"]) == one_batch
