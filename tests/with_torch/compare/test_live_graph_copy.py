"""Which graphs may be called a second time."""

import pytest
import torch
from torch import fx

from dynadiag.compare.live import execution
from dynadiag.compare.live.graph_copy import copy_graph, outside_effect

COUNT = 0
SEEN = []
TABLE = (1, 2)


def graph_of(target, *more):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(target, (x, *more)),))
    return fx.GraphModule({}, graph)


def test_a_collective_is_never_called_twice():
    copy = copy_graph(graph_of(torch.ops._c10d_functional.all_reduce.default, "sum", "0"), {})
    assert copy.why_not == "it calls the collective _c10d_functional::all_reduce, and other ranks participate in each call"


def test_what_torch_computes_is_called_twice():
    assert copy_graph(graph_of(torch.ops.aten.relu.default), {}).why_not is None
    assert copy_graph(graph_of(torch.relu), {}).why_not is None
    assert copy_graph(graph_of(torch.nn.functional.silu), {}).why_not is None


def test_the_copy_outlives_changes_of_the_graph():
    module = graph_of(torch.relu)
    copy = copy_graph(module, {})
    for node in list(module.graph.nodes):
        if node.op == "call_function":
            node.target = torch.sigmoid
    assert [node.target for node in copy.graph.nodes if node.op == "call_function"] == [torch.relu]


def counts(x):
    global COUNT
    COUNT += 1
    return x


def remembers(x):
    SEEN.append(x)
    return x


def tells(x):
    print("called")
    return x


def calls_one_that_counts(x):
    return counts(x) * 2


def pure(x):
    y = []
    for number in TABLE:
        y.append(x.add_(number) * torch.pi)
    return torch.stack(y)


@pytest.mark.parametrize(
    ("function", "effect"),
    [
        (counts, "sets COUNT"),
        (remembers, "uses SEEN, which it may change"),
        (tells, "calls print"),
        (calls_one_that_counts, "sets COUNT"),
        (pure, None),
    ],
)
def test_effects_outside_are_seen_in_the_code(function, effect):
    assert outside_effect(function) == effect


def test_an_operator_that_only_acts_is_not_called_twice():
    library = torch.library.Library("shadowgraph", "FRAGMENT")
    library.define("log(Tensor x) -> ()")
    copy = copy_graph(graph_of(torch.ops.shadowgraph.log.default), {})
    assert copy.why_not == "the custom operator shadowgraph::log returns and writes nothing by its schema, and its code is not known"


def test_an_index_made_of_floats_stays_when_inputs_are_changed_where_a_wrong_one_ends_the_process(monkeypatch):
    monkeypatch.setattr(execution, "ASSERTING_DEVICES", ("cpu",))
    graph = fx.Graph()
    x = graph.placeholder("x")
    index = graph.call_method("long", (graph.call_function(torch.mul, (x, 2)),))
    graph.output((graph.call_function(torch.index_select, (x, 0, index)), index))
    copy = copy_graph(fx.GraphModule({}, graph), {})
    inputs = torch.tensor([0.0, 0.5, 0.999])
    eager = execution.execute(copy, [inputs], execution.How())
    assert [value.tolist() for value in eager.indices.values()] == [[0, 1, 1]]
    changed = execution.execute(copy, [inputs + 5], execution.How(indices=eager.indices))
    assert changed.outputs[0].tolist() == [5.0, 5.5, 5.5]
    monkeypatch.undo()
    assert execution.execute(copy, [inputs], execution.How()).indices == {}
