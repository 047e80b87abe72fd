"""How much of a difference between two tensors of equal shape and dtype is rounding: the one rule of all verbs.

Its base is the rule of torch's own benchmarks, made aware of scale. The source is `torch._dynamo.utils.same` (torch 2.11 to 2.15): a tensor
passes when it is close to the eager result, or when its distance to a float64 run of the same program is at most a small multiple of the
eager result's own distance (2; 3 for half precision and for fewer than 1,000 elements; 10 for at most 10 elements), plus a tenth of the
tolerance.
What differs here: the tolerance is relative to the size of the tensor's values (in `same` an absolute 1e-4 lets a dropped gradient of
1e-5 pass), what two eager runs differ by is allowed as well, and integers must be equal. TF32, whose products have the 10 bits of
float16, counts as half precision: eager may use it for a convolution for which compiled code does not, or the other way round. So does
float32 whose distance from float64 is over 1e-4, as under autocast. Where 10 times applies, half the size of the float64 values is not
exceeded, and nowhere are nine tenths of it, so that a value which is dropped or doubled is caught. Where three times eager's distance is
more than that size, or than what the step changed of a value that was there before, no rule can tell a dropped value from rounding (an
attention's key bias has gradients that are zero in exact arithmetic, and an optimizer keeps means of them and of their squares): 10 times
eager's distance is allowed.

A root mean square hides a single element among many. So each element is looked at as well: it may be off by `measures.tolerance_of` its
dtype (relative to itself and to the size of all) or by 5 times the root mean square that is allowed, and besides by 10 times what any
other eager run has it off by, with that run's root mean square, or by twice what such a run has any element off by (a few of 2,359,296
elements of a weight's gradient, ResNet-18 under fp16 and bf16 autocast on an H200, torch 2.11, were called wrong).

Where there is no float64 run (the step insists on its dtype, draws other numbers in it, or has no memory for it), eager's distance is what
its results move by when the state it begins from is moved by half a rounding. That leaves out what the operations themselves round, so
10 times it is allowed, within the same bounds.

What would be wrong is compared once more with more eager runs (`Runs`): their sums are off at random by what the order of adding may
do (`NoisySums`), and the state of most of them by a few roundings; the largest distance of them counts as eager's. An activation that is
zero but for rounding falls on the other side of a ReLU, or another element becomes the largest of a pooling, and a gradient changes by a
thousandth where eager is within 1e-6 of float64 (ResNet-18, AlexNet and MobileNet in float32 on an H200, torch 2.11, were called wrong).
Integers and booleans may differ in three times as many places as in those runs. An element that is NaN or infinite in one of them and not
in eager, or the other way round, may be anything.

An update is small beside a parameter, and the tolerance of the parameter's size hides it. So where a value was there before, what the step
adds to it is compared as well, element by element where eager or the other moved it by more than rounding: half of them must agree within
1 % (10 % in half precision), or within 10 times what eager is off from float64, in those of the runs too that begin from the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

NOISE_FACTOR = 10.0
"""How many times eager's own error a compiled value may have (bench's rule of correctness has the same)."""
TOLERANCE = {torch.float64: 1e-7, torch.complex128: 1e-7, torch.bfloat16: 4e-2, torch.float16: 8e-3}
"""Relative error that is always allowed, by dtype; 1e-3 for others."""
DEFAULT_TOLERANCE = 1e-3


def on_fastest(value: torch.Tensor) -> torch.Tensor:
    """The tensor on the GPU where this process uses one: comparing a large step's copies on the CPU took minutes (BERT-base, 2.11)."""
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return value.to("cuda") if in_use else value


def tolerance_of(dtype: torch.dtype) -> float:
    """The relative error that is always allowed for this dtype."""
    return TOLERANCE.get(dtype, DEFAULT_TOLERANCE)


def strides(value: torch.Tensor) -> tuple[int, ...]:
    """Strides of the dimensions in which there is a step to take."""
    return tuple(step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1) if value.numel() else ()


def root_mean_square(values: torch.Tensor) -> float:
    """Root mean square; 0 of no values."""
    return float(values.abs().square().mean().sqrt()) if values.numel() else 0.0


def as_text(value: torch.Tensor) -> str:
    """The one number of a tensor, floats with six digits."""
    item = value.item()
    return f"{item:.6g}" if isinstance(item, float) else str(item)


def special(values: torch.Tensor) -> torch.Tensor:
    """0 for finite numbers, else which infinity, or NaN."""
    return torch.isposinf(values) * 1 + torch.isneginf(values) * 2 + torch.isnan(values) * 3


_STEP_TOLERANCE = 1e-4
_HALF_TOLERANCE = 1e-3
_DOUBLE_TOLERANCE = 1e-7
_HALVES = (torch.float16, torch.bfloat16)
_DOUBLES = (torch.float64, torch.complex128)
_SINGLES = (torch.float32, torch.complex64)
_USUAL_TIMES = 3.0
_ROUNDING_TIMES = 10.0
_LARGEST_SHARE, _LARGEST_USUAL_SHARE = 0.5, 0.9
_FEW, _VERY_FEW = 1000, 10
HALF_UPDATE_TOLERANCE = 0.1
"""How much of what a step adds to a value may be rounding in half precision."""
_UPDATE_TOLERANCE, _UPDATE_TIMES = 0.01, 10.0
# How near to float64 a number has to be where eager has overflowed, relative to itself and to the size of all.
_OVERFLOW_TOLERANCE = 4e-2
# How far out single elements of a tensor lie whose root mean square is 1: of 4,096 normal numbers the largest is about 3.5.
_TAIL = 5.0
# How many times as far as the farthest element of another eager run.
_FARTHEST_TIMES = 2.0
# Units in the last place that a change has to exceed, and by how many two results may differ anyway: both are rounded.
_LAST_PLACES, _ROUNDED_PLACES = 16, 2
ELEMENTS_OFF = "elements are off by more than rounding"
ADDED = "what the step adds to it"
NOT_FINITE, DISCRETE = "elements are NaN or infinite where eager is not, or the other way round", "integers or booleans differ"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What other eager runs gave for one tensor: in float64, a second one, one from a state half a rounding off; `further` began from
    states that were off as well, `same` from the same one. `before` is what it was before the step. `coarsest` is the least precise dtype
    that was computed in, where that is known.
    """

    exact: Any = None
    again: Any = None
    nudged: Any = None
    before: Any = None
    further: Sequence[Any] = ()
    same: Sequence[Any] = ()
    coarsest: torch.dtype | None = None
    tf32: bool = False

    def on(self, device: torch.device) -> Beside:
        """The same, on one device."""
        return self.each(lambda item: item.to(device))

    def fitting(self, eager: torch.Tensor) -> Beside:
        """What of it is a tensor of that shape; no float64 run that lost what eager has a number for."""
        fits = self.each(lambda item: item.detach() if isinstance(item, torch.Tensor) and item.shape == eager.shape else None)
        floats = eager.is_floating_point() or eager.is_complex()
        lost = floats and fits.exact is not None and bool((_wide(eager).isfinite() & ~_wide(fits.exact).isfinite()).any())
        return replace(fits, exact=None) if lost else fits

    def each(self, change: Callable[[Any], Any]) -> Beside:
        """The same with every run changed; one that becomes None is left out."""

        def of(item: Any) -> Any:
            return None if item is None else change(item)

        further, same = ([found for element in some if (found := of(element)) is not None] for some in (self.further, self.same))
        single = {name: of(getattr(self, name)) for name in ("exact", "again", "nudged", "before")}
        return replace(self, **single, further=further, same=same)

    def runs(self) -> list[Any]:
        """The runs in eager's own precision."""
        return [item for item in (self.again, self.nudged, *self.further, *self.same) if item is not None]

    def pairs(self, truth: Any, value: Any) -> list[tuple[Any, Any]]:
        """The pairs whose difference shows how far eager is off: a perturbed run vs. eager, for example, since both are equally inexact."""
        nudged = self.nudged if self.exact is None else None
        found = [(truth, self.again), (truth, nudged), *((value, item) for item in (*self.further, *self.same))]
        return [(element, two) for element, two in found if two is not None]


@dataclass(frozen=True, kw_only=True)
class Look:
    """Whether values are wrong, and how: a mask of the elements that are, how far off all are in words and numbers.

    `error` and `allowed` are root mean squares over the size of the values.
    """

    wrong: bool
    mask: torch.Tensor | None = None
    error: float | None = None
    allowed: float | None = None
    detail: str = ""


RIGHT = Look(wrong=False)


def look_at(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside) -> Look:
    """Whether what a compiled call gave is as right as what eager gave."""
    beside = beside.fitting(eager)
    return (_floats if eager.is_floating_point() or eager.is_complex() else _whole_numbers)(eager, compiled, beside)


def _whole_numbers(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside) -> Look:
    """Right where it differs in no more than three times as many places as the other runs do."""
    runs = [item for item in (beside.exact, *beside.runs()) if item is not None and item.dtype == eager.dtype]
    mask = eager != compiled
    count = int(mask.sum())
    if count <= _USUAL_TIMES * max((int((eager != run).sum()) for run in runs), default=0):
        return RIGHT
    return Look(wrong=True, mask=mask, detail=f"{count} of {eager.numel()} {DISCRETE}")


def _floats(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside) -> Look:
    value, other = _wide(eager), _wide(compiled)
    tolerance = _tolerance(eager.dtype, beside)
    if value.numel() == 0 or torch.equal(value, other):
        return Look(wrong=False, error=0.0, allowed=tolerance)
    look = _not_finite(value, other, beside)
    if not look.wrong:
        look = _finite(value, other, beside, tolerance, eager.dtype)
    if look.mask is None or not eager.is_complex():
        return look
    return replace(look, mask=look.mask.any(-1))


def _tolerance(dtype: torch.dtype, beside: Beside) -> float:
    """The root mean square, relative to the size of the values, that is always allowed."""
    if dtype in _HALVES or beside.coarsest in _HALVES or (beside.tf32 and dtype in _SINGLES):
        return _HALF_TOLERANCE
    return _DOUBLE_TOLERANCE if dtype in _DOUBLES and beside.coarsest is None else _STEP_TOLERANCE


def _of_element(dtype: torch.dtype, beside: Beside) -> float:
    """The error of one element, relative to itself and to the size of all, that is always allowed."""
    coarsest = [item for item in (dtype, beside.coarsest, torch.float16 if beside.tf32 else None) if item is not None]
    return max(tolerance_of(element) for element in coarsest)


def _not_finite(value: torch.Tensor, other: torch.Tensor, beside: Beside) -> Look:
    """What is NaN or infinite on one side only, or another infinity. Where eager overflows, what float64 has is right."""
    wrong = special(value) != special(other)
    if not bool(wrong.any()):
        return RIGHT
    for run in map(_wide, beside.runs()):
        wrong &= special(run) == special(value)
    if beside.exact is not None:
        truth = _wide(beside.exact)
        known = torch.isfinite(truth)
        near = (other - truth).abs() <= _OVERFLOW_TOLERANCE * (truth.abs() + root_mean_square(truth[known]))
        better = ~torch.isfinite(value) & torch.where(known, near | ~torch.isfinite(other), special(truth) != special(value))
        wrong &= ~better
    count = int(wrong.sum())
    return Look(wrong=count > 0, mask=wrong, detail=f"{count} of {value.numel()} {NOT_FINITE}") if count else RIGHT


def _finite(whole: torch.Tensor, whole_other: torch.Tensor, beside: Beside, tolerance: float, dtype: torch.dtype) -> Look:
    finite = torch.isfinite(whole) & torch.isfinite(whole_other)
    for run in map(_wide, beside.runs()):
        finite &= torch.isfinite(run)
    value, other = whole[finite], whole_other[finite]
    if not value.numel():
        return RIGHT
    known = beside.exact is not None
    truth = _wide(beside.exact)[finite] if known else value
    size, half = root_mean_square(value), tolerance == _HALF_TOLERANCE
    eager_error = max(_off(truth, value), *(_off(item, _wide(two)[finite]) for item, two in beside.pairs(truth, value)), 0.0)
    error = root_mean_square(truth - other)
    times = _multiplier(value.numel(), half=half or eager_error > _STEP_TOLERANCE * size)
    times = times if known or beside.nudged is None else _ROUNDING_TIMES
    before = None if beside.before is None else _wide(beside.before)[finite]
    made = root_mean_square(truth) if before is None else min(root_mean_square(truth), root_mean_square(truth - before))
    allowed = _allowed(eager_error, root_mean_square(truth), made, times) + tolerance / 10 * size
    near = torch.isclose(value, other, rtol=tolerance, atol=tolerance * size)
    scale = max(size, 1e-300)

    def wrong(where: torch.Tensor, detail: str) -> Look:
        mask = torch.zeros_like(finite).masked_scatter_(finite, where)
        return Look(
            wrong=True,
            mask=mask,
            detail=detail,
            error=error / scale,
            allowed=allowed / scale,
        )

    if error > allowed and not bool(near.all()):
        text = f"off by {error / scale:.1e} of its size, eager by {eager_error / scale:.1e}, allowed {allowed / scale:.1e}"
        return wrong(~near, text)
    runs = [_wide(element)[finite] for element in (beside.exact, *beside.runs()) if element is not None]
    off = _elements(value, other, runs, (_of_element(dtype, beside) * (value.abs() + size)).clamp_min(_TAIL * allowed))
    if bool(off.any()):
        return wrong(off, f"{int(off.sum())} of {value.numel()} {ELEMENTS_OFF}")
    if known and before is not None:
        # Not the runs from other states: what they begin with is off by more than many a step adds.
        again = [_wide(entry)[finite] for entry in (beside.again, *beside.same) if entry is not None]
        moved = _update(value, other, again, truth, before, torch.finfo(dtype).eps, half=half)
        if moved is not None:
            return wrong(value != other, moved)
    return Look(wrong=False, error=error / scale, allowed=allowed / scale)


def _elements(value: torch.Tensor, other: torch.Tensor, runs: Sequence[torch.Tensor], allowed: torch.Tensor) -> torch.Tensor:
    """Which elements are off by more than this and what each run allows: ten times what it has this element off by, and all of them on
    average; or twice what it has any element off by. A rounding that turns a ReLU or a maximum moves few elements, and those far.
    """
    off = (other - value).abs()
    wrong = off > allowed
    for run in runs if bool(wrong.any()) else ():
        noise = (run - value).abs().nan_to_num(nan=float("inf"), posinf=float("inf"))
        known = noise[torch.isfinite(noise)]
        farthest = _FARTHEST_TIMES * float(known.max()) if known.numel() else 0.0
        wrong &= off > allowed + (NOISE_FACTOR * (noise + root_mean_square(known))).clamp_min(farthest)
    return wrong


def _off(item: Any, two: Any) -> float:
    return root_mean_square((item - two).nan_to_num(0.0, 0.0, 0.0))


def _update(value: Any, other: Any, again: Sequence[Any], truth: Any, before: Any, eps: float, *, half: bool) -> str | None:
    """How what the step adds to a value is wrong; None where it is right, or too small to tell."""
    made = torch.maximum((value - before).abs(), (other - before).abs())
    place = eps * torch.maximum(value.abs(), before.abs())
    moved = made > _LAST_PLACES * place
    if not bool(moved.any()):
        return None

    def median_of(item: Any, two: Any) -> float:
        off = ((item - two).abs() - _ROUNDED_PLACES * place).clamp_min(0.0)
        return float((off[moved] / made[moved]).median())

    error, eager = median_of(value, other), max(median_of(element, truth) for element in (value, *again))
    allowed = max(HALF_UPDATE_TOLERANCE if half else _UPDATE_TOLERANCE, _UPDATE_TIMES * eager)
    if error <= allowed:
        return None
    return f"{ADDED} is off by {error:.1e} of that, eager by {eager:.1e}, allowed {allowed:.1e}"


def _wide(value: Any) -> Any:
    """In float64, complex numbers as two; one with NaN in either part has it in both."""
    value = value.detach().to_dense()
    if not value.is_complex():
        return value.double()
    parts = torch.view_as_real(value.resolve_conj()).double()
    return parts.masked_fill(parts.isnan().any(-1, keepdim=True), float("nan"))


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
