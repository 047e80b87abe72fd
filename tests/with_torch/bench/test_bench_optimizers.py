"""Train steps with each optimizer of torch.optim are judged right, in every implementation and precision; wrong ones are WRONG."""

from __future__ import annotations

import pytest
import torch

from dynadiag.bench.inside.checking import check_arm, check_eager
from dynadiag.bench.inside.reference import floating, prime_and_expect
from dynadiag.bench.inside.steps import WholeStep
from dynadiag.capture.reach import find_state
from dynadiag.compare.noise import in_float64
from tests.with_torch.bench import optimizer_programs as programs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BACKEND = "inductor" if DEVICE == "cuda" else "eager"


def judged(name, how, precision, fault=None):
    """The outcome for a compiled model, or for a step with a fault; and the notes."""
    torch.compiler.reset()
    compiled = (lambda model: torch.compile(model, backend=BACKEND)) if fault is None else lambda model: model
    step, model, optimizer = programs.make(name, how, precision, DEVICE, run=compiled)
    function = step if fault is None else fault(step, model, optimizer)
    whole = WholeStep(original=step, function=function, arguments=(), compiled_by="program")
    expected = prime_and_expect(whole, eager_arm=False)
    return check_eager(expected) or check_arm(whole, expected, first=None), expected.notes


COMBINATIONS = list(programs.combinations(DEVICE))
# On a CPU fused kernels take any dtype: each combination once. With CUDA all of them.
CASES = [
    pytest.param(*one, precision, marks=pytest.mark.oldest if one[0] == "AdamW" else ())
    for at, one in enumerate(COMBINATIONS)
    for number, precision in enumerate(programs.PRECISIONS)
    if DEVICE == "cuda" or number == at % 3
]
FAULTS = (programs.lose_an_update, programs.larger_steps, programs.wrong_state, programs.lost_count)


@pytest.mark.parametrize(("name", "how", "precision"), CASES)
def test_a_right_step_passes_beside_a_float64_run(name, how, precision):
    outcome, notes = judged(name, how, precision)
    assert outcome.status == "PASS", outcome
    assert not [note for note in notes if "float64" in note], notes


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("make", [programs.lbfgs, programs.lbfgs_with_a_line_search, programs.sparse_adam], ids=lambda make: make.__name__)
def test_steps_with_a_closure_or_sparse_gradients_are_judged_too(make, precision):
    # In bfloat16 the line search takes steps of another length than in float64: then it is said that nothing can be told.
    blind = (make, precision) == (programs.lbfgs_with_a_line_search, "bf16")
    for fault, status in ((None, "PASS"), (programs.lose_an_update, "PASS" if blind else "WRONG")):
        torch.compiler.reset()
        step, model, optimizer = make(precision, run=lambda model: torch.compile(model, backend="eager"))
        function = step if fault is None else fault(step, model, optimizer)
        step_of = WholeStep(original=step, function=function, arguments=(), compiled_by="program")
        expected = prime_and_expect(step_of, eager_arm=False)
        outcome = check_eager(expected) or check_arm(step_of, expected, first=None)
        assert outcome.status == status and not [note for note in expected.notes if "float64" in note], (outcome, expected.notes)
        told = [note for note in expected.notes if note.startswith("NOT COMPARED: ")]
        assert len(told) == (blind and fault is not None), (outcome, expected.notes)


# By hand every optimizer of torch.optim was tried, foreach and not, in float32 and bfloat16: 112 of 112 (torch 2.15, CPU).
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "make",
    [
        *(programs.lbfgs, programs.lbfgs_with_a_line_search, programs.sparse_adam),
        lambda precision, run: programs.make("AdamW", "foreach", precision, DEVICE, run=run),
    ],
    ids=["LBFGS", "LBFGS with a line search", "SparseAdam", "AdamW"],
)
@pytest.mark.parametrize(("factor", "status"), [(1.0, "PASS"), (1.05, "WRONG")])
def test_one_gradient_that_is_a_twentieth_too_large_is_wrong(make, precision, factor, status):
    torch.compiler.reset()
    step, _model, _optimizer = make(precision, run=lambda model: programs.lying(model, factor=factor))
    whole = WholeStep(original=step, function=step, arguments=(), compiled_by="program")
    expected = prime_and_expect(whole, eager_arm=False)
    outcome = check_eager(expected) or check_arm(whole, expected, first=None)
    assert outcome.status == status, outcome


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize(
    ("name", "how", "precision"), [("Adam", "foreach", "fp32"), ("AdamW", "fused", "fp16"), ("NAdam", "single", "bf16")]
)
def test_a_wrong_update_is_wrong(name, how, precision, fault):
    assert judged(name, how, precision, fault)[0].status == "WRONG"


def whole(step):
    return WholeStep(original=step, function=step, arguments=(), compiled_by="bench")


def test_what_an_optimizer_goes_by_keeps_its_dtype_in_float64():
    step, _, optimizer = programs.make("AdamW", "tensor_lr", "fp16", "cpu")
    step()
    held = find_state(step).held
    with in_float64(floating(held)):
        kept = next(iter(optimizer.state.values()))
        assert kept["step"].dtype == optimizer.param_groups[0]["lr"].dtype == torch.float32
        assert kept["exp_avg"].dtype == torch.float64


def test_a_float64_run_that_gives_nan_is_no_truth():
    x = torch.randn(8, 8)

    def step():
        return x.sin() * (float("nan") if x.dtype is torch.float64 else 1.0)

    expected = prime_and_expect(whole(step), eager_arm=True)
    assert not expected.recorded.exact and expected.recorded.nudged
    assert "no float64 run to compare with: output is NaN or infinite there, but not in eager" in expected.notes


def test_a_step_of_nan_proves_nothing():
    model, x = torch.nn.Linear(8, 8), torch.full((4, 8), float("inf"))
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    outcome = check_eager(prime_and_expect(whole(step), eager_arm=True))
    assert outcome.status == "VACUOUS" and "NaN" in outcome.detail


def test_steps_that_a_loss_scale_skips_are_taken_again_before_anything_is_compared():
    model, x = torch.nn.Linear(8, 8), torch.randn(4, 8) * 100
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    before = model.weight.detach().clone()
    prime_and_expect(whole(step), eager_arm=True).snapshot.restore()
    assert scaler.get_scale() < 2.0**16 and not model.weight.equal(before)
