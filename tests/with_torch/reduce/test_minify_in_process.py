"""`dynadiag.minify` with oracles of one's own: what is found, what the oracle is given, what it costs."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import dynadiag
from dynadiag import Verdict
from dynadiag.errors import NothingFoundError, UnreadableInputError, UsageError

ATEN = torch.ops.aten


def has(*targets):
    def oracle(graph_module, inputs):
        graph_module(*inputs)
        present = {node.target for node in graph_module.graph.nodes}
        return all(target in present for target in targets)

    return oracle


def chain(x, w):
    for _ in range(5):
        x = torch.tanh(x @ w)
    x = torch.sinh(x)
    for _ in range(5):
        x = torch.sigmoid(x @ w + 2)
    return torch.cosh(x).sum(), x


def traced(function, *inputs):
    return make_fx(function)(*inputs), list(inputs)


def test_one_needed_operator_leaves_three_nodes_and_a_tensor_of_one_element():
    gm, inputs = traced(chain, torch.randn(6, 8, 8), torch.randn(8, 8))
    before = [str(node) for node in gm.graph.nodes]
    found = dynadiag.minify(gm, inputs, oracle=has(ATEN.sinh.default))
    assert [node.op for node in found.graph_module.graph.nodes] == ["placeholder", "call_function", "output"]
    assert found.inputs[0].numel() == 1 and found.inputs[0].dtype == torch.float32
    assert found.queries == found.queries.confirm + found.queries.cut + found.queries.simplify + found.queries.minimal
    assert found.queries.cut <= 12 and found.complete
    assert [str(node) for node in gm.graph.nodes] == before
    found.graph_module(*found.inputs)


def test_two_far_apart_operators_end_side_by_side():
    gm, inputs = traced(chain, torch.randn(6, 8), torch.randn(8, 8))
    found = dynadiag.minify(gm, inputs, oracle=has(ATEN.sinh.default, ATEN.cosh.default))
    assert len(found.graph_module.graph.nodes) <= 5
    assert found.inputs and all(size <= 4 for one in found.inputs for size in one.shape)


def test_without_simplification_the_real_values_stay():
    gm, inputs = traced(chain, torch.randn(6, 8), torch.randn(8, 8))
    found = dynadiag.minify(gm, inputs, oracle=has(ATEN.sinh.default), simplify=False)
    x, w = inputs
    for _ in range(5):
        x = torch.tanh(x @ w)
    assert torch.equal(found.inputs[0], x)
    assert found.queries.simplify == 0


def test_a_value_that_is_written_later_is_captured_as_it_was():
    def writes(x):
        y = x * 2
        z = torch.sinh(y)
        y.add_(100)
        return z + y

    gm = torch.fx.symbolic_trace(writes)
    found = dynadiag.minify(gm, [torch.ones(3)], oracle=has(torch.sinh), simplify=False)
    assert torch.equal(found.inputs[0], torch.full((3,), 2.0))


def test_the_oracle_may_destroy_what_it_gets():
    gm, inputs = traced(chain, torch.randn(6, 8), torch.randn(8, 8))

    def destroying(graph_module, values):
        answer = any(node.target is ATEN.sinh.default for node in graph_module.graph.nodes)
        for value in values:
            value.zero_()
        for node in list(graph_module.graph.nodes):
            node.args = ()
        torch.manual_seed(len(values))
        torch.set_grad_enabled(False)
        return answer

    state = torch.get_rng_state()
    found = dynadiag.minify(gm, inputs, oracle=destroying)
    assert len(found.graph_module.graph.nodes) == 3
    assert inputs[0].abs().sum() > 0 and torch.is_grad_enabled() and torch.equal(state, torch.get_rng_state())


def test_verdicts_other_than_interesting_are_never_adopted():
    gm, inputs = traced(chain, torch.randn(6, 8), torch.randn(8, 8))

    def judge(graph_module, values):
        present = {node.target for node in graph_module.graph.nodes}
        if {ATEN.sinh.default, ATEN.cosh.default} <= present:
            return Verdict.INTERESTING
        if ATEN.sinh.default in present:
            return Verdict.DIFFERENT
        if ATEN.tanh.default in present:
            raise RuntimeError("the oracle broke")
        return Verdict.TIMEOUT

    found = dynadiag.minify(gm, inputs, oracle=judge)
    assert {ATEN.sinh.default, ATEN.cosh.default} <= {node.target for node in found.graph_module.graph.nodes}
    assert found.almost is None and found.other_failures


def test_the_closest_graph_that_passes_is_kept():
    gm, inputs = traced(chain, torch.randn(6, 8), torch.randn(8, 8))
    found = dynadiag.minify(gm, inputs, oracle=has(ATEN.sinh.default, ATEN.cosh.default))
    assert found.almost is not None
    module, values = found.almost
    present = {node.target for node in module.graph.nodes}
    assert len({ATEN.sinh.default, ATEN.cosh.default} & present) == 1
    module(*values)


def test_a_tuple_operator_keeps_one_of_its_results():
    def splits(x):
        a, b, c = torch.split(torch.tanh(x), 2)
        return (a + b) * c

    gm, inputs = traced(splits, torch.randn(6))
    found = dynadiag.minify(gm, inputs, oracle=has(ATEN.split.Tensor), simplify=False)
    targets = [node.target for node in found.graph_module.graph.nodes if node.op == "call_function"]
    assert targets == [ATEN.split.Tensor, operator.getitem]


def test_numbers_that_operators_compute_become_constants():
    class Sized(torch.nn.Module):
        def forward(self, x):
            n = x.size(0)
            return torch.tanh(x).view(n * 2, -1)

    gm = torch.fx.symbolic_trace(Sized())
    oracle = lambda g, i: g(*i) is not None and any(node.target == "view" for node in g.graph.nodes)  # noqa: E731
    found = dynadiag.minify(gm, [torch.randn(4, 8)], oracle=oracle)
    assert [node.op for node in found.graph_module.graph.nodes] == ["placeholder", "call_method", "output"]


def test_inputs_that_share_memory_share_it_in_every_candidate():
    base = torch.arange(10.0)
    gm = torch.fx.symbolic_trace(lambda x, y: (torch.tanh(x), x.add_(1), y + 0)[2])

    def shows_aliasing(graph_module, values):
        if len(values) != 2:
            return False
        return values[0].untyped_storage().data_ptr() == values[1].untyped_storage().data_ptr() and bool(graph_module(*values) is not None)

    found = dynadiag.minify(gm, [base[:4], base[2:6]], oracle=shows_aliasing)
    assert found.inputs[0].untyped_storage().data_ptr() == found.inputs[1].untyped_storage().data_ptr()
    assert torch.equal(base, torch.arange(10.0))


def test_an_uninteresting_graph_is_refused():
    gm, inputs = traced(chain, torch.randn(6, 8), torch.randn(8, 8))
    with pytest.raises(NothingFoundError, match="boring: there is nothing to reduce"):
        dynadiag.minify(gm, inputs, oracle=lambda g, i: False)
    with pytest.raises(NothingFoundError, match=r"invalid \(ZeroDivisionError: division by zero\)"):
        dynadiag.minify(gm, inputs, oracle=lambda g, i: 1 / 0)
    with pytest.raises(NothingFoundError, match=r"invalid \(TypeError: the oracle returned 'yes'"):
        dynadiag.minify(gm, inputs, oracle=lambda g, i: "yes")
    with pytest.raises(UsageError, match="takes 2 inputs, but 1"):
        dynadiag.minify(gm, inputs[:1], oracle=lambda g, i: True)
    with pytest.raises(UsageError, match="expected a torch.fx.GraphModule, not Linear"):
        dynadiag.minify(torch.nn.Linear(2, 2), inputs, oracle=lambda g, i: True)
    with pytest.raises(UsageError, match="must be a function of a graph and its inputs, not int"):
        dynadiag.minify(gm, inputs, oracle=3)
    with pytest.raises(UsageError, match="does not run on these inputs without a compiler: RuntimeError"):
        dynadiag.minify(gm, [inputs[0], torch.randn(3)], oracle=lambda g, i: True)


def test_killed_at_any_query_it_goes_on_with_the_journal(tmp_path):
    """Stopped after k queries and resumed, the search asks exactly the questions that were left, and ends at the same graph."""
    gm, inputs = traced(chain, torch.randn(6, 8), torch.randn(8, 8))
    judge, total = has(ATEN.sinh.default), 0
    whole = dynadiag.minify(gm, inputs, oracle=judge)
    for stop in (1, 2, 7, int(whole.queries) - 1):
        asked = []

        def counted(graph_module, values, asked=asked):
            asked.append(1)
            return judge(graph_module, values)

        first = dynadiag.minify(gm, inputs, oracle=counted, journal=tmp_path / f"{stop}", query_limit=stop)
        assert not first.complete and first.queries == stop
        second = dynadiag.minify(gm, inputs, oracle=counted, journal=tmp_path / f"{stop}", resume=True)
        assert len(asked) == whole.queries and second.graph_module.code == whole.graph_module.code
        total += len(asked)
    other, _ = traced(lambda x: torch.sinh(x), torch.randn(2))
    with pytest.raises(UnreadableInputError, match="is not the journal of this reduction"):
        dynadiag.minify(other, [torch.randn(2)], oracle=judge, journal=tmp_path / "1", resume=True)
    assert total == 4 * whole.queries


def test_the_same_graph_is_never_judged_twice():
    gm, inputs = traced(chain, torch.randn(6, 8), torch.randn(8, 8))
    seen = []

    def oracle(graph_module, values):
        described = [str(value.shape) + str(value.stride()) + str(value.tolist()) for value in values]
        seen.append("\n".join([*(f"{n.op} {n.target} {n.args} {n.kwargs}" for n in graph_module.graph.nodes), *described]))
        return has(ATEN.sinh.default, ATEN.cosh.default)(graph_module, values)

    dynadiag.minify(gm, inputs, oracle=oracle)
    assert len(seen) == len(set(seen))


def test_a_pass_that_breaks_is_noted_and_the_others_go_on():
    from dynadiag.reduce.graphs.candidate import candidate_of
    from dynadiag.reduce.graphs.passes.inputs import simple_data
    from dynadiag.reduce.graphs.reduction import GraphReducer, reduce_fully

    class Everything:
        def judge(self, candidate):
            return Verdict.INTERESTING, ""

        def values(self, candidate):
            return {"x": torch.ones(3)}

        def impossible(self, candidate):
            return None

    def broken(candidate):
        yield candidate
        raise KeyError("a bug in a pass")

    reducer = GraphReducer(candidate_of(torch.fx.symbolic_trace(lambda x: torch.sinh(x)), [torch.randn(3)]), Everything())
    assert reduce_fully(reducer, passes=(broken, simple_data))
    assert "a bug in a pass" in reducer.broken_passes["broken"]
    assert not torch.is_tensor(reducer.best.inputs[0].data)


def test_a_default_device_leaves_the_values_alone():
    gm, inputs = traced(chain, torch.randn(6, 8), torch.randn(8, 8))
    with torch.device("meta"):
        found = dynadiag.minify(gm, inputs, oracle=has(ATEN.sinh.default))
    assert [one.device.type for one in found.inputs] == ["cpu"]
