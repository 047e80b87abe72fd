"""Parts of compiled modules that are called by themselves: what their calls ran is counted, and no call sees that it was looked at."""

import runpy

import pytest

from dynadiag import report as reports
from dynadiag import trace
from dynadiag.facts.compiled_work import compiled_work
from dynadiag.render import wording
from dynadiag.torch_compat.trace import compiled_work as compiled_work_meter
from dynadiag.torch_compat.trace import eager_methods

PROGRAM = """
import inspect
import sys
import types
import warnings

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.fast = torch.compile(nn.Linear(4, 4), backend="eager")
        self.steps = 0

    def forward(self, x):
        return self.body(x).relu()

    def loss(self, x, *, scale=1):
        warnings.warn("looked", stacklevel=2)
        seen.append((len(inspect.stack()), sys._getframe(1).f_code.co_name))
        return (self.body(x).square() * scale).mean()

    def count(self):
        self.steps += 1

    @torch.no_grad()
    def score(self, x):
        return self.body(x).exp().sum()

    def partly(self, x):
        return self.fast(x) + 1

    @torch.compiler.disable
    def meant(self, x):
        return x.sin()

    def kept(self, x):
        return x.cos()

    def stream(self, x):
        yield x.exp()

    def fails(self, x):
        raise ValueError(x.tan().sum().item())


def step(x):
    net(x).sum().backward()
    net.loss(x, **{"scale": 2}).backward()
    net.count()
    net.score(x + 1)
    net.head(x)
    net.partly(x)
    net.meant(x)
    kept = net.kept
    assert type(kept) is types.MethodType
    kept(x)
    list(net.stream(x))
    net.quick(x)
    net.body(x)
    try:
        net.fails(x)
    except ValueError as error:
        trace = error.__traceback__
        failed.append([trace.tb_frame.f_code.co_name, trace.tb_next.tb_frame.f_code.co_name, trace.tb_next.tb_next])


def quick(x):
    return x.sinh()


seen, failed = [], []
net = torch.compile(Net(), backend="eager")
net.quick = torch.compile(quick, backend="eager")
x = torch.ones(2, 4)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(4):
        step(x)
print(len(set(seen)), seen[0][1], {(one.filename == __file__, one.lineno) for one in caught if "looked" in str(one.message)})
print(failed[0] == failed[1] == failed[2], failed[0], torch.autograd._profiler_enabled())
"""


@pytest.fixture(autouse=True)
def calls_are_short(monkeypatch):
    """However busy the machine is, and deep the stack of a test."""
    for module, name in ((compiled_work_meter, "_LONGEST_S"), (eager_methods, "_LONGEST_S"), (eager_methods, "_LONGEST_WITH_STACK_S")):
        monkeypatch.setattr(module, name, 600.0)


def test_what_a_part_of_a_compiled_module_runs_is_counted_and_its_calls_are_as_they_were(run_here, tmp_path, capsys):
    recorded = run_here(PROGRAM, tmp_path / "run")
    told = capsys.readouterr().out
    runpy.run_path(str(tmp_path / "script.py"), run_name="__main__")
    assert told == capsys.readouterr().out
    assert recorded.problems("recorder") == []
    run = trace.load(tmp_path / "run")
    found = {one.function: (one.outside, one.eager.calls) for one in run.work if one.eager is not None}
    # linear, pow, mul, mean | linear, exp, sum: the argument `x + 1` is not the method's | linear, relu | linear | tan, sum, item
    counted = {"Net.loss": (4, 4), "Net.score": (3, 4), "Net.head": (2, 4), "Net.body": (1, 4), "Net.fails": (3, 4)}
    assert found == {**counted, "Net.count": (0, 4), "Net.stream": (0, 4)}
    report = reports.build(run)
    findings = {one.title.rpartition(": ")[2]: one for one in report.findings if one.code == "DF15"}
    assert set(findings) == set(counted)
    loss = findings["Net.loss"]
    assert (loss.where.code, loss.severity) == ('net.loss(x, **{"scale": 2}).backward()', "warning")
    assert loss.fix[0].after == 'net.loss = torch.compile(net.loss, backend="eager")'
    assert loss.why.startswith("Called 4 times. One of these calls was counted: it ran 4 operators, none of them compiled")
    assert findings["Net.head"].fix[0].after == 'head = torch.compile(net.head, backend="eager")'
    work = compiled_work(run)
    assert work.eager == tuple(sorted(counted))
    assert "and of Net.body, Net.fails" in wording.compiled_work(work)


def test_a_method_that_is_compiled_is_no_finding(run_here, tmp_path):
    source = """
        import torch

        class Net(torch.nn.Module):
            def forward(self, x):
                return x + 1

            def loss(self, x):
                return x.square().mean()

        net = torch.compile(Net(), backend="eager")
        net.loss = torch.compile(net.loss, backend="eager")
        for _ in range(3):
            net(torch.ones(3))
            net.loss(torch.ones(3))
    """
    run_here(source, tmp_path / "run")
    run = trace.load(tmp_path / "run")
    assert [one.function for one in run.work if one.eager is not None] == []
    assert [one.code for one in reports.build(run).findings] == []


def test_a_method_that_two_lines_call_once_each_is_counted_at_the_second(run_here, tmp_path):
    source = """
        import torch

        class Net(torch.nn.Module):
            def forward(self, x):
                return x + 1

            def loss(self, x):
                return x.square().mean()

        net = torch.compile(Net(), backend="eager")
        net.loss(torch.ones(3))
        net.loss(torch.ones(3))
    """
    run_here(source, tmp_path / "run")
    (one,) = (one for one in trace.load(tmp_path / "run").work if one.eager is not None)
    assert (one.function, one.outside, one.call, one.eager.calls, one.eager.stack[-1].line) == ("Net.loss", 2, 1, 1, 13)
