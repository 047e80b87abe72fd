"""Emitted tests for every kind of difference: each fails with the guilty back end and passes with eager, on torch alone."""

import runpy
from dataclasses import replace

import pytest
import torch

from dynadiag.fx.inputs import FILLINGS
from dynadiag.fx.rebuild import rebuild
from dynadiag.parity.emitting import test_source as emitted
from dynadiag.parity.replaying import ReadyGraph, Setting, replay, to_json
from dynadiag.parity.result import _code
from dynadiag.parity.scenarios import Pair, Plan, Scenario
from dynadiag.parity.subject import Ready
from tests.corpus.planted_faults.backends import Twice, inputs, later, one_tensor, outputs, separate

WRITES = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu", L_y_: "f32[4][1]cpu"):
        l_x_ = L_x_
        l_y_ = L_y_
        mul_: "f32[4][1]cpu" = l_x_.mul_(2);  mul_ = None
        add: "f32[4][1]cpu" = l_x_ + l_y_;  l_x_ = l_y_ = None
        return (add,)
"""
TRAINS = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[2, 3][3, 1]cpu", L_w_: "f32[2, 3][3, 1]cpu"):
        l_x_ = L_x_
        l_w_ = L_w_
        mul: "f32[2, 3][3, 1]cpu" = l_x_ * l_w_;  l_x_ = l_w_ = None
        sin: "f32[2, 3][3, 1]cpu" = mul.sin();  mul = None
        t: "f32[3, 2][1, 3]cpu" = sin.t()
        log: "f32[2, 3][3, 1]cpu" = sin.log()
        return (sin, t, log)
"""
TWO = Scenario(kind="second_call", calls=("recorded", "recorded"))


def between(kind, *calls):
    return Scenario(kind=kind, calls=calls, pair=Pair(0, 1))


def refuses(*_):
    raise RuntimeError("not again")


PLANTED = {
    "values": (TRAINS, TWO, outputs(lambda one, other, log: (one, other, log * 1.1)), {"DM34"}),
    "one element": (
        TRAINS,
        TWO,
        outputs(lambda one, other, log: (one, other, log.flatten().index_fill(0, torch.tensor(0), 9).view(2, 3))),
        {"DM34"},
    ),
    "NaN": (TRAINS, TWO, outputs(lambda one, other, log: (one, other, log * torch.nan)), {"DM34"}),
    "shape": (TRAINS, TWO, outputs(lambda one, other, log: (one, other, log[:1])), {"DM35"}),
    "stride": (TRAINS, TWO, outputs(lambda one, other, log: (one, other, log.t().contiguous().t())), {"DM35"}),
    "dtype": (TRAINS, TWO, outputs(lambda one, other, log: (one, other, log.double())), {"DM35"}),
    "layout": (TRAINS, TWO, outputs(lambda one, other, log: (one, other, log.to_sparse())), {"DM35"}),
    "requires_grad": (TRAINS, TWO, outputs(lambda one, other, log: (one, other, log.detach())), {"DM35", "DM36"}),
    "a copy for an alias": (TRAINS, TWO, outputs(lambda one, other, log: (one, other.clone(), log)), {"DM35"}),
    "a gradient too large": (TRAINS, TWO, outputs(lambda one, other, log: (one, other, Twice.apply(log))), {"DM36"}),
    "a gradient dropped": (TRAINS, TWO, inputs(lambda x, w: (x, w.detach())), {"DM36"}),
    "a lost write": (WRITES, TWO, inputs(lambda *given: [one.clone() for one in given]), {"DM34"}),
    "a stale second call": (WRITES, TWO, later(lambda one: [one + 1]), {"DM34"}),
    "a second call that raises": (WRITES, TWO, later(refuses), {"DM34"}),
    "same tensor passed twice": (WRITES, between("same_tensor", "recorded", "same"), one_tensor, {"DM32"}),
    "an overlap that comes later": (WRITES, between("overlap_later", "recorded", "overlap"), separate, {"DM30"}),
    "a later overlap that raises": (WRITES, between("overlap_later", "recorded", "overlap"), later(refuses), {"DM31"}),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_an_emitted_test_fails_with_the_guilty_back_end_and_passes_with_eager(planted, tmp_path):
    text, scenario, backend, codes = PLANTED[planted]
    name = f"planted_{planted.replace(' ', '_')}"
    torch._dynamo.register_backend(backend, name=name)
    ready = made_ready(text, scenario, name)
    outcome = replay(ready.subject, scenario, ready.setting)
    assert outcome.why_not is None
    found = [{"call": call, **to_json(one)} for call, one in outcome.differences]
    assert {_code(scenario.kind, one) for one in found} >= codes
    tried = {"kind": scenario.kind, "pair": ["x", "y"] if scenario.pair else [], "shift": outcome.shift}
    for number, entry in enumerate({(one["where"], one["aspect"]): one for one in found}.values()):
        file = tmp_path / f"test_{number}.py"
        source = emitted("g0", ready, 0, tried, entry)
        assert "dynadiag" not in source.replace("Written by dynadiag parity", "")
        file.write_text(source)
        with pytest.raises((AssertionError, RuntimeError, IndexError)):
            runpy.run_path(str(file), run_name="__main__")
        file.write_text(source.replace(repr(name), "'eager'"))
        runpy.run_path(str(file), run_name="__main__")


def made_ready(text, scenario, backend):
    rebuilt = rebuild(text)
    trains = text == TRAINS
    rebuilt = replace(rebuilt, inputs=tuple(replace(one, requires_grad=trains) for one in rebuilt.inputs))
    subject = ReadyGraph(rebuilt=rebuilt, filling=FILLINGS[0])
    return Ready(
        subject=subject,
        setting=Setting(backend=backend, gradients=trains),
        plan=Plan(scenarios=(scenario,), skipped=()),
        mutations=(),
        notes=(),
    )
