"""Operators outside graphs, graphs and regions of a call, from the events of torch's older profiler."""

from types import SimpleNamespace

import pytest

from dynadiag.torch_compat.trace.profile_events import GRAPH, count_dispatched

REGION = "Torch-Compiled Region: "
KNOWN = {"aten::add", "aten::to", "aten::item", "lib::op", "profiler::_record_function_enter_new"}


@pytest.fixture(autouse=True)
def operators(monkeypatch):
    """A torch that knows some operators."""
    schemas = SimpleNamespace(_jit_get_schemas_for_operator=lambda name: [name] if name in KNOWN else [])
    monkeypatch.setitem(__import__("sys").modules, "torch", SimpleNamespace(_C=schemas))


def events(tree):
    """A thread's events of a tree of (name, [inside], scope)."""
    found = []
    for one in tree:
        name, inside, scope = (
            (*one, [], 0)[:3] if isinstance(one, tuple) and len(one) < 3 else one if isinstance(one, tuple) else (one, [], 0)
        )
        found.append(SimpleNamespace(kind=lambda: "push", name=lambda name=name: name, scope=lambda scope=scope: scope))
        found += events(inside)
        found.append(SimpleNamespace(kind=lambda: "pop", name=lambda: ""))
    return found


def test_only_outermost_operators_outside_graphs_are_counted():
    call = [
        "TorchDynamo Cache Lookup",
        (
            REGION + "0/0",
            [(GRAPH, ["aten::add", "aten::add"]), ("aten::add", ["aten::to"]), (REGION + "1/0", [(GRAPH, [("aten::to")]), "lib::op"])],
        ),
        ("Optimizer.step", ["aten::item"]),
    ]
    found = count_dispatched([events(call)])
    assert found.outside == 3
    assert found.graphs == {"0/0": 1, "1/0": 1}
    assert found.regions == {"0/0": 1, "1/0": 1}


def test_a_backward_counts_on_neither_side():
    step = "autograd::engine::evaluate_function: AddBackward0"
    compiled = REGION + "!0/3/0"
    found = count_dispatched(
        [events(["aten::add", (step, ["aten::add"]), (compiled, [(GRAPH, []), "aten::add"])]), events([(step, ["aten::to"])])]
    )
    assert (found.outside, found.graphs, found.regions) == (1, {}, {})


def test_names_that_a_program_gives_are_no_operators():
    named = [("aten::add", [], 7), "mine::part", "profiler::_record_function_enter_new", ("mine::block", ["aten::add"], 7), "aten"]
    assert count_dispatched([events(named)]).outside == 1


def test_events_that_began_before_the_profile_do_no_harm():
    pop = SimpleNamespace(kind=lambda: "pop", name=lambda: "")
    mark = SimpleNamespace(kind=lambda: "mark", name=lambda: "__start_profile")
    found = count_dispatched([[mark, pop, pop, *events(["aten::add"]), *events([(REGION + "0/0", [])])[:1]]])
    assert (found.outside, found.regions) == (1, {"0/0": 1})
