"""One graph's scenarios: each in a child, and judged only by what eager's own noise cannot explain."""

import os
import time
from dataclasses import replace

import pytest
import torch

from dynadiag.compare.aliasing import snapshot
from dynadiag.compare.judge import PARITY, Noise, Runs, Seen, judge
from dynadiag.compare.noise import wider
from dynadiag.fx.inputs import FILLINGS
from dynadiag.fx.rebuild import rebuild
from dynadiag.fx.script import pieces
from dynadiag.parity import offline_graph
from dynadiag.parity.replaying import ReadyGraph, Replayed, Setting, arranged_inputs, replay
from dynadiag.parity.scenarios import Pair, make_plan
from dynadiag.parity.subject import Ready, to_trace_again, why_values_differ

TEXT = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu", L_y_: "f32[4][1]cpu"):
        l_x_ = L_x_
        l_y_ = L_y_
        mul_: "f32[4][1]cpu" = l_x_.mul_(2);  mul_ = None
        add: "f32[4][1]cpu" = l_x_ + l_y_;  l_x_ = l_y_ = None
        return (add,)
"""


DATA_AND_BUFFER = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu", L_buffer_: "f32[8][1]cpu", L_w_: "f32[4][1]cpu"):
        l_x_ = L_x_
        l_buffer_ = L_buffer_
        l_w_ = L_w_
        _get_data_attr: "f32[4][1]cpu" = torch._C._autograd._get_data_attr(l_x_);  l_x_ = None
        mul_: "f32[4][1]cpu" = _get_data_attr.mul_(0.9);  _get_data_attr = mul_ = None
        mul: "f32[4][1]cpu" = l_w_ * 2;  l_w_ = None
        l_buffer_[slice(0, 4, None)] = mul;  setitem = l_buffer_;  mul = setitem = None
        sum_1: "f32[][]cpu" = l_buffer_.sum();  l_buffer_ = None
        return (sum_1,)
"""
NAN_IN_PART = complex(1, float("nan"))


@pytest.fixture
def ready():
    rebuilt = rebuild(TEXT)
    plan = make_plan(rebuilt.inputs, frozenset(["l_x_"]), frame="fn", caches=False)
    subject = ReadyGraph(rebuilt=rebuilt, filling=FILLINGS[0])
    return Ready(subject=subject, setting=Setting(backend="aot_eager"), plan=plan, mutations=(), notes=())


def test_a_scenario_that_ends_its_process_takes_no_other_with_it(ready, monkeypatch):
    def replay(subject, scenario, setting):
        if scenario.kind == "same_tensor":
            os.abort()
        return Replayed(calls=2)

    monkeypatch.setattr(offline_graph, "replay", replay)
    tried = offline_graph.try_graph(ready, until=time.monotonic() + 600, timeout_s=900)["tried"]
    assert [(one["kind"], one["outcome"]) for one in tried] == [
        ("second_call", "equal"),
        ("same_tensor", "not_judged"),
        ("overlap_later", "equal"),
        ("overlap_first", "equal"),
    ]
    assert tried[1]["why_not"] == "the process was ended by SIGABRT"


def test_writes_through_data_and_of_buffers_with_grad_are_replayed():
    """Dynamo breaks at its own `_get_data_attr`; autograd forbids such a write to a view that was made under no_grad."""
    rebuilt = rebuild(DATA_AND_BUFFER)
    needing = [replace(spec, requires_grad=spec.name == "l_w_") for spec in rebuilt.inputs]
    subject = ReadyGraph(rebuilt=replace(rebuilt, inputs=tuple(needing)), filling=FILLINGS[0])
    second_call = make_plan(rebuilt.inputs, frozenset(), frame="fn", caches=False).scenarios[0]
    outcome = replay(subject, second_call, Setting(backend="aot_eager", gradients=True))
    assert (outcome.why_not, outcome.differences, outcome.calls) == (None, (), 2)
    assert "l_x_.data" in "".join(pieces(rebuilt, rebuilt.inputs, FILLINGS[0])[1])


def test_a_float_that_became_symbolic_is_replayed():
    read = '        total: "f32[][]cpu" = l_y_.sum()\n        item: "Sym(zf1)" = total.item()\n'
    rebuilt = rebuild(TEXT.replace("        mul_", f"{read}        mul_", 1).replace("mul_(2)", "mul_(item)"))
    second_call = make_plan(rebuilt.inputs, frozenset(), frame="fn", caches=False).scenarios[0]
    subject = ReadyGraph(rebuilt=rebuilt, filling=FILLINGS[0])
    assert "breaks" in replay(subject, second_call, Setting(backend="eager")).why_not
    outcome = replay(subject, second_call, Setting(backend="eager", configs=tuple(to_trace_again(rebuilt))))
    assert (outcome.why_not, outcome.differences) == (None, ())


def test_nothing_is_judged_when_the_time_was_over_before(ready):
    tried = offline_graph.try_graph(ready, until=time.monotonic() - 1, timeout_s=900)["tried"]
    assert {one["why_not"] for one in tried} == {"the time limit was reached before this scenario"}


def test_inputs_lie_in_memory_as_the_scenario_says(ready):
    specs, pair = ready.subject.rebuilt.inputs, Pair(0, 1)

    def made(arranged, shift=2):
        return arranged_inputs(specs, arranged, pair, filling=FILLINGS[0], seed=0, shift=shift)

    one, other = made("overlap")
    assert other.data_ptr() - one.data_ptr() == 2 * 4
    assert one._base is other._base
    one, other = made("apart")
    assert (one.storage_offset(), other.storage_offset()) == (0, 2)
    assert one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
    one, other = made("same")
    assert one is other
    assert torch.equal(made("overlap")[0], made("overlap")[0])


def test_copies_in_another_dtype_share_memory_as_before():
    base = torch.arange(8.0)
    one, other = snapshot([base[:4], base[2:6]], wider)
    one.add_(100)
    assert other.tolist() == [102, 103, 4, 5]
    assert other.dtype is torch.float64
    with pytest.raises(ValueError, match="share memory"):
        snapshot([base[:4], base.view(torch.int32)], wider)


@pytest.mark.parametrize(
    ("compiled", "eager", "anchors", "wrong"),
    [
        ([1.0, 2.0], [1.0, 2.0], [], 0),
        ([1.0, 2.0001], [1.0, 2.0], [], 0),
        ([1.0, 2.5], [1.0, 2.0], [[1.0, 2.0]], 1),
        ([1.0, 2.5], [1.0, 2.0], [[1.0, 2.2]], 0),
        ([float("nan"), 2.0], [1.0, 2.0], [[1.0, 2.0]], 1),
        ([float("nan"), 2.0], [float("nan"), 2.0], [], 0),
        ([1, 5], [1, 2], [[1, 2]], 1),
        ([1, 5], [1, 2], [[1, 3]], 0),
        ([1 + 2j, NAN_IN_PART], [1 + 2j, NAN_IN_PART], [], 0),
        ([1 + 2j, NAN_IN_PART], [1 + 2j, 3 + 4j], [[1 + 2j, 3 + 4j]], 1),
        ([1 + 2j, complex(1, float("inf"))], [1 + 2j, complex(float("inf"), 1)], [[1 + 2j, complex(float("inf"), 1)]], 1),
    ],
)
def test_a_value_is_wrong_only_beyond_the_noise_of_eager(compiled, eager, anchors, wrong):
    noise = Noise(runs=lambda _: Runs(further=[[torch.tensor(one)] for one in anchors]))
    (judged,) = judge([Seen("output", 0, "x", torch.tensor(eager))], [torch.tensor(compiled)], noise, PARITY)
    assert sum(one.wrong_elements for one in judged.differences) == wrong


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("torch.empty(4)", "uninitialised"),
        ("l_x_.index_put_((l_i_,), l_x_)", "indices that were not recorded"),
        ("l_x_ + 1", None),
    ],
)
def test_values_that_eager_does_not_define_are_not_compared(body, why):
    text = f"""class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu", L_i_: "i64[4][1]cpu"):
        l_x_ = L_x_
        l_i_ = L_i_
        out: "f32[4][1]cpu" = {body}
        return (out,)
"""
    found = why_values_differ(rebuild(text))
    assert (found is None) if why is None else why in found
