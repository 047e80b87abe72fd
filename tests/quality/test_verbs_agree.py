"""One rule for all verbs: where one says wrong, all do; right functions are right in all of them.

The verbs' own code runs in this process: `explain --parity` as it watches a run, `parity` as it replays a graph, `minify`'s oracle,
the check of `bench`, the comparison of two runs of `fix`, and a test's mark with `parity=True`.
"""

from __future__ import annotations

import pytest
import torch

import dynadiag
from dynadiag.bench.inside.checking import check_arm, check_eager
from dynadiag.bench.inside.reference import prime_and_expect
from dynadiag.bench.inside.steps import CallUnit
from dynadiag.capture.compiled_calls import CompiledCallable
from dynadiag.fix.inside.judging import first_difference
from dynadiag.fix.inside.observing import CallLog
from dynadiag.fx.inputs import FILLINGS
from dynadiag.fx.rebuild import rebuild
from dynadiag.parity.replaying import ReadyGraph, replay
from dynadiag.parity.replaying import Setting as ReplaySetting
from dynadiag.parity.scenarios import Scenario
from dynadiag.passes.find_parity import find_parity
from dynadiag.pytest_plugin.watching import Limits, Watch
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.observing import observe
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.torch_compat.dispatch.rounding import NoisySums
from dynadiag.trace import load
from tests.corpus import right_functions as right
from tests.corpus.planted_faults.backends import first_output
from tests.corpus.planted_faults.values import FAULTS


def program(x, w):
    return torch.tanh(x @ w) * 2 + x


GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "{0}[64, 64][64, 1]cpu", L_w_: "{0}[64, 64][64, 1]cpu"):
        l_x_ = L_x_
        l_w_ = L_w_
        matmul: "{0}[64, 64][64, 1]cpu" = l_x_ @ l_w_;  l_w_ = None
        tanh: "{0}[64, 64][64, 1]cpu" = torch.tanh(matmul);  matmul = None
        mul: "{0}[64, 64][64, 1]cpu" = tanh * 2;  tanh = None
        add: "{0}[64, 64][64, 1]cpu" = mul + l_x_;  mul = l_x_ = None
        return (add,)
"""


def explain_says(function, values, backend, folder):
    torch._dynamo.reset()
    with dynadiag.observe(folder, parity_calls=3):
        torch.compile(function, backend=backend)(*values)
    run = load(folder)
    assert [problem.text for problem in run.problems if problem.kind == "recorder"] == []
    return bool(find_parity(run).findings)


def parity_says(dtype, backend):
    graph = rebuild(GRAPH.format({torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]))
    outcome = replay(
        ReadyGraph(rebuilt=graph, filling=FILLINGS[0]),
        Scenario(kind="second_call", calls=("recorded", "recorded")),
        ReplaySetting(backend=backend),
    )
    assert outcome.why_not is None
    return bool(outcome.differences)


def minify_says(function, values, backend, *, check="forward"):
    graphs = []

    def keep(module, inputs):
        graphs.append(candidate_of(module, [one.detach().clone().requires_grad_(one.requires_grad) for one in inputs]))
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=keep)(*values)
    told = []
    for candidate in graphs:
        torch._dynamo.reset()
        observe(candidate, Setting(backend=backend, check=check, backward=check == "gradient"), told.append)
        assert "invalid" not in told[-1], told[-1]
        if "failure" in told[-1]:
            return True
    return False


def bench_says(function, values, backend):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend)
    step = CallUnit(original=function, function=compiled, arguments=tuple(values), compiled_by="bench")
    expected = prime_and_expect(step, eager_arm=False)
    status = (check_eager(expected) or check_arm(step, expected, first=None)).status
    assert status in ("PASS", "WRONG", "DTYPE_CHANGED", "VACUOUS")
    return status in ("WRONG", "DTYPE_CHANGED")


def fix_says(function, make, backend):
    def calls(run):
        values, log = make(), CallLog(most=1, cap_bytes=1 << 30, vary=0)
        after = log.before(CompiledCallable(number=1, name="program", place="", compiled=function, options={}), 1, tuple(values), {})
        after(run(*values), None)
        log.end()
        return log.calls

    def noisy(*values):
        with NoisySums(1):
            return function(*values)

    torch._dynamo.reset()
    compiled = calls(torch.compile(function, backend=backend))
    return first_difference(calls(function), compiled, calls(function), [calls(noisy)]) is not None


def pytest_says(function, values, backend):
    with Watch(parity=True) as watch:
        torch.compile(function, backend=backend)(*values)
    try:
        watch.check(Limits(parity=True))
    except pytest.fail.Exception as failed:
        assert "exceeds its limits" in str(failed), failed
        return True
    return False


@pytest.mark.parametrize("name", FAULTS)
def test_all_verbs_say_the_same_of_a_planted_fault(name, tmp_path):
    dtype, fault, is_wrong = FAULTS[name]
    backend = first_output(fault)
    values = right.normal(1, 64, 64, dtype=dtype), right.normal(2, 64, 64, dtype=dtype)
    said = {
        "explain --parity": explain_says(program, values, backend, tmp_path / "run"),
        "parity": parity_says(dtype, backend),
        "minify": minify_says(program, values, backend),
        "bench": bench_says(program, values, backend),
        "fix": fix_says(program, lambda: values, backend),
        "pytest": pytest_says(program, values, backend),
    }
    assert said == dict.fromkeys(said, is_wrong)


def test_right_functions_are_right_in_all_verbs(tmp_path):
    said = []
    for number, (name, (function, make)) in enumerate(right.FUNCTIONS.items()):
        if number % 4:
            continue  # by hand all were run, under Inductor too
        grad = any(isinstance(one, torch.Tensor) and one.requires_grad for one in make())
        said += [f"minify: {name}"] if minify_says(function, make(), "aot_eager", check="gradient" if grad else "mutation") else []
        said += [f"bench: {name}"] if bench_says(function, make(), "aot_eager") else []
        said += [f"explain --parity: {name}"] if explain_says(function, make(), "aot_eager", tmp_path / str(number)) else []
        said += [f"fix: {name}"] if fix_says(function, make, "aot_eager") else []
    assert said == []
