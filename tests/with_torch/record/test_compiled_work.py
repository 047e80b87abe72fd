"""How much of a call runs compiled, counted in a recorded program; a program with a profiler of its own keeps it."""

import pytest

from dynadiag.torch_compat.trace import compiled_work

PROGRAM = """
import threading
import torch
from torch._dynamo import eval_frame

setter = eval_frame._maybe_set_eval_frame


def broken(x):
    y = torch.nn.functional.linear(x, x)
    torch._dynamo.graph_break()
    y = (y + 1).relu()
    return y * y.sum().item()


class Disabled(torch.nn.Module):
    @torch.compiler.disable
    def side(self, x):
        return x.sin().cos()

    def forward(self, x):
        return self.side(x.relu() * 2) + 1


@torch.compile(backend="eager")
def inner(x):
    return x.exp()


def outer(x):
    torch._dynamo.graph_break()
    return inner(x).tan()


def raising(x, number):
    if number:
        raise ValueError(number)
    return x + 1


@torch.compiler.disable
def measured(y):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        y = y.cos()
    seen.append(any(event.key == "aten::cos" for event in profile.key_averages()))
    return y


def profiled(x):
    return measured(x + 1)


def changing(x):
    return x + 1


def scaled(x, factor):
    return x * factor


def looked(x):
    largest = x.max().item()
    torch._dynamo.graph_break()
    str(largest)  # the code after the break takes a number, and has no operator
    torch._dynamo.graph_break()
    return x.cos()


@torch.compiler.disable
def show(y):
    lines.append(repr(y))


def shown(x):
    y = x * 2
    show(y)
    return y.sin()


def once(x):
    return x - 1


x = torch.randn(8, 8, requires_grad=True)
seen, lines = [], []
for function in (broken, Disabled(), outer, torch.nn.Sequential(torch.nn.ReLU())):
    compiled = torch.compile(function, backend="aot_eager")
    for _ in range(4):
        compiled(x).sum().backward()
compiled = torch.compile(raising, backend="eager")
compiled(x, 0)
for _ in range(3):
    try:
        compiled(x, 1)
    except ValueError:
        pass
compiled = torch.compile(profiled, backend="eager")
for _ in range(4):
    compiled(x)
compiled = torch.compile(changing, backend="eager", dynamic=False)
for size in range(3, 8):
    compiled(torch.randn(size))
compiled = torch.compile(scaled, backend="eager")
for number in range(6):
    compiled(x, number / 8 + 0.1)
compiled = torch.compile(looked, backend="eager")
for number in range(4):
    compiled(x + number)
compiled = torch.compile(shown, backend="eager")
for _ in range(4):
    compiled(x)
torch.compile(once, backend="eager")(x)
threads = [threading.Thread(target=torch.compile(torch.nn.Linear(8, 8), backend="eager"), args=(x,)) for _ in range(2)]
for thread in threads:
    thread.start()
    thread.join()
print(seen, len(set(lines)), torch.autograd._profiler_enabled(), eval_frame._maybe_set_eval_frame is setter)
"""


@pytest.fixture(autouse=True)
def calls_are_short(monkeypatch):
    """However busy the machine is."""
    monkeypatch.setattr(compiled_work, "_LONGEST_S", 600.0)


def test_what_a_call_runs_in_graphs_and_outside_is_counted_and_leaves_nothing_behind(run_here, tmp_path, capsys):
    recorded = run_here(PROGRAM, tmp_path / "run")
    assert capsys.readouterr().out.strip() == "[True, True, True, True] 1 False True"
    found = {record.content["function"]: record.content for record in recorded.named("dynadiag_compiled_work")}
    counted = {name: (sum(n * size for n, size in one["graphs"].values()), one["outside"]) for name, one in found.items()}
    # linear | add, relu, sum | item | mul; relu, mul | sin, cos | add; exp is in a graph of its own, in a call of another;
    # item, mul: the number is an input of the graph, and what Dynamo does to look at it and to pass it is no work of the program
    # max | item | nothing, which Dynamo gives no back end from torch 2.15 on | cos
    # mul | sin: the operators that make the text of a tensor are none of the model's
    module = {"Sequential": (1, 0)}
    assert counted == {"broken": (5, 1), "Disabled": (3, 2), "outer": (2, 0), "scaled": (2, 0), "looked": (2, 1), "shown": (2, 0), **module}
    assert all(one["call"] in (2, 3) for one in found.values())
    assert sum(found["broken"]["regions"].values()) == 3
    assert recorded.problems("recorder") == []


def test_what_an_earlier_recording_of_the_process_has_counted_leaves_room_for_the_next(run_here, tmp_path, monkeypatch):
    """As cells of a notebook are recorded: 64 functions each, not together."""
    monkeypatch.setattr(compiled_work, "_MOST_FUNCTIONS", 1)
    source = """
        import torch

        doubled = torch.compile(lambda x: x * 2, backend="eager")
        for number in range(3):
            doubled(torch.ones(2))
    """
    for name in ("first", "second"):
        assert len(run_here(source, tmp_path / name).named("dynadiag_compiled_work")) == 1, name
