"""One graph examined in this process: equal, rounding or a fault, at which operator, and what ends it."""

import contextlib
from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch._inductor import decomposition, lowering

from dynadiag.numerics.aten_graphs import INPUT_SOURCE, input_name
from dynadiag.numerics.examination import examine
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.loading import recipes
from dynadiag.reduce.graphs.setting import Setting

aten = torch.ops.aten
CASTS = "torch._inductor.config.emulate_precision_casts = True"


def examined(program, *inputs, backend="inductor", plant=contextlib.nullcontext, later=()):
    """What is said of the program's one graph; `later` are the inputs of its further calls."""
    found = []

    def keep(module, values):
        found.append(candidate_of(module, list(values)))
        return module.forward

    torch._dynamo.reset()
    torch.compile(program, backend=keep, fullgraph=True)(*inputs)
    grad = any(value.requires_grad for value in inputs)
    calls = [(call, replace(found[0], inputs=tuple(recipes(values, "input")))) for call, values in enumerate(later, 2)]
    with plant():
        return examine(found[0], Setting(backend=backend, grad=grad), calls)


def normal(*shape, dtype=torch.float32, grad=False):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_(grad)


def gate(x, w):
    s = torch.sigmoid(x @ w)
    y = s * x
    return y + s


def test_bfloat16_that_is_kept_in_float32_is_rounding_and_one_option_proves_it():
    entry = examined(gate, normal(16, 64, dtype=torch.bfloat16), normal(64, 64, dtype=torch.bfloat16))
    assert entry["status"] == entry["outcome"] == "rounding"
    assert {layer["outcome"] for layer in entry["layers"]} == {"equal"}
    assert entry["operator"]["operator"] in ("aten.mul", "aten.add")
    assert entry["operator"]["line"]["code"] in ("y = s * x", "return y + s")
    assert entry["operator"]["kernel"]["language"] == "C++"
    assert CASTS in entry["options_tried"]
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15):  # on 2.11 the option leaves C++ kernels as they are
        assert [item["line"] for item in entry["ended_by"]] == [CASTS]
    assert all(row["fault"] is None for row in entry["operators"])


def halved(x, w):
    h = x @ w
    e = torch.exp(h * 0.1)
    return e / (1.0 + h.abs())


def slightly_too_large(right):
    return lambda x: lowering.lowerings[aten.mul.Tensor](right(x), 1.0005)


def with_wrong_exp():
    return mock.patch.dict(lowering.lowerings, {aten.exp.default: slightly_too_large(lowering.lowerings[aten.exp.default])})


def test_a_wrong_lowering_is_a_fault_of_its_operator_and_not_of_those_behind_it():
    entry = examined(halved, normal(8, 16), normal(16, 24), plant=with_wrong_exp)
    assert entry["status"] == "fault"
    assert (entry["operator"]["operator"], entry["operator"]["line"]["code"]) == ("aten.exp", "e = torch.exp(h * 0.1)")
    assert [row["operator"] for row in entry["operators"] if row["fault"]] == ["aten.exp"]
    assert entry["eager_kernels"] == [{"operator": "aten.exp.default", "decomposed": False}]


@contextlib.contextmanager
def with_wrong_tanh_backward():
    wrong = {aten.tanh_backward.default: lambda gradient, y: gradient * (1 - y)}
    with mock.patch.dict(decomposition.decompositions, wrong):
        decomposition.fast_random_decomps.cache_clear()
        yield
    decomposition.fast_random_decomps.cache_clear()


def test_a_wrong_derivative_is_found_in_the_backward():
    def loss(x, w):
        t = torch.tanh(x @ w)
        return (t * x).sum()

    entry = examined(loss, normal(8, 8, grad=True), normal(8, 8, grad=True), plant=with_wrong_tanh_backward)
    assert entry["status"] == "fault"
    assert (entry["operator"]["operator"], entry["operator"]["graph"]) == ("aten.tanh_backward", "backward")
    assert entry["operator"]["line"]["code"] == "t = torch.tanh(x @ w)"
    assert [item["decomposed"] for item in entry["eager_kernels"]] == [True]


def wrong_when_not_seen(module, inputs):
    """Wrong only while the graph returns one value: storing another ends it."""
    (end,) = (node for node in module.graph.nodes if node.op == "output")
    return module.forward if len(end.args[0]) > 1 else lambda *values: tuple(value + 0.5 for value in module.forward(*values))


def test_a_difference_that_ends_when_values_are_stored_belongs_to_a_fusion():
    entry = examined(halved, normal(8, 16), normal(16, 24), backend=wrong_when_not_seen)
    assert entry["status"] == "fault"
    assert entry["operator"]["fusion"]
    assert entry["operator"]["fault"] == "the difference ends when its value is stored"


def wrong_for_large(module, inputs):
    """Wrong in calls with large values."""
    return lambda *values: tuple(value + 0.5 * (values[0].max() > 8) for value in module.forward(*values))


def test_the_first_call_that_differs_is_examined():
    later = [(normal(4, 4) + shift,) for shift in (1, 20, 30)]
    entry = examined(lambda x: x.sin() * 2, normal(4, 4), backend=wrong_for_large, later=later)
    assert entry["calls"] == [{"call": call, "outcome": "different" if call > 2 else "equal"} for call in (1, 2, 3, 4)]
    assert (entry["call"], entry["status"], entry["outputs"][0]["largest"]) == (3, "fault", pytest.approx(0.5, abs=1e-6))


def test_results_that_are_equal_to_the_bit_cost_no_more_than_the_comparison():
    entry = examined(lambda x: x * 2 + 1, normal(4, 4), backend="aot_eager")
    assert entry["status"] == "equal"
    assert entry["outputs"] == []
    assert "operators" not in entry


def test_other_random_numbers_are_no_fault():
    entry = examined(lambda x: torch.nn.functional.dropout(x, 0.5) + 1, normal(64, 8))
    assert entry["random"]
    assert entry["other_random_numbers"]
    assert entry["status"] == "equal"


calls = []


@torch.library.custom_op("dynadiag_tests::counts", mutates_args=())
def counts(x: torch.Tensor) -> torch.Tensor:
    """Another value each time."""
    calls.append(1)
    return x + len(calls)


counts.register_fake(torch.empty_like)


def test_a_program_that_is_not_deterministic_in_eager_is_not_compared_and_the_node_is_named():
    entry = examined(lambda x: counts(x * 2) + 1, normal(4))
    assert entry["status"] == "skipped"
    assert "eager itself gives other values in a second run: first at" in entry["why_not"]
    assert "counts" in entry["why_not"]


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 3.0), (torch.bfloat16, 3.0)])
def test_a_right_norm_is_no_fault(dtype, most):
    def norm(x, w):
        y = torch.nn.functional.layer_norm(x, (48,), w)
        return torch.softmax(y, -1).sum(0)

    entry = examined(norm, normal(32, 48, dtype=dtype), normal(48, dtype=dtype))
    assert entry["status"] in ("equal", "rounding")
    assert all(row["error"] <= most * row["rounding"] for row in entry.get("operators", ()) if row["error"] is not None)


def test_a_value_that_a_kernel_keeps_wider_than_it_stores_it_explains_what_an_exponential_makes_of_it():
    def steep(x, y):
        return (x / (y * y + 0.01)).expm1()

    x = torch.linspace(-0.8, 0.8, 480).reshape(12, 40).to(torch.bfloat16)
    entry = examined(steep, x, torch.zeros(40, dtype=torch.bfloat16) + 0.001)
    assert entry["status"] == "rounding"
    assert [row["fault"] for row in entry["operators"]] == [None] * len(entry["operators"])


def test_a_cast_that_the_compiler_drops_between_two_operators_is_no_fault():
    def loss(logits, scale):
        return torch.nn.functional.cross_entropy(logits * scale, torch.arange(logits.shape[0]) % logits.shape[1])

    entry = examined(loss, normal(12, 40, dtype=torch.bfloat16, grad=True), normal(40, dtype=torch.bfloat16))
    assert entry["status"] in ("rounding", "equal")
    assert all(row["fault"] is None for row in entry.get("operators", ()))


def test_inputs_are_named_as_the_program_does():
    node = torch.fx.Graph().placeholder("g_w_")
    assert input_name(node) == "g_w_"
    node.meta[INPUT_SOURCE] = "L['self']._modules['norm']._parameters['weight']"
    assert input_name(node) == "self.norm.weight"
