"""What the recorder adds for mutations: sources of attributes, static inputs, and the exception that ended the program."""

from __future__ import annotations

import json

import torch

from dynadiag import trace

PROGRAM = """
import torch
from torch import nn
lin = nn.Linear(2, 2)
opt = torch.optim.SGD(lin.parameters(), lr=0.1, momentum=0.9)
for p in lin.parameters():
    p.grad = torch.ones_like(p)
torch.compile(opt.step, backend="eager")()
torch.compile(lin, backend="eager")(torch.ones(1, 2))
def fn(x):
    return x + 1
torch.compile(fn, backend="eager")(torch.ones(2))
raise ValueError("the end")
"""


def test_attributes_static_inputs_and_the_last_exception(run_recorded) -> None:
    outcome = run_recorded(PROGRAM)
    assert outcome.result.exit_status == 1
    run = trace.load(outcome.result.directory)
    details = [trace.graph_details(graph.details) for graph in run.graphs if graph.details is not None]
    sources = [json.dumps([entry["source"] for entry in one["attributes"]]) for one in details]
    assert any("param_groups[0]['params'][0]" in text for text in sources)
    static = {entry["source"]: entry["static"] for one in details for entry in one["inputs"]}
    assert static["L['x']"] is None
    assert any(source.endswith("['weight']") and kind for source, kind in static.items())
    problem = next(one for one in run.problems if one.kind == "uncaught")
    assert problem.text == "ValueError: the end" and problem.location is not None and problem.location.line == 13


REFUSED_UNDER_INDUCTOR = """
import torch
import torch._inductor.config

torch._dynamo.config.suppress_errors = True

@torch.compile
def refused(x, y):
    x.mul_(0.5)
    return x[:1] + y[:1]

@torch.compile
def failed(x):
    return x + 1

def broken_pass(graph):
    raise RuntimeError("a pass of inductor")

x = torch.zeros(64)
refused(x, x.view(torch.int32))
with torch._inductor.config.patch(post_grad_custom_pre_pass=broken_pass, force_disable_caches=True):
    failed(x)
"""


def test_what_aotautograd_refuses_under_inductor_is_told_from_what_inductor_cannot_compile(run_here, tmp_path) -> None:
    with torch._dynamo.config.patch(suppress_errors=False):  # the program sets it
        run_here(REFUSED_UNDER_INDUCTOR, tmp_path / "run")
    run = trace.load(tmp_path / "run")
    kinds = {problem.kind: problem.text for problem in run.problems if problem.kind in ("aot_rejected", "backend_error")}
    assert "views with different dtypes" in kinds["aot_rejected"]
    assert "a pass of inductor" in kinds["backend_error"]
