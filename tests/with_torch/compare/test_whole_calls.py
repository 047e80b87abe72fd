"""Whole calls compared with the function in eager: what a comparison of graphs cannot show, and that the program never learns of it."""

import contextlib
import os
import random
from collections import deque

import pytest
import torch
from torch import nn

import dynadiag
from dynadiag.capture.process_copy import copy_process, why_no_copy
from dynadiag.passes.find_parity import find_parity
from dynadiag.passes.find_whole_calls import find_whole_calls
from dynadiag.trace import load


@pytest.fixture
def compared(tmp_path):
    """Runs a program under `observe(parity_calls=3)` and gives the run."""

    def run(program):
        torch._dynamo.reset()
        torch.manual_seed(0)
        with dynadiag.observe(tmp_path / "run", parity_calls=3):
            program()
        found = load(tmp_path / "run")
        assert [problem.text for problem in found.problems if problem.kind == "recorder"] == []
        return found

    return run


def verdicts(run):
    return [call.verdict for call in run.whole_calls]


def found(run):
    return [(item.code, item.where.code, item.fix[0].slug) for item in find_whole_calls(run).findings]


class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.window = deque([torch.tensor(1.0), torch.tensor(2.0)], maxlen=2)

    def forward(self, x):
        self.window.append(x.mean())
        return sum(self.window)


class Host(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.Linear(2, 2)

    def forward(self, x):
        y = x.sin()
        return self.core(y)


class Slots:
    def __init__(self):
        self.left, self.right = Slot(), Slot()
        self.now = self.left


class Slot:
    pass


def choose(slots, x):
    if slots.now is slots.left:
        slots.now = slots.right
        return x + 1
    slots.now = slots.left
    return x - 1


scale = nn.Parameter(torch.ones(2))


def decay(x):
    scale.data.mul_(0.5)
    return (scale * x).sum()


def pieces(x):
    for at in range(2):
        yield x * at


def lazy(x):
    return pieces(x)


def test_a_full_deque_is_named_with_its_line(compared):
    run = compared(lambda: torch.compile(Window(), backend="aot_eager")(torch.ones(3)))
    assert found(run) == [("DM48", "self.window.append(x.mean())", "rebuild-the-deque")]


def test_a_hook_that_came_later_is_named(compared):
    def program():
        host = Host()
        compiled = torch.compile(host, backend="aot_eager")
        compiled(torch.ones(2))
        host.core.register_forward_hook(lambda module, args, out: out * 100)
        compiled(torch.ones(2))

    run = compared(program)
    assert verdicts(run) == ["equal", "different"]
    assert found(run) == [("DM49", "host.core.register_forward_hook(lambda module, args, out: out * 100)", "hook-before-first-call")]
    (finding,) = find_whole_calls(run).findings
    assert "a forward hook was registered on self.core. Compiled anew at this call" in finding.why


def test_an_entry_of_the_instance_dictionary_is_named(compared):
    def program():
        host = Host()
        compiled = torch.compile(host, backend="aot_eager")
        compiled(torch.ones(2))
        host.__dict__["core"] = nn.Linear(2, 2)
        compiled(torch.ones(2))

    assert found(compared(program)) == [("DM49", 'host.__dict__["core"] = nn.Linear(2, 2)', "assign-the-attribute")]


def test_an_identity_that_changed_is_named(compared):
    def program():
        slots, compiled = Slots(), torch.compile(choose, backend="aot_eager")
        for _ in range(3):
            compiled(slots, torch.zeros(1))

    assert found(compared(program)) == [("DM49", "if slots.now is slots.left:", "flag-not-identity")]


def test_a_write_through_data_that_counts_only_when_compiled(compared):
    run = compared(lambda: torch.compile(decay, backend="aot_eager")(torch.ones(2)))
    assert found(run) == [("DM48", "scale.data.mul_(0.5)", "keep-it-eager")]


def test_a_generator_that_has_already_run(compared):
    run = compared(lambda: torch.compile(lazy, backend="aot_eager")(torch.ones(2)))
    assert found(run) == [("DM48", "return pieces(x)", "keep-it-eager")]
    assert "generator" in find_whole_calls(run).findings[0].why


def test_gradients_that_a_later_hook_doubles_also_after_the_first_backward(compared):
    """A child of `fork` cannot run a backward once its parent has."""

    def program():
        host = Host()
        compiled = torch.compile(host, backend="aot_eager")
        compiled(torch.ones(2, requires_grad=True)).sum().backward()
        host.core.register_full_backward_hook(lambda module, into, out: tuple(2 * item for item in into))
        compiled(torch.ones(2, requires_grad=True)).sum().backward()

    run = compared(program)
    assert verdicts(run) == ["equal", "different"]
    assert [item.where for item in run.whole_calls[1].differences] == ["gradient"]


def add_and_double(x, y):
    x.add_(1)
    y.mul_(2)
    return x.sum() + y.sum()


def test_memory_shared_otherwise_than_when_it_was_compiled(compared):
    """Compiled for shared memory, called without: the graph's finding says so, and nothing of custom operators."""

    def program():
        compiled, whole = torch.compile(add_and_double, backend="aot_eager"), torch.ones(4)
        compiled(whole, whole[1:])
        with contextlib.suppress(AssertionError):  # that of AOTAutograd, on 2.11
            compiled(torch.ones(4), torch.ones(3))

    run = compared(program)
    findings = [*find_parity(run).findings, *find_whole_calls(run).findings]
    assert findings
    assert all("Since it was compiled, x and y share no memory" in item.why for item in findings)
    assert all([advice.slug for advice in item.fix] == ["no-shared-memory"] for item in findings)


def test_dropout_that_draws_other_numbers_is_not_called_wrong(compared):
    layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))

    def other_numbers(module, _):
        def run(*inputs):
            torch.rand(1)
            return module(*inputs)

        return run

    run = compared(lambda: torch.compile(layers, backend=other_numbers)(torch.ones(64, 8)))
    assert verdicts(run) == ["rounding"]
    assert run.whole_calls[0].random_values > 0
    assert find_whole_calls(run).findings == ()


def test_what_eager_does_not_give_twice_is_counted_only(compared):
    def now(x):
        return x * 2, os.getpid()

    run = compared(lambda: torch.compile(now, backend="eager")(torch.ones(2)))
    assert find_whole_calls(run).findings == ()
    assert run.whole_calls[0].unsteady == 1


def test_the_program_never_learns_of_the_copies(compared, capfd):
    """Its children, random numbers, state and output are as without us."""
    log = []

    def noisy(x):
        log.append(len(log))
        return x + random.random() + torch.rand(2)

    def program():
        random.seed(3)
        before = torch.get_rng_state()
        compiled = torch.compile(noisy, backend="eager")
        compiled(torch.ones(2))
        torch.set_rng_state(before)
        random.seed(3)
        children.append(seen_children())
        given.append(compiled(torch.ones(2)))

    def seen_children():
        try:
            return os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None

    while seen_children() not in (None, (0, 0)):
        pass  # other tests of this process may have left some
    given, children = [], [seen_children()]
    compared(program)
    assert children[1] == children[0]
    torch.manual_seed(0)
    random.seed(3)
    assert torch.equal(given[0], torch.ones(2) + random.random() + torch.rand(2))
    assert log == [0, 1]
    assert capfd.readouterr().out == ""


def test_a_copy_that_breaks_says_why():
    def broken(_):
        raise ValueError("a reason")

    assert why_no_copy() is None
    copy = copy_process(broken)
    assert copy.wait(20.0) is None
    assert "ValueError: a reason" in copy.why_not


def samples(scale):
    return torch.distributions.Normal(torch.zeros(2), scale).log_prob(torch.ones(2))


@pytest.mark.parametrize(("scale", "differs"), [(-1.0, True), (1.0, False)])
def test_eager_checks_the_arguments_of_distributions_as_without_torch_compile(compared, scale, differs):
    def program():
        torch.compile(samples, backend="eager")(torch.full((2,), scale))

    (call,) = compared(program).whole_calls
    assert [(difference.kind, "ValueError" in difference.eager) for difference in call.differences] == [("accepts", True)] * differs
    assert torch.distributions.Distribution._validate_args is False
