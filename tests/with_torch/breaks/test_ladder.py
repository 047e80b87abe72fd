"""The source ladder of a recorded program: what Dynamo captured at which line, what broke, and what it never looked at."""

import pytest

import dynadiag
from dynadiag.render.ladder_builder import ladder
from tests.recorded_here import recorded_here

PROGRAM = """
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def scaled(self, x):
        return self.linear(x) * 2

    def forward(self, x):
        h = self.scaled(x)
        print("mid", h.shape)
        h = h.relu()
        return h + 1


def loss(results):
    total = 0.0
    for one in results:
        total = total + one.sum().item()
        total = total * 2
    return total


def main():
    compiled = torch.compile(nn.Sequential(Head(), nn.ReLU()), backend="eager")
    out = compiled(torch.ones(2, 4))
    torch.compile(loss, backend="eager")([out, out])


main()
"""
LINES = PROGRAM.split("\n")


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ladder")
    script = folder / "program.py"
    script.write_text(PROGRAM)
    recorded_here(script, folder / "run")
    script.unlink()  # what is shown was recorded
    found = ladder(dynadiag.load(folder / "run"))
    assert found.notes == ()
    return {one.name: one for one in found.functions}


def states(function):
    return [(LINES[rung.line - 1].strip(), rung.state) for rung in function.rungs if rung.state != "plain"]


def test_the_functions_stand_below_what_calls_them(functions):
    assert [(name, one.depth) for name, one in functions.items()] == [("main", 0), ("Head.forward", 1), ("Head.scaled", 2), ("loss", 1)]


def test_what_was_captured_and_what_broke(functions):
    assert states(functions["Head.forward"]) == [
        ("h = self.scaled(x)", "graph"),
        ('print("mid", h.shape)', "break"),
        ("h = h.relu()", "graph"),
        ("return h + 1", "graph"),
    ]
    assert states(functions["Head.scaled"]) == [("return self.linear(x) * 2", "graph")]
    assert functions["Head.scaled"].said.startswith("inlined into g")


def test_what_was_not_analysed(functions):
    assert states(functions["loss"]) == [
        ("total = 0.0", "eager"),
        ("for one in results:", "eager"),
        ("total = total + one.sum().item()", "break"),
        ("total = total * 2", "unseen"),
        ("return total", "unseen"),
    ]


def test_the_lines_of_a_caller_that_is_not_compiled_say_what_they_call(functions):
    rows = [(LINES[rung.line - 1].strip(), rung.state, rung.notes) for rung in functions["main"].rungs if rung.notes]
    assert rows == [
        ("out = compiled(torch.ones(2, 4))", "plain", ("calls Head.forward",)),
        ('torch.compile(loss, backend="eager")([out, out])', "plain", ("calls loss",)),
    ]
    assert not functions["main"].matters
