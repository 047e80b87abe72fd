"""A step that has no float64 run: rounding is still told from wrong results."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dynadiag.bench.inside import reference
from dynadiag.bench.inside.checking import check_arm, check_eager
from dynadiag.bench.inside.loading import CompileSwitch, load_step
from tests.corpus.planted_faults import backends as planted

PROGRAMS = Path(__file__).with_name("small_programs.py")


@pytest.fixture(autouse=True)
def no_float64(monkeypatch):
    monkeypatch.setattr(reference, "_exact", lambda *_arguments, **_keywords: {})


def outcome_of(program, backend):
    torch.compiler.reset()
    switch = CompileSwitch(arm="compiled", overrides={"backend": backend})
    switch.original = torch.compile
    step = load_step(f"{PROGRAMS}:{program}", switch)
    expected = reference.prime_and_expect(step, eager_arm=False)
    return check_eager(expected) or check_arm(step, expected, first=None)


def summed_in_another_order(graph, _inputs):
    """What a compiler may do: the same softmax, by its formula, as rounding goes."""

    def softmax(x, dim):
        e = (x - x.amax(dim, keepdim=True)).exp()
        return e * (1 / e.sum(dim, keepdim=True))

    for node in graph.graph.nodes:
        if node.op == "call_method" and node.target == "softmax":
            node.op, node.target = "call_function", softmax
    graph.recompile()
    return graph


def test_a_gradient_that_is_only_rounding_is_right():
    outcome = outcome_of("attention_with_a_key_bias", summed_in_another_order)
    assert outcome.status == "PASS", outcome


@pytest.mark.parametrize("program", ["forward_and_backward", "in_place", "train_step"])
def test_a_right_program_is_right(program):
    assert outcome_of(program, "aot_eager").status == "PASS"


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("attention_with_a_key_bias", "drop_gradient"),
        ("forward_and_backward", "slightly_off"),
        ("forward_and_backward", "half_precision_inside"),
        ("forward_and_backward", "gradient_twice"),
        ("train_step", "drop_gradient"),
        ("train_step", "slightly_off"),
        ("buffer_update", "lose_mutations"),
        ("in_place", "one_element_off"),
    ],
)
def test_a_wrong_program_is_wrong(program, fault):
    assert outcome_of(program, getattr(planted, fault)).status == "WRONG"
