"""A script is taken over at the n-th call of what it compiled, with everything as it is there."""

from __future__ import annotations

import json
import os
import sys
import textwrap

import pytest
import torch

from dynadiag.bench.inside.loading import CompileSwitch, load_step
from dynadiag.bench.inside.main import Server
from dynadiag.bench.inside.reference import change_inputs
from dynadiag.bench.inside.script_step import ScriptStep
from dynadiag.capture.reach import find_state, take_snapshot
from dynadiag.errors import UsageError
from dynadiag.torch_compat.dynamo.counters import clear_compile_facts, compile_facts

pytestmark = pytest.mark.oldest


class Taken(BaseException):
    """Leaves the script in the middle of the call."""


@pytest.fixture
def take(tmp_path, monkeypatch):
    """Run a script until it is taken over; gives what `look(unit)` says at that moment."""
    real = torch.compile
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def take(source, look=lambda unit: unit, *, arm="compiled", call=3, chosen=None, arguments=(), backend="aot_eager"):
        monkeypatch.setattr(torch, "compile", real)
        torch.compiler.set_stance("default")
        path = tmp_path / "script.py"
        path.write_text("import torch\n" + textwrap.dedent(source))
        seen = []

        def hand_over(make):
            seen.append(look(make()))
            raise Taken

        overrides = {} if arm == "eager" else {"backend": backend}
        switch = CompileSwitch(arm=arm, overrides=overrides)
        with pytest.raises(Taken):
            ScriptStep(str(path), arguments=arguments, call=call, chosen=chosen, switch=switch, hand_over=hand_over).run_until_taken()
        return seen[0]

    torch.compiler.reset()
    yield take
    torch.compiler.set_stance("default")
    torch.compiler.reset()


MODULE = """
    import sys

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, int(sys.argv[1]))
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x, *, scale):
            self.seen += 1
            return torch.relu(self.linear(x)) * scale

    net = Net()
    model = torch.compile(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(9):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.full((2, 4), float(number)), scale=0.5)
        out.sum().backward()
        optimizer.step()
"""


def test_a_module_is_taken_over_at_its_third_call_as_it_is_there(take):
    def look(unit):
        seen = unit.original.seen.item()
        output = unit.run_step(unit.original)
        return unit, seen, output, torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), __import__("__main__").__file__

    unit, seen, output, autocast, grad, main = take(MODULE, look, arguments=("6",))
    assert seen == 2, "two calls were made before"
    assert unit.arguments[0].tolist() == [[2.0] * 4] * 2 and unit.keywords == {"scale": 0.5}
    assert autocast and grad and output.dtype is torch.bfloat16 and output.shape == (2, 6)
    assert unit.what == "forward and backward with fixed cotangents, call 3 of Net (script.py:16)"
    assert unit.original.linear.weight.grad is not None
    assert main.endswith("script.py")


def test_both_arms_arrive_with_the_same_state_and_only_one_compiles(take, monkeypatch):
    def look(unit):
        torch.compiler.reset()
        clear_compile_facts()
        state = {name: held.tensor.clone() for name, held in find_state(unit.original, unit.arguments).held.items()}
        unit.run_step()
        return state, compile_facts()["graphs"]

    asked, real = [], torch._dynamo.optimize
    monkeypatch.setattr(
        torch._dynamo, "optimize", lambda *args, **options: asked.append(type(options["backend"]).__name__) or real(*args, **options)
    )
    eager, none = take(MODULE, look, arm="eager", arguments=("3",))
    assert len(asked) == 1 and "Inductor" not in asked[0], "torch would import inductor for it"
    compiled, graphs = take(MODULE, look, arguments=("3",))
    assert (none, graphs) == (0, 1)
    assert eager.keys() == compiled.keys() and all(torch.equal(eager[name], compiled[name]) for name in eager)


def test_what_is_compiled_inside_is_inlined_and_no_candidate(take):
    source = """
        inner = torch.compile(lambda x: x.sin())

        class Part(torch.nn.Module):
            def forward(self, x):
                return inner(x) + 1

        part = torch.compile(Part())

        @torch.compile(fullgraph=True)
        def outer(x):
            return part(x) * 2

        with torch.no_grad():
            for _ in range(3):
                outer(torch.randn(3))
    """

    def look(unit):
        clear_compile_facts()
        output, facts = unit.run_step(), compile_facts()
        with torch.compiler.set_stance("force_eager"):
            return unit.what, torch.is_grad_enabled(), output, unit.run_step(unit.original), facts

    what, grad, output, eager, facts = take(source, look)
    assert what == "forward, call 3 of outer (script.py:11)" and not grad
    assert torch.equal(output, eager)
    assert (facts["graphs"], facts["breaks"], facts["recompiles"]) == (1, 0, 0)


def test_a_call_that_runs_its_own_backward_gets_no_other(take):
    source = """
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters())

        @torch.compile
        def train_step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(4):
            train_step(torch.randn(8, 4))
    """

    def look(unit):
        steps = [value["step"].item() for value in find_state(unit.original).optimizers["optimizer"].state.values()]
        unit.run_step(unit.original)
        return unit.what, steps

    what, steps = take(source, look, arm="eager")
    assert what.startswith("the call, including the backward that it runs itself, call 3 of train_step")
    assert steps == [2.0] * 4, "finding that out left no trace"


OPTIMIZER = """
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())

    @torch.compile
    def step():
        optimizer.step()

    @torch.compile
    def descend():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad

    @torch.compile
    @torch.no_grad()
    def evaluate(x):
        return model(x)

    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        CALL
"""


@pytest.mark.parametrize(("call", "keeps"), [("step()", True), ("descend()", True), ("evaluate(torch.ones(4, 3))", False)])
def test_a_call_that_reads_gradients_has_those_of_the_script(take, call, keeps):
    def look(unit):
        after = [held.tensor for held in find_state(unit.original).held.values() if held.kind == "parameter"]
        before = [parameter.clone() for parameter in after]
        unit.run_step(unit.original)
        moved = [not torch.equal(one, other) for one, other in zip(before, after, strict=True)]
        return moved, [parameter.grad is not None for parameter in after], unit.what

    moved, gradients, what = take(OPTIMIZER.replace("CALL", call), look, arm="eager")
    assert moved == gradients == [keeps] * 2
    assert what.startswith("the call, with the gradients that it finds, call 3 of" if keeps else "forward, call 3 of")


def test_an_input_that_other_operations_made_is_cut_from_them(take):
    source = """
        first = torch.nn.Linear(4, 4)
        block = torch.nn.Linear(4, 4)
        block.compile()
        for _ in range(3):
            block(first(torch.randn(2, 4)))
    """

    def look(unit):
        for _ in range(2):
            unit.run_step(unit.original)
        return unit

    unit = take(source, look)
    assert unit.arguments[0].is_leaf and unit.arguments[0].grad is not None
    assert "Linear" in unit.what and "forward and backward" in unit.what


def test_a_process_group_of_one_meets_nobody_and_a_larger_one_is_refused(take, monkeypatch):
    """Arms live beside each other: with a port each would find that of the first in use, or wait for ranks that nobody starts."""
    for module in (torch.distributed, torch.distributed.distributed_c10d):
        monkeypatch.setattr(module, "init_process_group", torch.distributed.init_process_group)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "nowhere.invalid", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    source = """
        import torch.distributed as dist
        dist.init_process_group("gloo")
        model = torch.compile(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4)))
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
    """
    try:
        assert take(source, lambda unit: unit.run_step(unit.original).shape) == (2, 4)
    finally:
        torch.distributed.destroy_process_group()
    for two in ("rank=0, world_size=2, init_method='tcp://nowhere.invalid:1'", "init_method='env://'"):
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(UsageError, match="starts a process group of 2: run it alone, as one rank"):
            take(f"import torch.distributed\ntorch.distributed.init_process_group('gloo', {two})")


def test_restoring_puts_back_parameters_buffers_inputs_and_random_numbers(take):
    source = """
        import random
        import numpy

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(3))
                self.register_buffer("mean", torch.zeros(3))
                self.cache = torch.zeros(3)
                self.hidden = (torch.zeros(3), torch.zeros(3))
                self.last = {}
                self.calls = 0

            def forward(self, x, table):
                self.calls += 1
                self.hidden = tuple(part + 1 for part in self.hidden)
                self.last = {"x": x, "before": self.last}
                self.mean.add_(x)
                self.cache = self.cache + random.random() + numpy.random.rand()
                table["seen"].mul_(2)
                x.add_(torch.rand(3))
                with torch.no_grad():
                    self.weight.mul_(0.5)
                return x * self.weight

        torch.manual_seed(11)
        model = torch.compile(Net())
        table = {"seen": torch.ones(3)}
        for _ in range(3):
            model(torch.zeros(3), table)
    """

    def look(unit):
        first = {}
        snapshot = take_snapshot(find_state(unit.original, unit.arguments, unit.keywords))
        for number in range(2):
            snapshot.restore()
            before = [unit.arguments[0].tolist(), unit.arguments[1]["seen"].tolist(), unit.original.weight.tolist()]
            before += [unit.original.mean.tolist(), unit.original.cache.tolist(), unit.original.calls]
            before += [[part.tolist() for part in unit.original.hidden], list(unit.original.last["before"])]
            addresses = [unit.original.weight.data_ptr(), unit.original.mean.data_ptr(), unit.arguments[0].data_ptr()]
            output = unit.run_step(unit.original)
            after = [output.tolist(), unit.original.cache.tolist(), unit.original.weight.grad.tolist(), unit.arguments[0].tolist()]
            first[number] = (before, addresses, after)
        return first

    runs = take(source, look, arm="eager")
    assert runs[0] == runs[1]
    before, _, after = runs[0]
    assert before[:3] == [[0.0] * 3, [4.0] * 3, [0.25] * 3] and before[5] == 2
    assert before[6:] == [[[2.0] * 3] * 2, ["x", "before"]]
    assert after[0] != after[1] != [0.0] * 3


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ones", "is a coroutine or a generator function"),
        ("later", "is a coroutine or a generator function"),
        ("number", "is a int, not a callable"),
    ],
)
def test_what_runs_nothing_when_it_is_called_is_refused(tmp_path, monkeypatch, name, says):
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "steps_that_wait.py").write_text("def ones():\n    yield 1\n\nasync def later():\n    return 1\n\nnumber = 3\n")
    switch = CompileSwitch(arm="eager", overrides={})
    with pytest.raises(UsageError, match=says):
        load_step(f"{tmp_path / 'steps_that_wait.py'}:{name}", switch)
    with pytest.raises(UsageError, match=r"missing.py does not exist"):
        load_step(f"{tmp_path / 'missing.py'}:{name}", switch)


def test_a_step_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "steps.py").write_text("")
    switch = CompileSwitch(arm="eager", overrides={})
    with pytest.raises(UsageError, match="has no 'missing'"):
        load_step(f"{tmp_path / 'steps.py'}:missing", switch)
    with pytest.raises(UsageError, match="cannot find a module 'no_such_module_here'"):
        load_step("no_such_module_here:step", switch)


def test_a_call_that_leaves_the_program_is_told_as_that():
    (commands, feed), (heard, replies) = os.pipe(), os.pipe()
    server = Server(commands, replies)
    server._answer(lambda: sys.exit(7))
    with os.fdopen(heard) as lines, os.fdopen(feed), server._commands, os.fdopen(replies):
        reply = json.loads(lines.readline())
    assert reply == {"error": "user-code", "text": "the program exited with status 7"}


CASTS = """
    import sys

    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8, bias=False))
    model = torch.compile(net)
    if sys.argv[1] == "each":
        for _ in range(4):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                model(torch.ones(2, 8))
    else:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for _ in range(4):
                model(torch.ones(2, 8))
"""


@pytest.mark.parametrize(("scope", "again"), [("each", True), ("all", False)])
def test_weights_are_cast_anew_where_they_were_written_or_the_script_casts_them_anew(take, scope, again):
    def look(unit):
        state = find_state(unit.original, unit.arguments)
        snapshot = take_snapshot(state)
        first = unit.run_step(unit.original)
        with torch.no_grad():
            unit.original[1].weight.mul_(2)
        timed = unit.run_step(unit.original)
        snapshot.restore()
        change_inputs(state.held)
        changed = unit.run_step(unit.original)
        torch.clear_autocast_cache()
        return first, timed, changed, unit.run_step(unit.original)

    first, timed, changed, truth = take(CASTS, look, arguments=(scope,))
    assert not torch.equal(first, changed) and torch.equal(changed, truth), "eager must not go on with the casts of overwritten weights"
    assert torch.equal(first, timed) is not again, "what is timed casts as often as the script does"
