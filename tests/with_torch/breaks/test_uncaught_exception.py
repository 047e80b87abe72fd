"""Errors that torch.compile raises into a program, and a break inside nn.Transformer: each advice is applied and works."""

import dynadiag
from dynadiag.record import RecordOptions, Target, record
from tests.recorded_here import recorded_here

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


LATENT = """
import torch
from torch._dynamo.utils import counters

encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1).eval()
x, mask = torch.ones(2, 3, 8), torch.nn.Transformer.generate_square_subsequent_mask(3)
results = []
for said in ({}, {"is_causal": True}):
    torch._dynamo.reset()
    counters.clear()
    results.append(torch.compile(encoder, backend="eager")(x, mask=mask, **said))
    print(sum(counters["graph_break"].values()))
print(torch.equal(*results))


def specialised(y):
    return y + 1 if y.shape[0] == 4 else y * 2


for mark in (torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic):
    torch._dynamo.reset()
    y = torch.ones(4)
    mark(y, 0)
    try:
        print(torch.compile(specialised, backend="eager")(y).sum().item())
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_mask_that_torch_reads_and_a_size_that_cannot_stay_dynamic(tmp_path, capfd):
    (tmp_path / "train.py").write_text(LATENT)
    recorded_here(tmp_path / "train.py", tmp_path / "run")
    assert capfd.readouterr().out.split() == ["1", "0", "True", "ConstraintViolationError", "8.0"]
    report = dynadiag.load(tmp_path / "run")
    (site,) = report.graph_breaks
    assert [advice.slug for advice in site.advice] == ["say-is-causal"]
    (failed,) = [finding for finding in report.findings if finding.code == "DF10"]
    assert "You marked y.size(0) as dynamic but your code specialized it to be a constant (4). 1 compilation failed." in failed.why
    assert [advice.slug for advice in failed.fix] == ["maybe-mark-dynamic", "keep-size-open"]


def test_the_exception_is_told_and_both_changes_cure_it(tmp_path, capfd):
    (tmp_path / "train.py").write_text(SCRIPT)
    run = record(Target("script", (str(tmp_path / "train.py"),)), RecordOptions(out=tmp_path / "run"))
    assert run.exit_status == 1
    capfd.readouterr()
    report = dynadiag.load(tmp_path / "run")
    (finding,) = [finding for finding in report.findings if finding.code == "DF11"]
    assert finding.where is not None and finding.where.code == "g.sum().backward()"
    assert [advice.slug for advice in finding.fix] == ["gradient-inside", "backend-without-aot"]
    exec(CURES, {})  # noqa: S102
    assert capfd.readouterr().out.split("\n")[:2] == ["[6.0, 6.0, 6.0]"] * 2


REFUSED = """
import torch
from torch._dynamo.backends.common import aot_autograd


def refuse(gm, inputs):
    raise NotImplementedError("no derivative of this")


linear = torch.nn.Linear(4, 4)
backend = aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=refuse)
step = torch.compile(lambda x: linear(x).relu().sum(), backend=backend, dynamic=True)
loss = step(torch.ones(2, 4))
loss.backward()
"""


def test_a_backward_that_does_not_compile_is_one_finding_where_it_was_called(tmp_path):
    (tmp_path / "train.py").write_text(REFUSED)
    assert record(Target("script", (str(tmp_path / "train.py"),)), RecordOptions(out=tmp_path / "run")).exit_status == 1
    report = dynadiag.load(tmp_path / "run")
    assert [frame.outcome for frame in report.run.frames] == ["compiled"]
    (finding,) = [one for one in report.findings if one.severity == "error"]
    assert (finding.code, finding.where.code if finding.where else None) == ("DF10", "loss.backward()")
    assert "no derivative of this. 1 compilation failed. This exception ended the program." in finding.why
    assert f"`dynadiag minify {tmp_path / 'train.py'}`" in finding.fix[0].text
