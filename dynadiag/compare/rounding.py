"""How much of a difference between two tensors of equal shape and dtype is rounding: four ways to look at it.

`by_step` is the rule of torch's own benchmarks, made aware of scale. The source is `torch._dynamo.utils.same` (torch 2.11 to 2.15), which
torch's dynamo benchmarks use: a tensor passes when it is close to the eager result, or when its distance to a float64 run of the same
program is at most a small multiple of the eager result's own distance (2; 3 for half precision and for fewer than 1,000 elements; 10 for at
most 10 elements), plus a tenth of the tolerance.
What differs here: the tolerance is relative to the size of the tensor's values (in `same` an absolute 1e-4 lets a dropped gradient of
1e-5 pass), what two eager runs differ by is allowed as well, and integers must be equal. TF32, whose products have the 10 bits of
float16, counts as half precision: eager may use it for a convolution for which compiled code does not, or the other way round. So does
float32 whose distance from float64 is over 1e-4, as under autocast. Where 10 times applies, half the size of the float64 values is not
exceeded, and nowhere are nine tenths of it, so that a value which is dropped or doubled is caught. Where three times eager's distance is
more than that size, or than what the step changed of a value that was there before, no rule can tell a dropped value from rounding (an
attention's key bias has gradients that are zero in exact arithmetic, and an optimizer keeps means of them and of their squares): 10 times
eager's distance is allowed.

Where there is no float64 run (the step insists on its dtype, draws other numbers in it, or has no memory for it), eager's distance is what
its results move by when the state it begins from is moved by half a rounding. That leaves out what the operations themselves round, so
10 times it is allowed, within the same bounds.

What would be wrong is compared once more with eight eager runs (`Runs`): their sums are off at random by what the order of adding may do
(`NoisySums`), and the state of six of them by 2^-19, or by half a rounding where that is more; the largest distance of them counts as
eager's. An activation that is zero but for rounding falls on the other side of a ReLU, or another element becomes the largest of a pooling,
and a gradient changes by a thousandth where eager is within 1e-6 of float64 (ResNet-18, AlexNet and MobileNet in float32 on an H200, torch
2.11, were called wrong). Integers and booleans may differ in three times as many places as in those runs.

An update is small beside a parameter, and the tolerance of the parameter's size hides it. So where a value was there before, what the step
adds to it is compared as well, element by element where eager or the other moved it by more than rounding: half of them must agree within
1 % (10 % in half precision), or within 10 times what eager is off from float64, in those of the eight runs too that begin from the same
state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dynadiag.compare.measures import NOISE_FACTOR, root_mean_square, special, tolerance_of

STEP_TOLERANCE = 1e-4
_HALF_TOLERANCE = 1e-3
_USUAL_TIMES = 3.0
_ROUNDING_TIMES = 10.0
_LARGEST_SHARE, _LARGEST_USUAL_SHARE = 0.5, 0.9
_FEW, _VERY_FEW = 1000, 10
_UPDATE_TOLERANCE, _HALF_UPDATE_TOLERANCE, _UPDATE_TIMES = 0.01, 0.1, 10.0
# Units in the last place that a change has to exceed, and by how many two results may differ anyway: both are rounded.
_LAST_PLACES, _ROUNDED_PLACES = 16, 2
TRUTH_TOLERANCE = {torch.float64: 1e-7, torch.complex128: 1e-7, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Relative error (root mean square) that `by_truth` always allows, by dtype; 1e-4 for others."""
DEFAULT_TRUTH_TOLERANCE = 1e-4
ELEMENTS_OFF = "elements are off by more than rounding"
NOT_FINITE, TOO_FAR, DISCRETE = "NaN or infinite where the uncompiled run is finite", "too far from float64", "other integers or booleans"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What other eager runs gave for one tensor: in float64, a second one, one from a state half a rounding off; `further` began from
    states that were off as well, `same` from the same one. `before` is what it was before the step.
    """

    exact: Any = None
    again: Any = None
    nudged: Any = None
    before: Any = None
    further: Sequence[Any] = ()
    same: Sequence[Any] = ()
    coarsest: torch.dtype | None = None
    tf32: bool = False

    def others(self, shape: torch.Size, wide: torch.dtype) -> list[torch.Tensor]:
        """The further runs of that shape."""
        return [one.detach().to(wide) for one in self.further if isinstance(one, torch.Tensor) and one.shape == shape]

    def on(self, device: torch.device) -> Beside:
        """The same, on one device."""
        single = (self.exact, self.again, self.nudged, self.before)
        exact, again, nudged, before = (None if one is None else one.to(device) for one in single)
        further, same = ([one.to(device) for one in some] for some in (self.further, self.same))
        return replace(self, exact=exact, again=again, nudged=nudged, before=before, further=further, same=same)

    def pairs(self, truth: Any, value: Any) -> list[tuple[Any, Any]]:
        """What is laid beside what to learn how far eager is off: a nudged run beside eager, since both are as inexact."""
        nudged = self.nudged if self.exact is None else None
        found = [(truth, self.again), (truth, nudged), *((value, one) for one in (*self.further, *self.same))]
        return [(one, two) for one, two in found if two is not None]


@dataclass(frozen=True, kw_only=True)
class Look:
    """Whether values are wrong, and how: a mask of the elements to show the first of, how many are wrong, how far off in words."""

    wrong: bool
    mask: torch.Tensor | None = None
    count: int | None = None
    error: float | None = None
    allowed: float | None = None
    detail: str = ""


RIGHT = Look(wrong=False)


# -- integers and booleans


def equal(eager: torch.Tensor, compiled: torch.Tensor, _: Beside) -> Look:
    """Right when equal."""
    return RIGHT if torch.equal(eager, compiled) else Look(wrong=True, mask=eager != compiled, detail=DISCRETE)


def settled(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside) -> Look:
    """Right when equal, and where the further runs do not agree with eager either."""
    if torch.equal(eager, compiled):
        return RIGHT
    stable = all(isinstance(other, torch.Tensor) and torch.equal(other.to(eager.dtype), eager) for other in beside.further)
    return Look(wrong=True, mask=eager != compiled) if stable else RIGHT


def moved_as_often(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside) -> Look:
    """Right when it differs in no more than three times as many places as the further runs do."""
    wrong = int((eager != compiled).sum())
    moved = max((int((eager != one).sum()) for one in beside.further if one.shape == eager.shape), default=0)
    if wrong <= _USUAL_TIMES * moved:
        return RIGHT
    return Look(wrong=True, mask=eager != compiled, detail=f"{wrong} of {eager.numel()} elements differ")


# -- floating and complex numbers


def _widest(value: torch.Tensor) -> torch.dtype:
    return torch.complex128 if value.is_complex() else torch.float64


def by_elements(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside) -> Look:
    """Wrong is an element that is off by more than the tolerance and ten times what the further runs are off by."""
    if torch.equal(eager, compiled):
        return RIGHT
    wide = _widest(eager)
    expected, got = eager.to(wide), compiled.to(wide)
    tolerance = max(tolerance_of(eager.dtype), 0.0 if beside.coarsest is None else tolerance_of(beside.coarsest))
    finite = torch.isfinite(expected) & torch.isfinite(got)
    scale = root_mean_square(expected[finite])
    allowed = tolerance * (expected.abs().nan_to_num() + scale) + 1e-12
    wrong = torch.where(finite, (got - expected).abs() > allowed, special(got) != special(expected))
    for other in beside.others(eager.shape, wide) if bool(wrong.any()) else ():
        noise = (other - expected).abs().nan_to_num(nan=float("inf"), posinf=float("inf"))
        noise[special(other) == special(expected)] = (other - expected).abs().nan_to_num()[special(other) == special(expected)]
        spread = root_mean_square(noise[torch.isfinite(noise)])
        wrong &= torch.where(finite, (got - expected).abs() > allowed + NOISE_FACTOR * (noise + spread), torch.isfinite(noise))
    return Look(wrong=True, mask=wrong) if bool(wrong.any()) else RIGHT


def by_noise(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside) -> Look:
    """Wrong is what is off by more than the tolerance and ten times what the further runs are off by, as root mean squares."""
    if torch.equal(eager, compiled):
        return RIGHT
    wide = _widest(eager)
    got, expected = compiled.to(wide), eager.to(wide)
    finite = torch.isfinite(expected) & torch.isfinite(got)
    same_others = torch.equal(special(got)[~finite], special(expected)[~finite])
    tolerance = tolerance_of(eager.dtype)
    error, size = root_mean_square((got - expected)[finite]), root_mean_square(expected[finite])
    if same_others and error <= tolerance * size + 1e-12:
        return RIGHT
    others = beside.others(eager.shape, wide)
    if not same_others:
        stable = all(torch.equal(special(other), special(expected)) for other in others)
        if not stable:
            return RIGHT
    else:
        noise = max((root_mean_square((other - expected)[finite].nan_to_num(nan=float("inf"))) for other in others), default=0.0)
        if error <= NOISE_FACTOR * noise + tolerance * size + 1e-12:
            return RIGHT
    near = torch.isclose(got, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)
    return Look(wrong=True, mask=eager != compiled, count=max(int((~near).sum()), 1))


def by_truth(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside) -> Look:
    """Wrong is what is further from float64 than the tolerance and ten times eager's own distance, as root mean squares, or where eager is
    finite an element that is off by more than the tolerance and ten times what float64 and the further runs are off by.
    """
    finite, exact = torch.isfinite(eager), beside.exact
    if bool((lost := finite & ~torch.isfinite(compiled)).any()):
        return Look(wrong=True, mask=lost, detail=NOT_FINITE)
    wide = _widest(eager)
    got, expected = compiled.to(wide)[finite], eager.to(wide)[finite]
    truth = exact.to(wide)[finite] if isinstance(exact, torch.Tensor) and exact.shape == eager.shape else expected
    if not bool(torch.isfinite(truth).all()):
        truth = expected
    tolerance = TRUTH_TOLERANCE.get(eager.dtype, DEFAULT_TRUTH_TOLERANCE)
    allowed = NOISE_FACTOR * root_mean_square(expected - truth) + tolerance * root_mean_square(truth) + 1e-12
    if root_mean_square(got - truth) > allowed:
        return Look(wrong=True, detail=TOO_FAR)
    look = by_elements(eager, compiled, replace(beside, further=[*beside.further, exact]))
    wrong = None if look.mask is None else look.mask & finite
    if wrong is None or not bool(wrong.any()):
        return RIGHT
    return Look(wrong=True, mask=wrong, detail=f"{int(wrong.sum())} of {eager.numel()} {ELEMENTS_OFF}")


def _tolerance(value: torch.Tensor, *, tf32: bool) -> float:
    half = value.dtype in (torch.float16, torch.bfloat16) or (tf32 and value.dtype in (torch.float32, torch.complex64))
    return _HALF_TOLERANCE if half else STEP_TOLERANCE


def by_step(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside) -> Look:
    """Wrong is what is further from float64 than a small multiple of eager's own distance, or adds something else to what was there."""

    def of_shape(one: Any) -> Any:
        return one if one is not None and one.shape == eager.shape else None

    same, further = ([one for one in some if one.shape == eager.shape] for some in (beside.same, beside.further))
    beside = replace(beside, nudged=of_shape(beside.nudged), before=of_shape(beside.before), same=same, further=further)
    tolerance, eps = _tolerance(eager, tf32=beside.tf32), torch.finfo(eager.dtype).eps
    value, other = _wide(eager), _wide(compiled)
    if value.numel() == 0 or torch.equal(value, other):
        return Look(wrong=False, error=0.0, allowed=tolerance)
    finite = torch.isfinite(value)
    if not bool((finite == torch.isfinite(other)).all()):
        return _not_finite(value, other, beside.exact)
    odd = _other_infinities(value, other, beside.exact, ~finite)
    if odd:
        return Look(wrong=True, detail=f"{odd} of {value.numel()} elements are another infinity than in eager, or NaN instead")
    return _finite(value[finite], other[finite], finite, beside, tolerance, eps)


def _finite(value: torch.Tensor, other: torch.Tensor, finite: torch.Tensor, beside: Beside, tolerance: float, eps: float) -> Look:
    size = root_mean_square(value)
    truth = value if beside.exact is None else _wide(beside.exact)[finite]
    eager_error = max(_off(truth, value), *(_off(one, _wide(two)[finite]) for one, two in beside.pairs(truth, value)), 0.0)
    error = root_mean_square(truth - other)
    times = _multiplier(value.numel(), half=tolerance == _HALF_TOLERANCE or eager_error > STEP_TOLERANCE * size)
    times = times if beside.exact is not None or beside.nudged is None else _ROUNDING_TIMES
    before = None if beside.before is None else _wide(beside.before)[finite]
    made = root_mean_square(truth) if before is None else min(root_mean_square(truth), root_mean_square(truth - before))
    allowed = _allowed(eager_error, root_mean_square(truth), made, times) + tolerance / 10 * size
    scale = max(size, 1e-300)
    passes = _allclose(value, other, tolerance, size) or error <= allowed
    if passes and beside.exact is not None and before is not None:
        # Not the runs from other states: what they begin with is off by more than many a step adds.
        again = [_wide(one)[finite] for one in (beside.again, *beside.same) if one is not None]
        moved = _update(value, other, again, truth, before, eps, half=tolerance == _HALF_TOLERANCE)
        if moved is not None:
            return Look(wrong=True, error=error / scale, allowed=allowed / scale, detail=moved)
    detail = "" if passes else f"off by {error / scale:.1e} of its size, eager by {eager_error / scale:.1e}, allowed {allowed / scale:.1e}"
    return Look(wrong=not passes, error=error / scale, allowed=allowed / scale, detail=detail)


def _other_infinities(value: Any, other: Any, exact: Any, where: Any) -> int:
    """How many elements are not finite in another way than eager's. What float64 has otherwise overflowed, and is left to chance."""
    truth = value if exact is None else _wide(exact)
    both = where & ((truth == value) | (truth.isnan() & value.isnan()))
    return int((both & (value != other) & ~(value.isnan() & other.isnan())).sum())


def _off(one: Any, two: Any) -> float:
    return root_mean_square((one - two).nan_to_num(0.0, 0.0, 0.0))


def _update(value: Any, other: Any, again: Sequence[Any], truth: Any, before: Any, eps: float, *, half: bool) -> str | None:
    """How what the step adds to a value is wrong; None where it is right, or too small to tell."""
    made = torch.maximum((value - before).abs(), (other - before).abs())
    place = eps * torch.maximum(value.abs(), before.abs())
    moved = made > _LAST_PLACES * place
    if not bool(moved.any()):
        return None

    def median_of(one: Any, two: Any) -> float:
        off = ((one - two).abs() - _ROUNDED_PLACES * place).clamp_min(0.0)
        return float((off[moved] / made[moved]).median())

    error, eager = median_of(value, other), max(median_of(one, truth) for one in (value, *again))
    allowed = max(_HALF_UPDATE_TOLERANCE if half else _UPDATE_TOLERANCE, _UPDATE_TIMES * eager)
    if error <= allowed:
        return None
    return f"what the step adds to it is off by {error:.1e} of that, eager by {eager:.1e}, allowed {allowed:.1e}"


def _wide(value: Any) -> Any:
    return torch.view_as_real(value).double() if value.is_complex() else value.detach().to_dense().double()


def _allclose(value: Any, other: Any, tolerance: float, size: float) -> bool:
    return torch.allclose(value, other, rtol=tolerance, atol=tolerance * size)


def _allowed(eager_error: float, truth: float, made: float, times: float) -> float:
    """How far a result may be from a truth of that size, of which the step made `made`, when eager is `eager_error` from it."""
    usual = _USUAL_TIMES * eager_error
    if usual > made:
        return _ROUNDING_TIMES * eager_error
    return min(times * eager_error, max(_LARGEST_SHARE * truth, min(usual, _LARGEST_USUAL_SHARE * truth)))


def _multiplier(count: int, *, half: bool) -> float:
    if count <= _VERY_FEW:
        return 10.0
    return 3.0 if half or count < _FEW else 2.0


def _not_finite(value: torch.Tensor, other: torch.Tensor, exact: Any) -> Look:
    """Where eager overflows and the result agrees with float64, the result is better than eager's (`same` passes that as well)."""
    if exact is not None and bool(torch.isfinite(other).all()) and not bool(torch.isfinite(value).all()):
        truth = _wide(exact)
        if bool(torch.isfinite(truth).all()) and torch.allclose(truth, other, rtol=4e-2, atol=4e-2 * root_mean_square(truth)):
            return Look(wrong=False, detail="eager overflows here, this agrees with float64")
    count = int((torch.isfinite(value) != torch.isfinite(other)).sum())
    return Look(wrong=True, detail=f"{count} of {value.numel()} elements are infinite or NaN on one side only")
