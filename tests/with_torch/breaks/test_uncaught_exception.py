"""A double backward through a compiled function ends the program; each advice for it is applied and works."""

import subprocess
import sys

import dynadiag
from dynadiag.record import RecordOptions, Target, record

SCRIPT = """
import torch


def cubes(x):
    return (x ** 3).sum()


compiled = torch.compile(cubes, backend="aot_eager")
x = torch.ones(3, requires_grad=True)
(g,) = torch.autograd.grad(compiled(x), x, create_graph=True)
g.sum().backward()
"""
CURES = """
import torch


def cubes(x):
    return (x ** 3).sum()


x = torch.ones(3, requires_grad=True)
(g,) = torch.autograd.grad(torch.compile(cubes, backend="eager")(x), x, create_graph=True)
g.sum().backward()
print(x.grad.tolist())
x.grad = None
torch.compile(torch.func.grad(cubes), backend="aot_eager")(x).sum().backward()
print(x.grad.tolist())
"""


def test_the_exception_is_told_and_both_changes_cure_it(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    run = record(Target("script", (str(tmp_path / "train.py"),)), RecordOptions(out=tmp_path / "run"))
    assert run.exit_status == 1
    report = dynadiag.load(tmp_path / "run")
    (finding,) = [finding for finding in report.findings if finding.code == "DF11"]
    assert finding.where is not None and finding.where.code == "g.sum().backward()"
    assert [advice.slug for advice in finding.fix] == ["gradient-inside", "backend-without-aot"]
    cured = subprocess.run([sys.executable, "-c", CURES], capture_output=True, text=True, check=True)
    assert cured.stdout.split("\n")[:2] == ["[6.0, 6.0, 6.0]"] * 2
