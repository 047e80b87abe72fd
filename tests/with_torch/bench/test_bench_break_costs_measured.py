"""A call is taken apart at its graph breaks: joined graphs compute what the call does, and each place is timed. No time is compared."""

from __future__ import annotations

import weakref

import pytest
import torch

from dynadiag.bench.inside.break_costs import prices_of
from dynadiag.bench.inside.joining import Replay, join
from dynadiag.bench.inside.loading import CompileSwitch
from dynadiag.bench.inside.steps import CallUnit, WholeStep
from dynadiag.torch_compat.dynamo.break_costs import Watch, watched_backend


def switch(backend="aot_eager"):
    made = CompileSwitch(arm="compiled", overrides={"backend": backend})
    made.original = torch.compile
    return made


def unit_of(function, *arguments):
    return CallUnit(original=function, function=function, arguments=arguments, compiled_by="bench")


class Broken(torch.nn.Module):
    def __init__(self, *, breaks=True):
        super().__init__()
        self.breaks = breaks
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        x = self.first(x).relu()
        self.seen.add_(x.detach().sum(0))
        if self.breaks:
            print(end="")
        scale = 2
        x = self.second(x * scale)
        if self.breaks:
            torch._dynamo.graph_break()
        return x.sum(1), self.seen * 2


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    torch.manual_seed(2)
    yield
    torch.compiler.reset()


def taped(model, *arguments):
    """The calls of the compiled model's graphs with their values, and what the model gave."""
    watch = Watch()
    compiled = torch.compile(model, backend=watched_backend({"backend": "eager"}, watch))
    compiled(*arguments)
    watch.tape = []
    outputs = compiled(*arguments)
    return watch.tape, outputs


def test_joined_graphs_do_what_the_call_does():
    model, x, watch = Broken(), torch.randn(4, 8), Watch()
    compiled = torch.compile(model, backend=watched_backend({"backend": "eager"}, watch))
    compiled(x)
    model.seen.zero_()
    watch.tape = []
    outputs = compiled(x)
    tape, watch.tape = watch.tape, None
    expected = [value.detach().clone() for value in (*outputs, model.seen)]
    assert [call.piece.ending.is_break for call in tape] == [True, True, False]
    assert {call.piece.ending.file for call in tape[:2]} == {__file__} and tape[0].piece.ending.line < tape[1].piece.ending.line
    model.seen.zero_()
    part = join(tape, {id(value) for value in outputs})
    by_id = dict(zip(part.outputs, part.module(*part.inputs), strict=True))
    for value, wanted in zip([by_id[id(one)] for one in outputs] + [model.seen], expected, strict=True):
        torch.testing.assert_close(value, wanted)
    by_id[id(outputs[0])].sum().backward()
    assert model.first.weight.grad is not None and model.second.weight.grad is not None


def test_parameters_and_buffers_stay_attributes_of_the_joined_graph():
    model, x = Broken(), torch.randn(4, 8)
    tape, outputs = taped(model, x)
    part = join(tape, {id(value) for value in outputs})
    assert [id(value) for value in part.inputs] == [id(x)], "as arguments they would cost other guards, and CUDA graphs would copy them"
    assert {id(value) for value in part.module.parameters()} == {id(value) for value in model.parameters()}
    assert [id(value) for value in part.module.buffers()] == [id(model.seen)]


def test_the_joined_graph_is_the_one_that_the_call_has_without_its_breaks():
    x = torch.randn(4, 8)
    tape, outputs = taped(Broken(), x)
    ((fixed,), _) = taped(Broken(breaks=False), x)
    part = join(tape, {id(value) for value in outputs})
    joined, alone = (
        [str(node.target) for node in graph.nodes if node.op.startswith("call_")] for graph in (part.module.graph, fixed.piece.graph.graph)
    )
    assert joined == alone and len(part.outputs) == len(fixed.outputs) == 2


def test_a_replay_gives_what_the_call_gives_and_drops_what_no_later_part_takes():
    model, x = Broken(), torch.randn(4, 8)
    unit = unit_of(model, x)
    tape, outputs = taped(model, x)
    given = {id(value): value for call in tape for value in call.outputs}
    parts = [join([call], {id(value) for value in call.outputs}) for call in tape]
    alive, seen = [], []

    def watched(part):
        def run(*args):
            seen.append([one() is not None for one in alive])
            values = part.module(*args)
            alive.extend(weakref.ref(value) for value in values)
            return values

        return run

    model.seen.zero_()
    with torch.no_grad():
        replay = Replay(unit, parts, [watched(part) for part in parts], outputs)
        replay()
    assert len(given) == 4 and seen == [[], [True], [False, True]]
    model.seen.zero_()
    unit.backward = True
    Replay(unit, parts, [part.module for part in parts], outputs)()
    expected = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.seen.zero_()
    unit.run_step(model)
    assert all(torch.equal(expected[name], value.grad) for name, value in model.named_parameters())


def test_each_place_that_breaks_is_timed_beside_the_joined_call():
    model = Broken()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = prices_of(unit_of(model, torch.randn(4, 8)), switch(), cuda=False, max_s=0.0)
    assert found["why_not"] == found["total_why_not"] == "" and found["graph_calls"] == 3
    assert [(one["times"], one["is_break"], one["why_not"], len(one["price_samples_ms"])) for one in found["places"]] == [
        (1, True, "", 20)
    ] * 2
    assert all(__file__ in one["where"] and one["pause_ms"] > 0 for one in found["places"])
    assert len(found["step_ms"]) == len(found["unbroken_ms"]) == 20
    assert [one["id"] for one in found["guards"]] == ["0/0", "1/0", "2/0"]
    assert all(one["us"] is not None and one["calls"] == 1.0 and one["function"] for one in found["guards"])
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items()), "the state is as it was"


def test_a_call_without_breaks_has_none_to_price():
    found = prices_of(unit_of(torch.nn.Linear(4, 4), torch.randn(2, 4)), switch(), cuda=False, max_s=0.0)
    assert (found["places"], found["why_not"], found["graph_calls"]) == ([], "", 1) and "step_ms" not in found


def test_a_buffer_that_is_copied_back_is_timed():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x):
            self.seen.add_(x.sum(0))
            return x * self.weight

    from torch._dynamo.backends.common import aot_autograd

    # Inductor and aot_eager keep this write in the graph; a backend that does not leaves it to AOTAutograd's epilogue.
    found = prices_of(
        unit_of(Counting(), torch.randn(2, 4)), switch(aot_autograd(fw_compiler=lambda graph, _: graph)), cuda=False, max_s=0.0
    )
    assert [(one["bytes"], "seen" in one["name"]) for one in found["copy_backs"]] == [(16, True)]
    assert len(found["copy_backs"][0]["samples_ms"]) == 10


@torch.compiler.disable
def outside(x):
    return x.cumsum(0)


def test_a_place_where_eager_code_computes_has_no_price():
    with torch.no_grad():
        found = prices_of(unit_of(lambda x: outside(x * 2) + 1, torch.randn(4, 4)), switch(), cuda=False, max_s=0.0)
    (one,) = found["places"]
    assert "eager code there makes a tensor" in one["why_not"] and one["price_samples_ms"] == []
    assert "between graphs makes a tensor" in found["total_why_not"], "without the break the call would still compute it"


@pytest.mark.parametrize(
    ("unit", "says"),
    [
        (lambda: unit_of(lambda x: outside(x * 2) + 1, torch.randn(4, 4, requires_grad=True)), "takes part in the backward"),
        (lambda: unit_of(lambda x: outside(x * 2), torch.randn(4, 4, requires_grad=True)), "made outside its graphs"),
        (lambda: unit_of(lambda x: x, torch.randn(4)), "no compiled graph was called"),
        (lambda: WholeStep(original=print, function=print, arguments=(), compiled_by="bench"), "not a whole step"),
    ],
)
def test_what_cannot_be_taken_apart_says_why(unit, says):
    assert says in prices_of(unit(), switch(), cuda=False, max_s=0.0)["why_not"]
