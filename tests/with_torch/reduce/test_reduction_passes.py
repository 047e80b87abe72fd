"""Each reduction pass: what it proposes from a small graph, and that proposals run."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import dynadiag
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.inputs import TensorInput, contiguous_stride, from_value, make_values
from dynadiag.reduce.graphs.passes import ALL_PASSES
from dynadiag.reduce.graphs.passes.shrink_bodies import shrink_bodies
from dynadiag.reduce.graphs.passes.shrink_dimensions import resized
from dynadiag.reduce.graphs.passes.surroundings import drop_configs


def minified(function, inputs, interesting, trace=torch.fx.symbolic_trace):
    found = dynadiag.minify(trace(function), list(inputs), oracle=lambda g, i: g(*i) is not NotImplemented and interesting(g, i))
    return found.graph_module, found.inputs


def targets(module):
    return [node.target for node in module.graph.nodes if node.op.startswith("call")]


def test_an_operator_between_two_needed_ones_is_bypassed():
    def needs_path(g, i):
        return any(n.target is torch.sinh and any(_reaches(s, torch.cosh) for s in n.all_input_nodes) for n in g.graph.nodes)

    module, _ = minified(lambda x: torch.sinh(torch.tanh(torch.relu(torch.cosh(x)))), [torch.randn(3)], needs_path)
    assert targets(module) == [torch.cosh, torch.sinh]


def _reaches(node, target):
    return node.target is target or any(_reaches(source, target) for source in node.all_input_nodes)


def shares(one, other):
    """Whether two tensors have an element in common."""
    memory = one.untyped_storage()
    places = [torch.arange(memory.nbytes() // x.itemsize).as_strided(x.shape, x.stride(), x.storage_offset()) for x in (one, other)]
    return memory.data_ptr() == other.untyped_storage().data_ptr() and bool(torch.isin(*places).any())


def parts(memory):
    return {
        "the same": (memory, memory),
        "halves that overlap": (memory.view(-1)[:40], memory.view(-1)[20:60]),
        "shifted by one": (memory.view(-1)[1:], memory.view(-1)[:-1]),
        "windows": (memory[1:9, 1:7], memory[0:8, 2:8]),
        "a transposed view": (memory[:8].t(), memory[:8].t()),
        "a row and the whole": (memory, memory[5]),
    }


@pytest.mark.parametrize("name", parts(torch.ones(9, 8)))
def test_sizes_shrink_where_a_failure_needs_shared_memory(name):
    one, other = parts(torch.randn(9, 8))[name]
    assert shares(one, other)

    def overlap(g, i):
        return torch.mul in targets(g) and len(i) == 3 and shares(i[0], i[1]) and min(i[0].shape) > 1

    gm = torch.fx.symbolic_trace(lambda x, y, z: (torch.mul(torch.sinh(x) + z, 2), torch.sinh(y)))
    found = dynadiag.minify(gm, [one, other, torch.randn(one.shape)], oracle=lambda g, i: g(*i) is not None and overlap(g, i))
    assert all(max(one.shape, default=1) <= 2 for one in found.inputs)


def test_memory_that_nothing_needs_to_share_is_parted_though_the_values_stay():
    memory = torch.arange(40.0)
    gm = torch.fx.symbolic_trace(lambda x, y: torch.mul(torch.sinh(x), torch.sinh(y)))
    found = dynadiag.minify(
        gm, [memory[:20], memory[10:30]], oracle=lambda g, i: torch.mul in targets(g) and len(i) == 2 and i[0][1] == 1 and i[1][1] == 11
    )
    assert [tuple(one.shape) for one in found.inputs] == [(2,), (2,)] and not shares(*found.inputs)


@pytest.mark.parametrize(
    "make", [lambda x: x[:, None, :].expand(6, 9, 8), lambda x: x.view(-1).unfold(0, 16, 4), lambda x: x.as_strided((12, 12), (1, 1))]
)
@pytest.mark.parametrize("data", [True, False])
def test_sizes_shrink_where_a_failure_needs_an_overlap_within_one_input(make, data):
    def needed(g, i):
        return len({*places_of(i[0])}) < i[0].numel() and (not data or {0.0, 1.0} <= set(i[0].flatten().tolist()))

    gm = torch.fx.symbolic_trace(lambda x: torch.sinh(x))
    found = dynadiag.minify(gm, [make(torch.arange(48.0).view(6, 8))], oracle=lambda g, i: g(*i) is not None and needed(g, i))
    assert max(found.inputs[0].shape) <= 2


def test_an_expanded_input_is_never_laid_out_whole():
    large = from_value(torch.arange(6.0)[:3, None].expand(3, 1 << 50), "x")
    shapes = [[tuple(one.shape), one.stride, len(one.data.untyped_storage())] for (one,) in resized([large], {0: (2, 1 << 49)})]
    assert shapes[0] == [(2, 1 << 49), (1, 0), 8] and shapes[-1] == [(2, 1 << 49), (1, 0), 24]
    wide = from_value(torch.zeros(1 << 23).as_strided((1 << 22, 1 << 22), (1, 1)), "y")
    assert [tuple(one.data.shape) for (one,) in resized([wide], {0: (1 << 22, 1 << 21)})] == [(1 << 22, 1 << 21)]


def places_of(x):
    return torch.arange(x.untyped_storage().nbytes() // x.itemsize).as_strided(x.shape, x.stride(), x.storage_offset()).reshape(-1).tolist()


def test_arguments_take_their_defaults_and_numbers_become_simple():
    module, _ = minified(lambda x: torch.add(torch.sum(x, dim=1, keepdim=True), 7, alpha=3), [torch.randn(3, 3)], has(torch.add))
    (node,) = [node for node in module.graph.nodes if node.target is torch.add]
    assert node.kwargs == {} and node.args[1] == 0


def has(target):
    return lambda g, i: target in targets(g)


def test_inputs_of_one_shape_become_one():
    module, inputs = minified(lambda a, b, c: torch.addcmul(a, b, c), [torch.randn(3) for _ in range(3)], has(torch.addcmul))
    assert len(inputs) == 1 and inputs[0].shape == ()


@pytest.mark.parametrize("least", [1, 2, 3, 5])
def test_sizes_shrink_as_far_as_the_failure_allows(least):
    def large_enough(g, i):
        return torch.matmul in targets(g) and all(min(one.shape) >= least for one in i)

    module, inputs = minified(lambda x, y: torch.matmul(x, y), [torch.randn(6, 48), torch.randn(48, 20)], large_enough)
    assert targets(module) == [torch.matmul]
    assert all(size == least for one in inputs for size in one.shape)


def test_sizes_in_arguments_shrink_with_the_inputs():
    def views(x):
        return torch.sinh(x).view(4, 6, 64).expand(4, 6, 64)

    module, inputs = minified(views, [torch.randn(4, 384)], lambda g, i: {"view", "expand"} <= set(targets(g)) and i[0].dim() == 2)
    assert max(max(one.shape) for one in inputs) <= 4


def test_sizes_of_parts_shrink_with_the_whole():
    def parts(x, w):
        first, second, _, _, _, _ = torch.matmul(x, w).split([10, 22, 8, 3, 5, 2], 1)
        return torch.cat([torch.sinh(second), first], 1)

    needed = {"split", torch.cat}
    inputs = [torch.randn(6, 20), torch.randn(20, 50)]
    module, inputs = minified(parts, inputs, lambda g, i: needed <= set(targets(g)) and len(split_of(g)[1]) > 1 and min(i[0].shape) > 1)
    assert max(max(one.shape) for one in inputs) <= 4, split_of(module)


def test_sizes_that_are_products_shrink_with_their_factors():
    module, inputs = minified(
        lambda x: torch.sinh(x).view(2, 4, 7, 4, 7, 12).permute(0, 1, 3, 2, 4, 5),
        [torch.randn(2, 28, 28, 12)],
        lambda g, i: {"view", "permute"} <= set(targets(g)) and min(g(*i).shape) > 1,
    )
    assert max(inputs[0].shape) == 4, module.code


def test_channels_shrink_in_input_and_weight_at_once():
    _, inputs = minified(
        lambda x, w: torch.conv2d(torch.sinh(x), w, None, 1, 0, 1, 4),
        [torch.randn(3, 16, 6, 6), torch.randn(8, 4, 3, 3)],
        lambda g, i: any(node.target is torch.conv2d and node.args[-1] == 4 for node in g.graph.nodes),
    )
    assert max(max(one.shape) for one in inputs) <= 4


def test_sizes_in_bodies_shrink_with_the_inputs():
    def branches(p, x):
        return torch.cond(p, lambda y: y.view(4, 12).sum(1), lambda y: y.view(4, 12).cosh().sum(1), (x,))

    gm = make_fx(branches, tracing_mode="real")(torch.tensor(True), torch.randn(48))
    found = dynadiag.minify(
        gm, [torch.tensor(True), torch.randn(48)], oracle=lambda g, i: g(*i) is not None and torch.ops.higher_order.cond in targets(g)
    )
    assert max(max(one.shape, default=1) for one in found.inputs) <= 4


def split_of(module):
    return next(node.args for node in module.graph.nodes if node.target == "split")


def test_data_dtype_and_strides_become_plain_unless_needed():
    x = torch.randn(4, 4, dtype=torch.float64).t()
    _, plain = minified(torch.sinh, [x], has(torch.sinh), lambda f: torch.fx.symbolic_trace(lambda y: f(y)))
    assert plain[0].dtype == torch.float32 and plain[0].is_contiguous() and not plain[0].any()
    trace = lambda f: torch.fx.symbolic_trace(lambda y: f(y))  # noqa: E731
    _, wide = minified(torch.sinh, [x], lambda g, i: i[0].dtype == torch.float64 and not i[0].is_contiguous(), trace)
    assert wide[0].dtype == torch.float64 and not wide[0].is_contiguous() and max(wide[0].shape) == 2
    _, random = minified(torch.sinh, [x], lambda g, i: i[0].unique().numel() > 3, trace)
    assert random[0].unique().numel() > 3


def test_gradients_and_numbers_as_inputs_go():
    gm = torch.fx.symbolic_trace(lambda x, n: torch.sinh(x) * n)
    found = dynadiag.minify(
        gm, [torch.randn(3, requires_grad=True), 5], oracle=lambda g, i: {torch.sinh} < set(targets(g)) and len(g(*i)) > 0
    )
    assert [type(one) for one in found.inputs] == [torch.Tensor] and not found.inputs[0].requires_grad


def test_random_indices_stay_in_their_table():
    gm = torch.fx.symbolic_trace(lambda t, i: torch.nn.functional.embedding(i, t))
    found = dynadiag.minify(
        gm, [torch.randn(50, 8), torch.randint(50, (7,))], oracle=lambda g, i: bool(i[1].any()) and len(i[1]) > 1 and g(*i) is not None
    )
    assert int(found.inputs[1].max()) < len(found.inputs[0]) <= 4


def test_bodies_of_higher_order_operators_are_inlined_or_shrunk():
    def branches(p, x):
        return torch.cond(p, lambda y: torch.sinh(torch.tanh(y)) + 1, lambda y: torch.cosh(y), (x,))

    # After another shape Dynamo passes sizes to the bodies as numbers.
    make_fx(branches, tracing_mode="real")(torch.tensor(True), torch.randn(4))
    gm = make_fx(branches, tracing_mode="real")(torch.tensor(True), torch.randn(3))
    assert any(type(one) is int for node in gm.graph.nodes if node.target is torch.ops.higher_order.cond for one in node.args[3])
    everything = lambda g: {n.target for m in g.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes}  # noqa: E731
    aten = torch.ops.aten
    found = dynadiag.minify(
        gm, [torch.tensor(True), torch.randn(3)], oracle=lambda g, i: g(*i) is not None and aten.sinh.default in everything(g)
    )
    assert targets(found.graph_module) == [aten.sinh.default]
    kept = dynadiag.minify(
        gm,
        [torch.tensor(True), torch.randn(3)],
        oracle=lambda g, i: g(*i) is not None and {torch.ops.higher_order.cond, aten.sinh.default} <= everything(g),
    )
    assert aten.tanh.default not in everything(kept.graph_module) and torch.ops.higher_order.cond in everything(kept.graph_module)


def test_one_step_of_a_scan_takes_its_place():
    """Its body gets the carried values, slices of the others, and what both read."""
    graph = torch.fx.Graph()
    init, xs, weight = (graph.placeholder(name) for name in ("init", "xs", "weight"))
    body = graph.get_attr("step")
    both = graph.call_function(torch.ops.higher_order.scan, (body, [init], [xs], [weight]))
    graph.output(tuple(graph.call_function(operator.getitem, (both, which)) for which in (0, 1)))
    step = torch.fx.Graph()
    carried, value, factor = (step.placeholder(name) for name in ("carried", "value", "factor"))
    new = step.call_function(torch.add, (step.call_function(torch.matmul, (carried, factor)), value))
    step.output((new, step.call_function(torch.sinh, (new,))))
    gm = torch.fx.GraphModule({"step": torch.fx.GraphModule({}, step)}, graph)
    inputs = [torch.ones(2, 3), torch.ones(4, 2, 3), torch.ones(3, 3)]
    everything = lambda g: {n.target for m in g.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes}  # noqa: E731
    found = dynadiag.minify(gm, inputs, oracle=lambda g, i: g(*i) is not None and torch.sinh in everything(g))
    assert targets(found.graph_module) == [torch.sinh]


def test_proposals_are_new_candidates_and_leave_the_old_one_alone():
    gm = torch.fx.symbolic_trace(lambda x, y: torch.add(torch.sinh(x), y.view(8, 3).t(), alpha=2))
    original = candidate_of(gm, [torch.randn(3, 8), torch.randn(24)])
    text = original.text
    for reduction in ALL_PASSES:
        for proposal in reduction(original):
            assert len(proposal.inputs) == sum(node.op == "placeholder" for node in proposal.module.graph.nodes)
            proposal.module.graph.lint()
            values = make_values(proposal.inputs)
            for one, value in zip(proposal.inputs, values, strict=True):
                assert not isinstance(one, TensorInput) or (tuple(value.shape), tuple(value.stride())) == (one.shape, one.stride)
    assert original.text == text == candidate_of(gm, make_values(original.inputs)).text
    assert list(shrink_bodies(original)) == []


def test_options_are_dropped_together_then_singly():
    original = candidate_of(torch.fx.symbolic_trace(lambda x: x + 1), [torch.ones(2)])
    with_options = type(original)(original.module, original.inputs, (("a", 1), ("b", 2)))
    assert [proposal.configs for proposal in drop_configs(with_options)] == [(), (("b", 2),), (("a", 1),)]
    assert original.measure < with_options.measure and original.key != with_options.key


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (1, 5), (2, 3, 4)])
def test_strides_are_those_that_torch_gives(shape):
    assert contiguous_stride(shape) == torch.empty(shape).stride()
