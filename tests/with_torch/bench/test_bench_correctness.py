"""The check of results: planted wrong programs are caught and named, right ones pass, empty ones are told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dynadiag.bench.inside.checking import check_arm, check_eager, check_random
from dynadiag.bench.inside.loading import CompileSwitch, load_step
from dynadiag.bench.inside.reference import change_inputs, prime_and_expect
from dynadiag.bench.inside.results import status_of
from dynadiag.capture.reach import Held, find_state
from dynadiag.compare.judge import BENCH, Noise, Runs, Seen, judge
from dynadiag.torch_compat.dispatch.rounding import NoisySums
from tests.corpus.planted_faults import backends as planted

HERE = Path(__file__).parent
PROGRAMS = HERE / "small_programs.py"


def switch_to(backend):
    switch = CompileSwitch(arm="compiled", overrides={"backend": backend})
    switch.original = torch.compile
    return switch


def outcome_of(program, backend):
    return outcome_and_notes(program, backend)[0]


def outcome_and_notes(program, backend):
    torch.compiler.reset()
    step = load_step(f"{PROGRAMS}:{program}", switch_to(backend))
    expected = prime_and_expect(step, eager_arm=False)
    return check_eager(expected) or check_arm(step, expected, first=None), expected.notes


WRONG = [
    ("in_place", "lose_mutations", "WRONG", "cache"),
    ("buffer_update", "lose_mutations", "WRONG", "step.mean"),
    ("forward_and_backward", "change_dtype", "DTYPE_CHANGED", "output"),
    ("forward_and_backward", "drop_gradient", "WRONG", "gradient of step"),
    ("forward_and_backward", "gradient_twice", "WRONG", "gradient of step"),
    ("in_place", "stale_output", "WRONG", "output"),
    ("forward_and_backward", "slightly_off", "WRONG", ""),
    ("forward_and_backward", "half_precision_inside", "WRONG", ""),
    ("forward_and_backward", "one_nan", "WRONG", "output"),
    ("in_place", "one_element_off", "WRONG", "output"),
    ("in_place", "wrong_shape", "WRONG", "output"),
    ("indices", "off_by_one_index", "WRONG", "output"),
    ("train_step", "slightly_off", "WRONG", ""),
    ("train_step", "drop_gradient", "WRONG", ""),
    ("inexact_in_eager", "doubled", "WRONG", "output"),
    ("inexact_in_eager", "dropped", "WRONG", "output"),
    ("attention_with_a_key_bias", "drop_gradient", "WRONG", ""),
    ("small_steps", "half_the_step", "WRONG", ""),
    ("forward_and_backward", "second_call_wrong", "WRONG", ""),
    ("infinities", "other_infinities", "WRONG", "output[0]"),
    ("infinities", "nan_for_infinity", "WRONG", "output[0]"),
    ("forward_and_backward", "parameters_of_the_first_call", "WRONG", ""),
    ("train_step", "parameters_of_the_first_call", "WRONG", ""),
    ("scalar_loss", "backward_of_ones", "WRONG", "gradient of model"),
    ("write_that_repeats_itself", "lose_mutations", "WRONG", "cache"),
    ("accumulating", "slightly_off", "WRONG", ""),
]


@pytest.mark.parametrize(("program", "fault", "status", "worst"), WRONG, ids=lambda value: value)
def test_a_planted_wrong_program_is_caught_and_named(program, fault, status, worst):
    outcome = outcome_of(program, getattr(planted, fault))
    assert outcome.status == status, outcome
    assert outcome.worst.startswith(worst)
    assert outcome.detail


@pytest.mark.parametrize(
    ("program", "fault", "named"),
    [("forward_and_backward", "other_strides", "strides of output"), ("copies_and_views", "output_is_the_input", "memory of output[0]")],
)
def test_an_output_that_lies_otherwise_than_in_eager_is_noted_and_not_wrong(program, fault, named):
    outcome, notes = outcome_and_notes(program, getattr(planted, fault))
    assert outcome.status == "PASS", outcome
    assert [note for note in notes if note.startswith(named)]


def test_edges_of_bins_stay_in_order_on_changed_data():
    edges = {kind: Held(torch.arange(1.0, 20.0), kind) for kind in ("input", "buffer")}
    assert change_inputs(edges) == 2
    for held in edges.values():
        assert (held.tensor.diff() > 0).all() and held.tensor[0] != 1.0


RIGHT = [
    "inexact_in_eager",
    "attention_with_a_key_bias",
    "forward_and_backward",
    "buffer_update",
    "in_place",
    "indices",
    "train_step",
    "small_steps",
    "with_dropout",
    "copies_and_views",
    "infinities",
    "accumulating",
    "channels_last",
]


def compare(value, other, *, nudges=(), tf32=False, **runs):
    known = {kind: () if run is None else [run] for kind, run in runs.items()}
    noise = Noise(tf32=tf32, runs=lambda _: Runs(further=[[one] for one in nudges]), **known)
    (judged,) = judge([Seen("output", 0, "x", value)], [other], noise, BENCH)
    return judged


def close_to(value, *, exact, other):
    return status_of(compare(value.float(), other.float(), again=value.float(), exact=exact.double()))


@pytest.mark.parametrize("count", [4, 100, 5000])
@pytest.mark.parametrize("share", [0.02, 0.06, 0.12, 0.2, 0.3])
def test_no_inexact_eager_hides_a_dropped_or_doubled_value(count, share):
    generator = torch.Generator().manual_seed(3)
    exact, wrong = (torch.randn(count, generator=generator, dtype=torch.float64) for _ in range(2))
    eager = exact + share * wrong * (exact.norm() / wrong.norm())
    again = exact - 1.2 * (eager - exact)
    assert close_to(eager, exact=exact, other=again) == "PASS"
    for factor in (0.0, 2.0, -1.0):
        assert close_to(eager, exact=exact, other=factor * exact) == "WRONG"


@pytest.mark.parametrize(("share", "other_share"), [(0.42, 0.8), (0.62, 1.1), (1.55, 2.8)])
def test_two_roundings_of_one_running_mean_are_both_right(share, other_share):
    """Figures of the key bias of a small BERT (`exp_avg` keeps what was rounding), and of a bias in MobileNet in TF32."""
    generator = torch.Generator().manual_seed(3)
    exact, one, two = (torch.randn(32, generator=generator, dtype=torch.float64) for _ in range(3))
    eager, other = exact + share * one * (exact.norm() / one.norm()), exact + other_share * two * (exact.norm() / two.norm())
    assert close_to(eager, exact=exact, other=other) == "PASS"
    assert close_to(eager, exact=exact, other=exact + 8 * other_share * two) == "WRONG"


def test_a_running_mean_of_squares_of_rounding_is_judged_by_what_the_step_adds():
    """Figures of Adam's `exp_avg_sq` for the key bias of a small BERT: what the step adds is rounding, what was there is not."""
    generator = torch.Generator().manual_seed(3)
    before, one, two = (torch.rand(32, generator=generator, dtype=torch.float64) for _ in range(3))
    exact, eager, other = 0.999 * before, 0.999 * before + 0.17 * one, 0.999 * before + 0.6 * two
    result = [status_of(compare(eager.float(), other.float(), exact=exact, before=known)) for known in (None, before)]
    assert result == ["WRONG", "PASS"]
    assert status_of(compare(eager.float(), (before + 8 * two).float(), exact=exact, before=before)) == "WRONG"
    learnt = before + 5
    assert status_of(compare((learnt + 0.01 * one).float(), before.float(), exact=learnt, before=before)) == "WRONG"


def test_what_a_step_adds_is_not_excused_by_states_that_are_further_off():
    before, count = torch.full((1,), 150000.0), torch.full((1,), 150001.0)
    nudges = [count * (1 + 2.0**-19), count * (1 - 2.0**-19)]
    result = compare(count, before, exact=count.double(), before=before.double(), nudges=nudges)
    assert status_of(result) == "WRONG" and "what the step adds to it is off by 9.6e-01" in result.detail
    assert status_of(compare(count, count, exact=count.double(), before=before.double(), nudges=nudges)) == "PASS"


def test_tf32_counts_as_half_precision():
    """Figures of a mean that ResNet-18's BatchNorm keeps, on an H200: eager took no TF32 for that convolution, compiled code did."""
    generator = torch.Generator().manual_seed(3)
    exact, one, two = (torch.randn(128, generator=generator, dtype=torch.float64) for _ in range(3))
    eager, other = (exact + 4.7e-6 * one).float(), (exact + 1.0e-4 * two).float()
    assert status_of(compare(eager, other, exact=exact)) == "WRONG"
    assert status_of(compare(eager, other, exact=exact, tf32=True)) == "PASS"
    assert status_of(compare(eager, (exact + 1e-2 * two).float(), exact=exact, tf32=True)) == "WRONG"


def test_pure_rounding_may_differ_but_not_grow_beyond_itself():
    generator = torch.Generator().manual_seed(3)
    eager, other = (1e-9 * torch.randn(500, generator=generator) for _ in range(2))
    exact = 1e-17 * torch.randn(500, generator=generator)
    assert close_to(eager, exact=exact, other=5 * other) == "PASS"
    assert close_to(eager, exact=exact, other=torch.zeros(500)) == "PASS"
    assert close_to(eager, exact=exact, other=50 * other) == "WRONG"


@pytest.mark.oldest
@pytest.mark.parametrize("program", RIGHT)
def test_right_programs_pass(program):
    outcome = outcome_of(program, "aot_eager")
    assert outcome.status == "PASS", outcome
    assert outcome.compared > 0


@pytest.mark.parametrize(("backend", "status"), [("aot_eager", None), (planted.no_dropout, "WRONG")])
def test_a_program_that_draws_no_random_numbers_is_told_though_results_are_compared_without_dropout(backend, status):
    torch.compiler.reset()
    step = load_step(f"{PROGRAMS}:with_dropout", switch_to(backend))
    expected = prime_and_expect(step, eager_arm=False)
    assert expected.random == {"output", *(name for name in expected.recorded.first if name.startswith("gradient"))}
    assert all(module.p == 0.5 for module, _ in expected.dropouts)
    assert expected.recorded.first["step.1.p"].item() == 0.0, "the references were made without dropout"
    outcome = check_arm(step, expected, first=None)
    assert outcome.status == "PASS" and [module.p for module, _ in expected.dropouts] == [0.5]
    torch.compiler.reset()
    told = check_random(step, expected)
    assert (told and told.status) == status


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("all_zero", "all outputs are constant"),
        ("no_gradient", "no gradient reaches the parameters"),
        ("nothing_comes_back", "returns nothing and changes nothing"),
    ],
)
def test_programs_that_prove_nothing_are_vacuous(program, says):
    outcome = outcome_of(program, "eager")
    assert outcome.status == "VACUOUS"
    assert says in outcome.detail


def test_a_program_that_does_not_agree_with_itself_is_told():
    outcome = outcome_of("not_deterministic", "eager")
    assert outcome.status == "EAGER_NONDETERMINISTIC"
    assert "two eager runs" in outcome.detail


def test_the_check_leaves_no_trace():
    step = load_step(f"{PROGRAMS}:train_step", switch_to("eager"))
    expected = prime_and_expect(step, eager_arm=False)
    before = {name: held.tensor.clone() for name, held in find_state(step.original).held.items()}
    check_arm(step, expected, first=None)
    after = {name: held.tensor for name, held in find_state(step.original).held.items()}
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name]) or before[name].dtype != after[name].dtype] == []


def test_an_activation_on_the_other_side_of_zero_by_rounding_is_right():
    """The gradient then differs by a lot, where eager is within 1e-6 of float64 (ResNet-18 in float32 on an H200, torch 2.11)."""
    assert outcome_of("at_the_edge_of_a_relu", planted.other_rounding).status == "PASS"
    assert outcome_of("at_the_edge_of_a_relu", planted.slightly_off).status == "WRONG"


def test_a_mean_that_is_rounding_may_be_added_up_in_another_order():
    """A running mean of MobileNet-v2, trained with Inductor on a CPU, was 16 times its size off, eager's 1.4 times (torch 2.15)."""
    assert outcome_of("twice_normalised", planted.one_by_one).status == "PASS"
    outcome = outcome_of("twice_normalised", planted.means_a_little_off)
    assert outcome.status == "WRONG" and outcome.worst.endswith("running_mean")


@pytest.mark.parametrize("layer", [torch.nn.BatchNorm2d(6), torch.nn.GroupNorm(2, 6), torch.nn.LayerNorm(8), torch.nn.Conv2d(6, 6, 1)])
def test_noisy_sums_move_what_is_added_up_by_rounding_and_draw_nothing(layer):
    def results():
        x = torch.randn(4, 6, 8, 8, generator=torch.Generator().manual_seed(1))
        layer.zero_grad()
        (layer(x) * x).sum().backward()
        return {"bias": layer.bias.grad.clone(), **{name: value.clone() for name, value in layer.named_buffers()}}

    plain = results()
    before = torch.get_rng_state()
    with NoisySums(0):
        noisy = results()
    assert torch.equal(before, torch.get_rng_state())
    moved = {name for name, value in plain.items() if not torch.equal(value, noisy[name])}
    assert {name for name in plain if name in ("bias", "running_mean")} <= moved
    for name in moved & {"bias"}:
        assert (plain[name] - noisy[name]).abs().max() < 256 * 16 * 2.0**-22, "256 magnitudes of about 1, 16 x 2^-24 of them"


def test_what_can_be_reached_may_have_none_as_a_key_and_operators_are_not_looked_into():
    kept = {None: 3.0, "more": torch.ones(2)}
    operator = torch.library.custom_op("dynadiag_tests::nothing", lambda x: None, mutates_args=(), schema="(Tensor x) -> ()")

    def step():
        return kept, operator

    state = find_state(step)
    assert state.numbers() == {"kept[None]": 3.0} and list(state.held) == ["kept['more']"]
    state.slots["kept[None]"].put(4.0)
    assert kept[None] == 4.0
