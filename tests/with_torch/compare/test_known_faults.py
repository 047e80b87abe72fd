"""Known silent faults of torch that plain `explain` predicts, and their right twins, on the newest and the oldest torch."""

from collections import deque

import pytest
import torch
from torch import nn

import dynadiag
from dynadiag.passes.find_known_faults import find_known_faults
from dynadiag.record import inside
from dynadiag.trace import load


@pytest.fixture
def found(tmp_path):
    """Runs a program under plain `observe`, and gives code lines of what is predicted."""

    def run(program):
        torch._dynamo.reset()
        with dynadiag.observe(tmp_path / "run"):
            program()
        run = load(tmp_path / "run")
        assert [problem.text for problem in run.problems if problem.kind == "recorder"] == []
        return [finding.where.code for finding in find_known_faults(run).findings]

    return run


def compiled(function):
    return torch.compile(function, backend="aot_eager")


class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.window = deque([torch.tensor(1.0), torch.tensor(2.0)], maxlen=2)


class ReadsAfterwards(Window):
    def forward(self, x):
        self.window.append(x.mean())
        return sum(self.window)


class ReadsBefore(Window):
    def forward(self, x):
        oldest = self.window[0]
        self.window.append(x.mean())
        return oldest * x


def caught(x):
    try:
        return torch.linalg.cholesky(x)
    except RuntimeError:
        return x * 0


def caught_otherwise(x):
    try:
        return torch.linalg.cholesky(x)
    except KeyError:
        return x * 0


def caught_by_status(x):
    factor, status = torch.linalg.cholesky_ex(x)
    return torch.where(status == 0, factor, x * 0)


def call(function, *values):
    compiled(function)(*values)


def hook_after(net, register):
    def program():
        step = compiled(net)
        step(torch.ones(2))
        register(net)
        step(torch.ones(2))

    return program


def double(module, args, out):
    return out * 2


def test_a_full_deque_that_is_read_after_an_append(found):
    assert found(lambda: call(ReadsAfterwards(), torch.ones(3))) == ["self.window.append(x.mean())"]


def test_a_deque_whose_oldest_is_read_before_the_append(found):
    assert found(lambda: call(ReadsBefore(), torch.ones(3))) == []


def test_a_deque_with_room(found):
    net = ReadsAfterwards()
    net.window = deque([torch.tensor(1.0)], maxlen=3)
    assert found(lambda: call(net, torch.ones(3))) == []


def test_a_deque_without_a_limit(found):
    net = ReadsAfterwards()
    net.window = deque([torch.tensor(1.0)])
    assert found(lambda: call(net, torch.ones(3))) == []


def test_a_hook_that_comes_later(found):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def register(net):
        net[0].register_forward_hook(double)

    assert found(hook_after(net, register)) == ["net[0].register_forward_hook(double)"]


def test_a_hook_that_was_there(found):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net[0].register_forward_hook(double)
    assert found(hook_after(net, lambda net: None)) == []


def test_a_second_hook_is_guarded(found):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net[0].register_forward_hook(double)
    assert found(hook_after(net, lambda net: net[0].register_forward_hook(double))) == []


def test_a_hook_after_a_reset(found):
    def program():
        net = nn.Linear(2, 2)
        compiled(net)(torch.ones(2))
        torch.compiler.reset()
        net.register_forward_hook(double)
        compiled(net)(torch.ones(2))

    assert found(program) == []


def test_a_hook_where_hooks_are_guarded(found):
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        assert found(hook_after(nn.Linear(2, 2), lambda net: net.register_forward_hook(double))) == []


def test_a_hook_on_what_was_not_compiled(found):
    assert found(hook_after(nn.Linear(2, 2), lambda net: nn.Linear(2, 2).register_forward_hook(double))) == []


def test_an_except_around_an_operator_of_a_graph(found):
    assert found(lambda: call(caught, torch.eye(2))) == ["return torch.linalg.cholesky(x)"]


@pytest.mark.parametrize("function", [caught_otherwise, caught_by_status])
def test_an_except_that_takes_something_else_or_none(found, function):
    assert found(lambda: call(function, torch.eye(2))) == []


def parts(x):
    for number in range(2):
        yield x * number


def hands_out(x):
    return parts(x)


def takes_in(x):
    return list(parts(x)), sum(parts(x))


def hands_out_with_more(x):
    return x + 1, {"parts": parts(x)}


@pytest.mark.parametrize(("function", "code"), [(hands_out, "return parts(x)"), (hands_out_with_more, 'return x + 1, {"parts": parts(x)}')])
def test_a_generator_that_leaves_compiled_code(found, function, code):
    assert found(lambda: call(function, torch.ones(2))) == [code]


def test_a_generator_that_is_used_up_in_compiled_code(found):
    assert found(lambda: call(takes_in, torch.ones(2))) == []


def built_with(scale, **options):
    def program():
        compiled(torch.sin)(torch.ones(2))
        torch.distributions.Normal(torch.zeros(2), scale, **options)

    return program


def test_arguments_of_a_distribution_that_nobody_checks(found):
    code = "torch.distributions.Normal(torch.zeros(2), scale, **options)"
    assert found(built_with(torch.tensor([1.0, -1.0]))) == [code]
    with pytest.raises(ValueError, match="Expected parameter scale"):
        built_with(-torch.ones(2), validate_args=True)()


@pytest.mark.parametrize("options", [{"scale": torch.ones(2)}, {"scale": -torch.ones(2), "validate_args": False}])
def test_arguments_of_a_distribution_that_are_right_or_were_not_to_be_checked(found, options):
    assert found(built_with(**options)) == []


@pytest.fixture
def other_recorder(monkeypatch):
    """What a program chose holds for its whole process: another one here, so that further tests do not see it."""
    monkeypatch.setattr(inside, "_active", None)
    monkeypatch.setattr(inside.atexit, "register", lambda function: None)


def test_checks_that_the_program_turned_off(other_recorder, found):
    def program():
        compiled(torch.sin)(torch.ones(2))
        torch.distributions.Distribution.set_default_validate_args(False)
        torch.distributions.Normal(torch.zeros(2), -torch.ones(2))

    assert found(program) == []


def test_a_distribution_in_compiled_code_is_traced_as_without_us(found):
    def sample(scale):
        return torch.distributions.Normal(torch.zeros(2), scale).log_prob(torch.ones(2))

    graphs = []

    def count(module, inputs):
        graphs.append(str(module.graph))
        return module.forward

    torch._dynamo.reset()
    expected = torch.compile(sample, backend=count, fullgraph=True)(torch.ones(2))
    torch._dynamo.reset()
    assert found(lambda: torch.compile(sample, backend=count, fullgraph=True)(torch.ones(2))) == []
    assert len(graphs) == 2 and graphs[0] == graphs[1] and expected.shape == (2,)
