"""Whole scripts by their loop: which loop makes the steps, and running it on command."""

from __future__ import annotations

import sys
import textwrap

import pytest
import torch

from dynadiag.bench.inside.looping import LoopRun, find_loop
from dynadiag.capture.script import ScriptEndedError, UserCodeError
from dynadiag.errors import DynadiagError, UsageError
from dynadiag.torch_compat.dynamo.counters import clear_compile_facts, compile_facts, keep_all_metrics

pytestmark = pytest.mark.oldest


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", torch.compile)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def write(source):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(source).lstrip("\n"))
        return str(path)

    torch.compiler.reset()
    clear_compile_facts()
    yield write
    torch.compiler.reset()


TRAINING = """
    import sys, torch
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(batches):
        for batch in batches:
            net(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    if sys.argv[1] == "compiled":
        net = torch.compile(net, backend="eager")
    for epoch in range(2):
        for number in range(int(sys.argv[2])):
            step([torch.randn(2, 4)] * 2)
"""


def test_the_loop_around_the_optimizers_step_is_found_through_the_function_that_makes_it(script):
    for kind in ("plain", "compiled"):
        found = find_loop(script(TRAINING), [kind, "5"])
        assert (found.line, found.what) == (14, "the innermost around optimizer.step")


def test_without_an_optimizer_the_calls_of_what_is_compiled_decide(script):
    source = """
        import torch
        f = torch.compile(lambda x: x + 1)
        while True:
            for x in torch.zeros(3, 2): f(x)
    """
    found = find_loop(script(source), [])
    assert (found.line, found.what) == (4, "the innermost around the calls of what is compiled")


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        ("import torch\nprint('nothing')", UsageError, "neither did an optimizer step twice"),
        ("import torch\nf = torch.compile(abs)\n[f(-1) for _ in range(9)]", UsageError, "in no loop of that file"),
        ("import torch\nfor _ in range(3):\n    def g(x): return x\nf = torch.compile(g)\n(f(1), f(1), f(1), f(1))", UsageError, "no loop"),
        ("raise ValueError('broken')", UserCodeError, "raised ValueError: broken"),
    ],
)
def test_a_script_without_such_a_loop_is_one_line(script, source, error, says):
    with pytest.raises(error, match=says):
        find_loop(script(source), [])


def test_a_break_at_a_branch_on_data_is_counted_as_any_other():
    """Dynamo's own counter leaves it out."""

    def breaks_twice(x):
        if x.sum() > 0:
            x = x + 1
        print(x.shape)
        return x * 2

    keep_all_metrics()
    keep_all_metrics()
    clear_compile_facts()
    torch.compile(breaks_twice, backend="eager")(torch.ones(3))
    assert (compile_facts()["graphs"], compile_facts()["breaks"]) == (3, 2)
    clear_compile_facts()
    assert compile_facts()["breaks"] == 0


class Done(BaseException):
    """Leaves the script when there are no more commands."""


def run(path, arguments, line, commands):
    """The answers to these commands."""
    waiting, answers = list(commands), []

    def receive():
        if not waiting:
            raise Done
        return waiting.pop(0)

    def answer(work):
        try:
            answers.append(work())
        except DynadiagError as error:
            answers.append(error)

    try:
        LoopRun(path, arguments, line, receive, answer).run_to_end()
    except (Done, DynadiagError) as end:
        return answers, end
    raise AssertionError("a loop never just ends")


def test_iterations_run_on_command_and_are_counted(script, monkeypatch):
    path = script(TRAINING + "            print('iteration', epoch, number)\n")
    seen = []
    monkeypatch.setattr("builtins.print", lambda *words: seen.append(words))
    answers, end = run(path, ["compiled", "100000"], 14, [{"do": "warm"}, {"do": "block", "calls": 3}, {"do": "finish"}])
    assert isinstance(end, Done)
    about, warmed, block, looked = answers
    assert about["torch"] == torch.__version__
    assert warmed["still"] and warmed["graphs"] == 1 and warmed["breaks"] == 0
    assert block["calls"] == 3 and block["device_s"] is None and not block["late"]
    assert looked["regions"] == 2, "two calls of the compiled module in each iteration"
    assert len(seen) == warmed["calls"] + 3 + 3


def test_a_script_that_runs_out_of_iterations_says_how_many_there_were(script):
    answers, end = run(script(TRAINING), ["plain", "4"], 14, [{"do": "block", "calls": 3}, {"do": "block", "calls": 99}])
    assert isinstance(end, ScriptEndedError) and "script.py:14 came to its end after 8 steps" in end.message
    assert len(answers) == 2 and answers[1]["calls"] == 3
    _, end = run(script(TRAINING), ["plain", "4"], 14, [{"do": "warm"}])
    assert "came to its end after 8 steps; let the script make more: at least 0.3 s" in end.message


def test_a_loop_inside_something_compiled_is_refused(script):
    source = """
        import torch
        def many(x):
            for _ in range(4):
                x = x + 1
            return x
        torch.compile(many, backend="eager")(torch.ones(2))
    """
    answers, end = run(script(source), [], 3, [])
    assert isinstance(end, Done)
    assert isinstance(answers[0], UsageError) and "is itself inside something compiled" in answers[0].message


def test_a_line_without_a_loop_is_one_line(script):
    with pytest.raises(UsageError, match="has no loop at line 2"):
        LoopRun(script("x = 1\ny = 2\n"), [], 2, dict, lambda work: work()).run_to_end()
