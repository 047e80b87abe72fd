"""`explain --parity` and gradients: planted faults in the backward, correct programs, the program's own backward as it is."""

import gc
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dynadiag
from dynadiag.passes.find_parity import find_parity
from dynadiag.trace import load


@pytest.fixture
def compared(tmp_path):
    """Runs a function under `observe(parity_calls=3)` and gives what the parity pass says of it."""

    def run(program):
        torch._dynamo.reset()
        torch.manual_seed(0)
        with dynadiag.observe(tmp_path / "run", parity_calls=3):
            program()
        found = load(tmp_path / "run")
        assert [problem.text for problem in found.problems if problem.kind == "recorder"] == []
        return find_parity(found)

    return run


class Twice(torch.autograd.Function):
    """The identity, with a gradient that is twice too large."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def product(x, w):
    return (x * w).sin()


def leaves(*shapes):
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def product_backward(backend):
    """One training step of `product` compiled with this back end."""

    def program():
        x, w = leaves(3, 3)
        torch.compile(product, backend=backend)(x, w).sum().backward()

    return program


PLANTED = {
    "too large": lambda module, _: lambda *inputs: [Twice.apply(one) for one in module(*inputs)],
    "dropped": lambda module, _: lambda x, w: module(x, w.detach()),
    "to the wrong input": lambda module, _: lambda x, w: module(w + (x - w).detach(), x + (w - x).detach()),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_wrong_gradient_is_found(compared, planted):
    result = compared(product_backward(PLANTED[planted]))
    (finding,) = result.findings
    assert (finding.code, finding.severity, finding.where.code) == ("DM46", "error", "return (x * w).sin()")
    assert (result.parity.calls_equal, result.parity.gradients_different) == (1, 1)
    if planted == "dropped":
        assert "the gradient of w: a gradient in eager, no gradient compiled" in finding.why
        assert "the gradient of x" not in finding.why


def dropped(x, w):
    return F.dropout(x * w, 0.5).sin()


RANDOM = {
    "right": (lambda module, _: module, (3, 0)),
    "too large": (lambda module, _: lambda *inputs: [Twice.apply(one) for one in module(*inputs)], (0, 3)),
    "other numbers": (lambda module, _: lambda *inputs: (torch.rand(1), [Twice.apply(one) for one in module(*inputs)])[1], (3, 0)),
}


@pytest.mark.parametrize("planted", RANDOM)
def test_gradients_of_what_draws_random_numbers_are_compared_where_both_draw_the_same(compared, planted):
    backend, expected = RANDOM[planted]

    def program():
        compiled = torch.compile(dropped, backend=backend)
        for _ in range(3):
            compiled(*leaves(8, 8)).sum().backward()

    parity = compared(program).parity
    assert (parity.gradients_equal, parity.gradients_different) == expected
    assert (parity.random_values > 0) == (planted == "other numbers")


def test_dropout_in_a_checkpoint_is_drawn_again_in_eager_and_no_fault(compared):
    def program():
        compiled = torch.compile(
            lambda x, w: checkpoint(lambda y: F.dropout(y.sin(), 0.5), x * w, use_reentrant=False), backend="aot_eager"
        )
        compiled(*leaves(8, 8)).sum().backward()

    result = compared(program)
    assert result.findings == ()
    assert result.parity.random_values > 0


def test_an_operator_whose_registered_backward_is_wrong_for_its_compiled_form(compared):
    library = torch.library.Library("shadowgrad", "FRAGMENT")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x**3, "CompositeExplicitAutograd")
    torch.library.register_fake("shadowgrad::cube", lambda x: torch.empty_like(x), lib=library)
    wrong = []

    def backward(ctx, gradient):
        # Right when eager calls it with real tensors, wrong when AOTAutograd traces it.
        factor = 3.0 if type(ctx.saved_tensors[0]) in (torch.Tensor, nn.Parameter) else 5.0
        wrong.append(factor)
        return gradient * factor * ctx.saved_tensors[0] ** 2

    torch.library.register_autograd(
        "shadowgrad::cube", backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]), lib=library
    )

    def program():
        (x,) = leaves(4)
        torch.compile(lambda x: torch.ops.shadowgrad.cube(x) * 2, backend="aot_eager")(x).sum().backward()

    assert [one.code for one in compared(program).findings] == ["DM46"]
    assert set(wrong) == {3.0, 5.0}


def test_an_output_that_is_overwritten_by_the_next_call(compared):
    buffer = torch.zeros(3)

    def static(module, _):
        def run(*inputs):
            buffer.copy_(module(*inputs)[0])
            return [buffer.view(3)]

        return run

    def program():
        double = torch.compile(lambda x: x * 2, backend=static)
        first = double(torch.ones(3))
        second = double(torch.full((3,), 2.0))
        second.mul_(3)  # what the program itself changes is its own affair
        double(torch.full((3,), 4.0))
        return first, second

    result = compared(program)
    assert [(one.code, one.title) for one in result.findings] == [
        ("DM45", "Overwritten by a later call: output 0 of call 1, which the program still holds")
    ]
    assert "still held: 2 before this call, 4 after it, 3 of 3 elements wrong" in result.findings[0].why


def correct_backwards():
    """Programs whose gradients are right: each comes with how many backwards are compared."""
    yield "no backward ever called", lambda: torch.compile(product, backend="aot_eager")(*leaves(3, 3)), 0
    yield "a graph kept, and backward twice", _kept, 1
    yield "gradients of one input only", _one_input, 1
    yield "an output that the loss does not use", _unused, 1
    yield "views of one output", _views, 1
    yield "a tensor used inside and outside", _double_use, 1
    yield "tied weights", _tied, 1
    yield "an input written in place", _in_place, 1
    yield "checkpoint around a compiled function", _checkpointed, 1
    yield "autocast, batch norm, dropout", _mixed, 2
    yield "backward in a thread", _threaded, 1
    yield "two graphs of one step", _broken, 2
    yield "second derivatives", _second_derivative, 1
    yield "the plain sum of a batch norm", normalised_step("aot_eager_decomp_partition"), 2
    yield "the plain sum of one that keeps no means", normalised_step("aot_eager_decomp_partition", track_running_stats=False), 2


def _kept():
    loss = torch.compile(product, backend="aot_eager")(*leaves(3, 3)).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def _one_input():
    x, w = leaves(3, 3)
    torch.autograd.grad(torch.compile(product, backend="aot_eager")(x, w).sum(), [w])


def _unused():
    x, w = leaves(3, 3)
    first, _ = torch.compile(lambda x, w: (x * 2, w * 3), backend="aot_eager")(x, w)
    first.sum().backward()


def _views():
    x, w = leaves((3, 4), (3, 4))

    def several(x, w):
        y = torch.tanh(x * w)
        return y, y.t(), y[0], y.sum()

    y, turned, row, total = torch.compile(several, backend="aot_eager")(x, w)
    (y.square().sum() + (turned * 3).sum() + row.exp().sum() + total).backward()


def _double_use():
    x, w = leaves(3, 3)
    y = torch.compile(product, backend="aot_eager")(x, w)
    (y.sum() + (x * y).sum()).backward()


def _tied():
    layer = nn.Linear(4, 4)

    def twice(x):
        return F.linear(layer(x), layer.weight.t())

    torch.compile(twice, backend="aot_eager")(torch.randn(2, 4)).sum().backward()


def _in_place():
    (x,) = leaves(4)

    def write(y, w):
        y.add_(w.sin())
        return y * 3

    y = x * 2
    out = torch.compile(write, backend="aot_eager")(y, torch.ones(4, requires_grad=True))
    (out.sum() + y.sum()).backward()


def _checkpointed():
    x, w = leaves(4, 4)
    compiled = torch.compile(product, backend="aot_eager")
    checkpoint(lambda x, w: compiled(x, w) * 2, x, w, use_reentrant=False).sum().backward()


def _mixed():
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 2))
    compiled = torch.compile(net, backend="aot_eager")
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = compiled(torch.randn(16, 8)).float().square().mean()
        loss.backward()


def _threaded():
    loss = torch.compile(product, backend="aot_eager")(*leaves(3, 3)).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()


def _broken():
    def two(x, w):
        y = x * w
        torch._dynamo.graph_break()
        return y.exp()

    torch.compile(two, backend="aot_eager")(*leaves(3, 3)).sum().backward()


def _second_derivative():
    (x,) = leaves(3)
    (first,) = torch.autograd.grad(torch.compile(lambda x: x**3, backend="eager")(x).sum(), x, create_graph=True)
    first.sum().backward()


def normalised_step(backend, **options):
    """Two training steps whose gradients in front of the batch norm are zero in exact arithmetic."""

    def program():
        net = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16, **options))
        compiled = torch.compile(net, backend=backend)
        for _ in range(2):
            net.zero_grad()
            compiled(torch.randn(32, 16)).sum().backward()

    return program


@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_a_gradient_that_should_be_zero_and_is_not_is_found(compared, size):
    def planted(module, _):
        return lambda w, bias, *rest: [one + size * (bias - bias.detach()) for one in module(w, bias, *rest)]

    (finding,) = compared(normalised_step(planted)).findings
    assert finding.code == "DM46" and "the gradient of fn[0].bias" in finding.why


@pytest.mark.parametrize(("program", "backwards"), [one[1:] for one in correct_backwards()], ids=[one[0] for one in correct_backwards()])
def test_right_gradients_have_no_finding(compared, program, backwards):
    result = compared(program)
    assert result.findings == ()
    assert (result.parity.gradients_equal, result.parity.gradients_different) == (backwards, 0)
    assert result.parity.not_compared == ()


def test_the_programs_own_backward_stays_as_it_is(tmp_path):
    def program():
        torch._dynamo.reset()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
        seen = []
        net[0].weight.register_hook(lambda gradient: seen.append(("tensor", gradient.sum().item())))
        net[0].weight.register_post_accumulate_grad_hook(lambda leaf: seen.append(("leaf", leaf.grad.sum().item())))
        compiled = torch.compile(net, backend="aot_eager")
        for _ in range(2):
            out = compiled(torch.randn(3, 4))
            out.register_hook(lambda gradient: seen.append(("output", gradient.sum().item())))
            out.square().sum().backward()
        owned = [parameter.grad._is_view() or parameter.grad._version for parameter in net.parameters()]
        strides = [parameter.grad.stride() for parameter in net.parameters()]
        return [parameter.grad.tolist() for parameter in net.parameters()], seen, owned, strides, torch.rand(3).tolist()

    plain = program()
    with dynadiag.observe(tmp_path / "run", parity_calls=3):
        recorded = program()
    assert recorded == plain
    assert find_parity(load(tmp_path / "run")).parity.gradients_equal == 2


def test_copies_go_with_the_graph_when_no_backward_comes(compared):
    from dynadiag.compare.live import comparing

    alive = []

    def count():
        gc.collect()
        alive.append(sum(type(one) is comparing.CopiedCall for one in gc.get_objects()))

    def program():
        count()
        out = torch.compile(product, backend="aot_eager")(*leaves(3, 3))
        count()
        del out
        count()

    result = compared(program)
    assert alive == [alive[0], alive[0] + 1, alive[0]]
    assert result.parity.no_backward == 1
