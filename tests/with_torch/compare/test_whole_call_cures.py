"""The ways out that `advice/whole_calls.py` names: each program is wrong without, and right with it, on the newest and the oldest torch."""

from collections import deque

import pytest
import torch
from torch import nn


def compiled(function):
    return torch.compile(function, backend="aot_eager")


def adds(module, args, out):
    return out + 5


def late_hook(*, before_first_call=False, guarded=False, forget=False):
    net = nn.Sequential(nn.Identity(), nn.ReLU())
    step = compiled(net)
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=not guarded):
        if before_first_call:
            net[0].register_forward_hook(adds)
        step(torch.ones(2))
        if not before_first_call:
            net[0].register_forward_hook(adds)
        if forget:
            torch.compiler.reset()
        return step(torch.ones(2)), net(torch.ones(2))


class Host(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.ReLU()

    def forward(self, x):
        return self.core(x)


def swapped_module(*, as_attribute=False, forget=False):
    host = Host()
    step = compiled(host)
    step(torch.ones(2))
    if as_attribute:
        host.core = nn.Softmax(0)
    else:
        host.__dict__["core"] = nn.Softmax(0)
    if forget:
        torch.compiler.reset()
    return step(torch.ones(2)), host(torch.ones(2))


class Slot:
    pass


class Slots:
    def __init__(self):
        self.left, self.right = Slot(), Slot()
        self.now, self.is_left = self.left, True


def by_identity(slots, x):
    if slots.now is slots.left:
        slots.now = slots.right
        return x + 1
    slots.now = slots.left
    return x - 1


def by_flag(slots, x):
    slots.is_left = not slots.is_left
    return x - 1 if slots.is_left else x + 1


def identity(*, flag=False, forget=False):
    function = by_flag if flag else by_identity

    def run(step):
        slots = Slots()
        for _ in range(2):
            step(slots, torch.ones(2))
        if forget:
            torch.compiler.reset()
        return step(slots, torch.ones(2))

    return run(compiled(function)), run(function)


def overlap(*, clone=False):
    def function(x, y):
        x.add_(1)
        y.mul_(2)
        return x.sum() + y.sum()

    def run(function):
        x = torch.ones(4)
        return function(x, x[1:].clone() if clone else x[1:])

    step = compiled(function)
    step(torch.ones(4), torch.ones(3))
    return run(step), run(function)


def full_deque(*, rebuild=False):
    held = [deque([torch.tensor(1.0), torch.tensor(2.0)], maxlen=2) for _ in range(2)]
    state = {"window": held[0]}

    def function(x):
        if rebuild:
            state["window"] = deque([*state["window"], x.mean()], maxlen=2)
        else:
            state["window"].append(x.mean())
        return sum(state["window"])

    got = compiled(function)(torch.ones(2))
    state["window"] = held[1]
    return got, function(torch.ones(2))


def generator(*, outside=False):
    said = []

    def parts(x):
        said.append("begun")
        yield x + 1

    def function(x):
        return [x + 1] if outside else parts(x)

    compiled(function)(torch.ones(2))
    begun = len(said)
    said.clear()
    function(torch.ones(2))
    return torch.tensor(begun), torch.tensor(len(said))


@pytest.mark.parametrize(
    ("program", "cure"),
    [
        (late_hook, "before_first_call"),
        (late_hook, "guarded"),
        (late_hook, "forget"),
        (swapped_module, "as_attribute"),
        (swapped_module, "forget"),
        (identity, "flag"),
        (identity, "forget"),
        (overlap, "clone"),
        (full_deque, "rebuild"),
        (generator, "outside"),
    ],
)
def test_the_program_is_wrong_and_its_cure_makes_it_right(program, cure):
    torch.compiler.reset()
    wrong, eager = program()
    assert not torch.equal(wrong, eager)
    torch.compiler.reset()
    right, eager = program(**{cure: True})
    torch.testing.assert_close(right, eager)
