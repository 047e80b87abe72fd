"""A script runs unchanged up to the n-th call of what it compiled, and that call is handed over."""

from __future__ import annotations

import os
import random
import sys
import textwrap

import pytest
import torch
import torch._dynamo.output_graph as output_graph

import dynadiag
from dynadiag.capture.graph_watch import GraphWatch
from dynadiag.capture.script import ScriptEndedError, UserCodeError, is_out_of_memory, one_line, run_script
from dynadiag.capture.script_capture import ScriptCapture
from dynadiag.errors import UsageError
from dynadiag.trace import load


class Taken(BaseException):
    """Leaves the script in the middle of the call."""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Write a script; the process is afterwards as it was."""
    monkeypatch.setattr(torch, "compile", torch.compile)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    torch.compiler.reset()

    def write(source):
        path = tmp_path / "script.py"
        path.write_text("import torch\n" + textwrap.dedent(source))
        return str(path)

    yield write
    torch.compiler.set_stance("default")
    torch.compiler.reset()


@pytest.fixture
def capture(script):
    """The call of a script that is handed over, and what `look(call)` says while the script stands in it."""

    def capture(source, look=lambda call: None, **options):
        seen = []

        def hand_over(take):
            call = take()
            seen.append((call, look(call)))
            raise Taken

        with pytest.raises(Taken):
            ScriptCapture(script(source), hand_over=hand_over, **{"call": 3, **options}).run_until_taken()
        return seen[0]

    return capture


ADD = "f = torch.compile(lambda x: x + 1)\n"
KINDS = {
    "call": ("def step(x): return x\nstep = torch.compile(step)\ncalled = step\n", "step", None),
    "decorator": ("@torch.compile\ndef step(x): return x\ncalled = step\n", "step", None),
    "decorator with options": ("@torch.compile(fullgraph=True)\ndef step(x): return x\ncalled = step\n", "step", None),
    "module": ("net = torch.nn.ReLU()\ncalled = torch.compile(net)\n", "ReLU", "net"),
    "module in place": ("called = net = torch.nn.ReLU()\nnet.compile()\n", "ReLU", None),
    "method": (
        "class Model:\n    def step(self, x): return x\nmodel = Model()\nmodel.step = torch.compile(model.step)\ncalled = model.step\n",
        "Model.step",
        None,
    ),
    "decorated method": (
        "class Model:\n    @torch.compile\n    def step(self, x): return x\ncalled = Model().step\n",
        "Model.step",
        None,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_third_call_is_taken_whatever_is_compiled_and_however(capture, kind):
    source, name, original = KINDS[kind]
    source += "for number in range(9):\n    called(torch.full((2,), float(number)))\n"
    call, namespace = capture(source, lambda call: dict(vars(sys.modules["__main__"])))
    assert (call.number, call.callee.name, call.callee.number) == (3, name, 1)
    assert call.args[-1].tolist() == [2.0, 2.0] and call.kwargs == {}
    assert call.where.startswith(f"call 3 of {name} (script.py:")
    assert callable(call.callee.original) and (original is None or call.callee.original is namespace[original])
    assert dict(call.callee.options) == ({"fullgraph": True} if "options" in kind else {})
    assert torch.equal(call.callee.original(*call.args), torch.full((2,), 2.0))


def test_what_is_in_force_around_the_call_is_handed_over(capture):
    source = """
        import random
        model = torch.compile(torch.nn.Dropout().eval())
        torch.manual_seed(7), random.seed(7)
        for number in range(5):
            x = torch.rand(3)
            with torch.no_grad(), torch.autocast("cpu", enabled=number == 2):
                model(input=x)
    """

    def draw(call):
        drawn = torch.rand(1).item(), random.random()
        call.random.put_back()
        return drawn == (torch.rand(1).item(), random.random()), torch.is_autocast_enabled("cpu"), torch.is_grad_enabled()

    call, (same, autocast, grad) = capture(source, draw)
    assert same and autocast and not grad
    assert (call.mode.grad, call.mode.inference, call.mode.autocast, call.mode.training) == (False, False, ("cpu",), False)
    torch.manual_seed(7)
    expected = [torch.rand(3) for _ in range(3)][2]
    assert torch.equal(call.kwargs["input"], expected), "the draws of the script are its own"


def test_nothing_is_compiled_on_the_way_and_torch_compiles_as_always_afterwards(capture):
    def look(call):
        torch.compiler.set_stance("default")
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph

        torch.compile(call.callee.original, backend=backend)(*call.args)
        return graphs, sys.modules["__main__"].graphs

    source = """
        graphs = []
        def backend(graph, inputs):
            graphs.append(graph)
            return graph
        f = torch.compile(lambda x: x + 1, backend=backend)
        for _ in range(3): f(torch.ones(2))
    """
    _, (after, before) = capture(source, look)
    assert len(after) == 1 and before == []


def test_a_call_that_another_compiled_callable_makes_is_none(capture):
    source = """
        inner = torch.compile(lambda x: x + 1)
        outer = torch.compile(lambda x: inner(x) * 2)
        for _ in range(3):
            outer(torch.ones(1))
    """
    call, _ = capture(source)
    assert call.callee.number == 2 and call.number == 3


SEVERAL = """
    def one(x):
        return x + 1

    def two(x):
        return x + 2

    one, two = torch.compile(one), torch.compile(two)
    for _ in range(4):
        two(one(torch.zeros(2)))
"""


def test_several_callables_are_listed_and_one_can_be_chosen(capture):
    with pytest.raises(UsageError, match=r"several compiled callables: 1: one \(script.py:9\), 2: two \(script.py:9\); choose one"):
        capture(SEVERAL)
    for chosen in ("two", "2"):
        call, result = capture(SEVERAL, lambda call: call.callee.original(*call.args).tolist(), chosen=chosen)
        assert (call.callee.name, call.number, result) == ("two", 3, [3.0, 3.0])
    with pytest.raises(ScriptEndedError, match="compiles no 'three', but 1: one"):
        capture(SEVERAL, chosen="three")


def test_of_several_callables_the_one_with_most_operators_is_taken_and_that_is_said(capture):
    """A U-Net and its loss: the script ran for 14 s and was then asked about."""
    source = """
        def net(x):
            return (x * 2).relu().sin() + 1

        def loss(x):
            return x.mean()

        loss, net = torch.compile(loss), torch.compile(net)
        loss(torch.ones(2))
        for _ in range(4):
            loss(net(torch.ones(2)))
    """
    call, _ = capture(source)
    assert (call.callee.name, call.number) == ("net", 3)
    assert (
        call.where == "call 3 of net (script.py:9), with more operators (4) than the other compiled callable, which --callable can choose"
    )
    assert capture(source, chosen="loss")[0].where == "call 3 of loss (script.py:9)"


def test_the_first_of_several_layers_from_one_line_is_taken(capture):
    source = """
        layers = [torch.nn.Linear(3, 3) for _ in range(4)]
        for layer in layers:
            layer.compile()
        x = torch.randn(2, 3)
        for _ in range(3):
            for layer in layers:
                x = layer(x)
    """
    call, _ = capture(source)
    assert (call.callee.number, call.callee.name, call.number) == (1, "Linear", 3)


@pytest.mark.parametrize(
    ("source", "calls", "says"),
    [
        ("print('nothing')", 0, "ended and compiled nothing"),
        ("torch.compile(torch.nn.ReLU())", 0, "never called what it compiled: ReLU (script.py:2)"),
        (f"{ADD}f(torch.ones(1)), f(torch.ones(1))", 2, "ended before call 3 of a compiled callable"),
        (f"{ADD}f(torch.ones(1))\nimport sys\nsys.exit(7)", 1, "ended with exit status 7 before call 3"),
        (f"{ADD}f(torch.ones(1))\nexit()", 1, "script.py ended before call 3"),
        ("import torch\nf = torch.compile(lambda x: x, disable=True)\nfor _ in range(9): f(1)", 0, "compiled nothing"),
    ],
)
def test_a_script_that_ends_before_says_how_many_calls_there_were(capture, source, calls, says):
    with pytest.raises(ScriptEndedError) as caught:
        capture(source)
    assert caught.value.calls == calls and says in caught.value.message


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise ValueError('no data\\nat all')", "script.py raised ValueError: no data, before call 3 of a compiled callable"),
        (f"{ADD}f(1, 2)", "raised TypeError: .*, before call 3 of a compiled callable"),
        ("def f(:", "raised SyntaxError: .*, before call 3 of a compiled callable"),
    ],
)
def test_a_script_that_raises_is_one_line(capture, source, says):
    main = sys.modules["__main__"]
    with pytest.raises(UserCodeError, match=says) as caught:
        capture(source)
    assert "\n" not in caught.value.message and sys.modules["__main__"] is main


def test_memory_that_is_missing_is_told_as_that(capture):
    with pytest.raises(MemoryError):
        capture("raise MemoryError")


def test_a_script_that_waits_for_torchrun_is_told_to_run_alone(capture, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserCodeError, match="RANK expected, but not set, before call 3 of a compiled callable; bench runs one process"):
        capture("import torch.distributed\ntorch.distributed.init_process_group('gloo')")


def test_a_script_is_the_main_module_and_inherits_nothing_of_ours(script):
    source = """
        import sys, beside
        def typed(x: int) -> None: ...
        assert typed.__annotations__ == {"x": int, "return": None}
        assert __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
        assert __file__.endswith("script.py") and sys.argv[1:] == ["--lr", "3"]
        sys.exit(beside.STATUS)
    """
    path = script(source)
    with open(os.path.join(os.path.dirname(path), "beside.py"), "w") as file:
        file.write("STATUS = 5")
    try:
        assert run_script(path, ["--lr", "3"], watched={}) == " with exit status 5"
    finally:
        sys.modules.pop("beside", None)


def test_the_error_of_a_compiler_names_its_cause_and_whether_memory_was_missing():
    def greedy(_graph, _inputs):
        raise MemoryError("no more")

    torch.compiler.reset()
    torch.compiler.set_stance("default")
    with pytest.raises(Exception, match="greedy") as raised:
        torch.compile(lambda x: x + 1, backend=greedy)(torch.ones(2))
    assert one_line(raised.value) == "BackendCompilerFailed: backend='greedy' raised: MemoryError: no more"
    assert is_out_of_memory(raised.value) and is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."))
    assert not is_out_of_memory(ValueError("memory"))
    assert [one_line(ValueError(text)) for text in ("", "a\nb", "a:\n\n b \nc")] == ["ValueError", "ValueError: a", "ValueError: a: b"]


THIRD = """
    import itertools

    def wrong_at_the_third(graph, inputs):
        calls = itertools.count(1)
        def run(*args):
            (result,) = graph(*args)
            return (result + 10 * args[0] if next(calls) == 3 else result,)
        return run

    @torch.compile(backend=wrong_at_the_third)
    def step(x):
        return x * 2

    for number in range(5):
        step(torch.full((2, 3), float(number)))
"""


def test_bench_minify_and_parity_stop_at_the_same_call_with_the_same_inputs(capture, script, tmp_path, monkeypatch):
    """What `bench` takes over, what `minify` writes, and what `parity` compares with eager while the script runs."""
    call, _ = capture(THIRD)
    bench = call.number, call.args[0]
    torch.compiler.set_stance("default")
    monkeypatch.setattr(output_graph.OutputGraph, "call_user_compiler", output_graph.OutputGraph.call_user_compiler)
    (tmp_path / "capture").mkdir()
    GraphWatch(str(tmp_path / "capture"), graph=0, call=3).attach(output_graph)
    with dynadiag.observe(tmp_path / "run", parity_calls=5):
        run_script(script(THIRD), [], watched={})
    assert not (tmp_path / "capture/problems.txt").exists()
    saved = torch.load(tmp_path / "capture/graph-0/inputs.pt", weights_only=True)
    minify = saved["call"], saved["inputs"][0]
    (wrong,) = [one for one in load(tmp_path / "run").parity if one.verdict == "different"]
    (difference,) = wrong.differences
    parity = wrong.call, torch.full((2, 3), difference.largest / 10)
    for number, inputs in (bench, minify, parity):
        assert number == 3 and torch.equal(inputs, torch.full((2, 3), 2.0))
