"""Back ends with a planted fault, replayed: each kind of scenario and each kind of difference is found, on the right call and tensor."""

from dataclasses import replace

import pytest

from dynadiag.fx.inputs import FILLINGS
from dynadiag.fx.rebuild import rebuild
from dynadiag.parity.replaying import ReadyGraph, Setting, aspect_of, replay
from dynadiag.parity.scenarios import Pair, Scenario
from tests.corpus.planted_faults.backends import Twice, inputs, one_tensor, outputs, separate, together

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
        return (sin, t)
"""
TWO = Scenario(kind="second_call", calls=("recorded", "recorded"))


def found(backend, text=TRAINS, scenario=TWO):
    """What differs with this back end, as (call, where, name, aspect)."""
    rebuilt = rebuild(text)
    trains = text == TRAINS
    specs = tuple(replace(one, requires_grad=trains) for one in rebuilt.inputs)
    subject = ReadyGraph(rebuilt=replace(rebuilt, inputs=specs), filling=FILLINGS[0])
    outcome = replay(subject, scenario, Setting(backend=backend, gradients=trains))
    assert outcome.why_not is None
    return [(call, one.where, one.name, aspect_of(one)) for call, one in outcome.differences]


def test_a_right_back_end_differs_in_nothing():
    assert found(outputs(lambda one, other: (one, other))) == []
    assert found(inputs(lambda x, y: (x, y)), WRITES) == []


ASPECTS = {
    "values": (
        outputs(lambda one, other: (one + 0.1, other)),
        [("output", "output 0", "values"), ("output", "output 0 and output 1", "aliasing")],
    ),
    "shape": (outputs(lambda one, other: (one[:1], other)), [("output", "output 0", "shape")]),
    "stride": (outputs(lambda one, other: (other.t(), other.contiguous())), [("output", "output 1", "stride")]),
    "dtype": (outputs(lambda one, other: (one.double(), other)), [("output", "output 0", "dtype")]),
    "layout": (outputs(lambda one, other: (one.to_sparse(), other)), [("output", "output 0", "layout")]),
    "requires_grad": (outputs(lambda one, other: (one.detach(), other)), [("output", "output 0", "requires_grad")]),
    "a copy for an alias": (outputs(lambda one, other: (one, other.clone())), [("output", "output 0 and output 1", "aliasing")]),
    "a gradient too large": (
        outputs(lambda one, other: ((twice := Twice.apply(one)), twice.t())),
        [("gradient", "l_x_", "values"), ("gradient", "l_w_", "values")],
    ),
    "a gradient dropped": (inputs(lambda x, w: (x, w.detach())), [("gradient", "l_w_", "missing_gradient")]),
    "gradients to the wrong inputs": (
        inputs(lambda x, w: (w + (x - w).detach(), x + (w - x).detach())),
        [("gradient", "l_x_", "values"), ("gradient", "l_w_", "values")],
    ),
}


@pytest.mark.parametrize("planted", ASPECTS)
def test_each_kind_of_difference_is_found_in_both_calls(planted):
    backend, expected = ASPECTS[planted]
    differences = found(backend)
    assert {call for call, *_ in differences} == {0, 1}
    assert {(0, *one) for one in expected} <= set(differences)


def test_a_lost_write_is_found_in_the_input_after_the_call():
    lost = inputs(lambda *given: [one.clone() for one in given])
    assert (0, "input", "l_x_", "values") in found(lost, WRITES)


def test_what_is_wrong_on_the_second_call_only():
    calls = []

    def later(one):
        calls.append(1)
        return [one + (len(calls) > 1)]

    assert found(outputs(later), WRITES) == [(1, "output", "output 0", "values")]


SCENARIOS = {
    "same_tensor": (one_tensor, ("recorded", "same"), 1),
    "overlap_later": (separate, ("recorded", "overlap"), 1),
    "overlap_first": (together, ("overlap", "apart"), 1),
    "apart_later": (together, ("overlap", "apart"), 1),
}


@pytest.mark.parametrize("kind", SCENARIOS)
def test_each_scenario_finds_what_only_it_shows(kind):
    backend, calls, wrong = SCENARIOS[kind]
    differences = found(backend, WRITES, Scenario(kind=kind, calls=calls, pair=Pair(0, 1)))
    assert differences
    assert {call for call, *_ in differences} == {wrong}
    assert found(backend, WRITES) == []
