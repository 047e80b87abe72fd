"""Whether one result is as right as another: the rule of torch's own benchmarks, made aware of scale.

The source is `torch._dynamo.utils.same` (torch 2.11 to 2.15), which torch's dynamo benchmarks use: a tensor passes when it is close to the
eager result, or when its distance to a float64 run of the same program is at most a small multiple of the eager result's own distance
(2; 3 for half precision and for fewer than 1,000 elements; 10 for at most 10 elements), plus a tenth of the tolerance.
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

What would be wrong is compared once more with eight eager runs (`Nudged`): their sums are off at random by what the order of adding may do
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

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynadiag.bench.inside.layout import is_layout
from dynadiag.bench.inside.snapshot import cuda_in_use

TOLERANCE = 1e-4
_HALF_TOLERANCE = 1e-3
_USUAL_TIMES = 3.0
_ROUNDING_TIMES = 10.0
_LARGEST_SHARE, _LARGEST_USUAL_SHARE = 0.5, 0.9
_FEW, _VERY_FEW = 1000, 10
_UPDATE_TOLERANCE, _HALF_UPDATE_TOLERANCE, _UPDATE_TIMES = 0.01, 0.1, 10.0
# Units in the last place that a change has to exceed, and by how many two results may differ anyway: both are rounded.
_LAST_PLACES, _ROUNDED_PLACES = 16, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far a tensor is from what it should be: `error` and `allowed` are root mean squares over the size of its values."""

    name: str
    status: str
    error: float | None
    allowed: float | None
    detail: str

    @property
    def weight(self) -> float:
        """What the worst is chosen by."""
        if self.status == "PASS":
            return -1.0
        if self.error is None or self.allowed is None or not math.isfinite(self.error):
            return math.inf
        return self.error / max(self.allowed, 1e-30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudged:
    """Results by name of more eager runs whose sums have errors of rounding at random.

    `further` began from states that were off as well, `same` from the same one: only these tell how much of what a step adds is rounding.
    """

    further: Sequence[Mapping[str, Any]] = ()
    same: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The eager results of one run by name, of a second run, and in float64 where that was possible.

    `nudged` stands in for `exact` where there is none: eager results from a state that is half a rounding off.
    `nudges` runs eager with errors of rounding of its own, some times, and gives the named results; asked for what would be wrong.
    `tf32` says whether it may be used; `before` has what held a value already when the step began.
    """

    first: Mapping[str, Any]
    second: Mapping[str, Any]
    exact: Mapping[str, Any]
    nudged: Mapping[str, Any] = field(default_factory=dict)
    nudges: Callable[[Collection[str]], Nudged] | None = None
    tf32: bool = False
    before: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        """How many values are compared."""
        return sum(not is_layout(name) for name in self.first)


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """What the other references have for one tensor."""

    again: Any
    exact: Any
    nudged: Any
    nudges: Sequence[Any]
    same: Sequence[Any]
    before: Any

    def pairs(self, truth: Any, value: Any) -> list[tuple[Any, Any]]:
        """What is laid beside what to learn how far eager is off: a nudged run beside eager, since both are as inexact."""
        nudged = self.nudged if self.exact is None else None
        found = [(truth, self.again), (truth, nudged), *((value, one) for one in (*self.nudges, *self.same))]
        return [(one, two) for one, two in found if two is not None]


_NO_RUNS = Nudged()
_BESIDE = {"again": "second", "exact": "exact", "nudged": "nudged", "before": "before"}


def compare_all(reference: Reference, result: Mapping[str, Any]) -> list[Difference]:
    """A Difference for each tensor of the reference, and for each that only the result has; layouts are no values."""
    found = [_one(reference, name, result.get(name)) for name in reference.first if not is_layout(name)]
    doubtful = {one.name for one in found if one.status == "WRONG" and one.name in result}
    if doubtful and reference.nudges is not None:
        runs = reference.nudges(doubtful)
        found = [_one(reference, one.name, result[one.name], runs) if one.name in doubtful else one for one in found]
    extra = [name for name in result if name not in reference.first and not is_layout(name)]
    return found + [Difference(name=name, status="WRONG", error=None, allowed=None, detail="eager has no such value") for name in extra]


def _one(reference: Reference, name: str, other: Any, runs: Nudged = _NO_RUNS) -> Difference:
    if other is None:
        return Difference(name=name, status="WRONG", error=None, allowed=None, detail="missing")
    beside = {key: getattr(reference, kind).get(name) for key, kind in _BESIDE.items()}
    further, same = ([run[name] for run in some if name in run] for some in (runs.further, runs.same))
    return compare(name, reference.first[name], other, **beside, nudges=further, same=same, tf32=reference.tf32)


def compare(
    name: str,
    value: Any,
    other: Any,
    *,
    again: Any = None,
    exact: Any = None,
    nudged: Any = None,
    nudges: Sequence[Any] = (),
    same: Sequence[Any] = (),
    before: Any = None,
    tf32: bool = False,
) -> Difference:
    """Whether the tensor `other` is as right as the eager `value`; where the tensors live does not matter."""
    device = _fastest_device()
    values = (value, other, again, exact, nudged, before)
    value, other, again, exact, nudged, before = (None if tensor is None else tensor.to(device) for tensor in values)
    if value.dtype != other.dtype:
        detail = f"{_short(value.dtype)} in eager, {_short(other.dtype)} here"
        return Difference(name=name, status="DTYPE_CHANGED", error=None, allowed=None, detail=detail)
    if value.shape != other.shape:
        detail = f"shape {tuple(value.shape)} in eager, {tuple(other.shape)} here"
        return Difference(name=name, status="WRONG", error=None, allowed=None, detail=detail)
    nudges, same = ([one.to(device) for one in some if one.shape == value.shape] for some in (nudges, same))
    if not (value.is_floating_point() or value.is_complex()):
        return _equal(name, value, other, nudges)
    if before is not None and before.shape != value.shape:
        before = None
    if nudged is not None and nudged.shape != value.shape:
        nudged = None
    beside = _Beside(again=again, exact=exact, nudged=nudged, nudges=nudges, same=same, before=before)
    return _close(name, value, other, beside, _tolerance(value, tf32=tf32))


def _fastest_device() -> str:
    return "cuda" if cuda_in_use() else "cpu"


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _equal(name: str, value: Any, other: Any, nudges: Sequence[Any]) -> Difference:
    wrong = int((value != other).sum())
    moved = max((int((value != one).sum()) for one in nudges), default=0)
    passes = wrong <= _USUAL_TIMES * moved
    detail = "" if passes else f"{wrong} of {value.numel()} elements differ"
    return Difference(name=name, status="PASS" if passes else "WRONG", error=None, allowed=None, detail=detail)


def _tolerance(value: Any, *, tf32: bool) -> float:
    import torch

    half = value.dtype in (torch.float16, torch.bfloat16) or (tf32 and value.dtype in (torch.float32, torch.complex64))
    return _HALF_TOLERANCE if half else TOLERANCE


def _close(name: str, value: Any, other: Any, beside: _Beside, tolerance: float) -> Difference:
    import torch

    eps = torch.finfo(value.dtype).eps
    value, other = _wide(value), _wide(other)
    if value.numel() == 0 or torch.equal(value, other):
        return Difference(name=name, status="PASS", error=0.0, allowed=tolerance, detail="")
    if not bool((torch.isfinite(value) == torch.isfinite(other)).all()):
        return _not_finite(name, value, other, beside.exact)
    finite = torch.isfinite(value)
    odd = _other_infinities(value, other, beside.exact, ~finite)
    if odd:
        detail = f"{odd} of {value.numel()} elements are another infinity than in eager, or NaN instead"
        return Difference(name=name, status="WRONG", error=None, allowed=None, detail=detail)
    value, other = value[finite], other[finite]
    size = _rms(value)
    truth = value if beside.exact is None else _wide(beside.exact)[finite]
    eager_error = max(_off(truth, value), *(_off(one, _wide(two)[finite]) for one, two in beside.pairs(truth, value)), 0.0)
    error = _rms(truth - other)
    times = _multiplier(value.numel(), half=tolerance == _HALF_TOLERANCE or eager_error > TOLERANCE * size)
    times = times if beside.exact is not None or beside.nudged is None else _ROUNDING_TIMES
    before = None if beside.before is None else _wide(beside.before)[finite]
    made = _rms(truth) if before is None else min(_rms(truth), _rms(truth - before))
    allowed = _allowed(eager_error, _rms(truth), made, times) + tolerance / 10 * size
    scale = max(size, 1e-300)
    passes = _allclose(value, other, tolerance, size) or error <= allowed
    if passes and beside.exact is not None and before is not None:
        # Not the runs from other states: what they begin with is off by more than many a step adds.
        again = [_wide(one)[finite] for one in (beside.again, *beside.same) if one is not None]
        moved = _update(value, other, again, truth, before, eps, half=tolerance == _HALF_TOLERANCE)
        if moved is not None:
            return Difference(name=name, status="WRONG", error=error / scale, allowed=allowed / scale, detail=moved)
    detail = "" if passes else f"off by {error / scale:.1e} of its size, eager by {eager_error / scale:.1e}, allowed {allowed / scale:.1e}"
    return Difference(name=name, status="PASS" if passes else "WRONG", error=error / scale, allowed=allowed / scale, detail=detail)


def _other_infinities(value: Any, other: Any, exact: Any, where: Any) -> int:
    """How many elements are not finite in another way than eager's. What float64 has otherwise overflowed, and is left to chance."""
    truth = value if exact is None else _wide(exact)
    both = where & ((truth == value) | (truth.isnan() & value.isnan()))
    return int((both & (value != other) & ~(value.isnan() & other.isnan())).sum())


def _off(one: Any, two: Any) -> float:
    return _rms((one - two).nan_to_num(0.0, 0.0, 0.0))


def _update(value: Any, other: Any, again: Sequence[Any], truth: Any, before: Any, eps: float, *, half: bool) -> str | None:
    """How what the step adds to a value is wrong; None where it is right, or too small to tell."""
    import torch

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
    import torch

    return torch.view_as_real(value).double() if value.is_complex() else value.detach().to_dense().double()


def _rms(value: Any) -> float:
    return float(value.square().mean().sqrt()) if value.numel() else 0.0


def _allclose(value: Any, other: Any, tolerance: float, size: float) -> bool:
    import torch

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


def _not_finite(name: str, value: Any, other: Any, exact: Any) -> Difference:
    """Where eager overflows and the result agrees with float64, the result is better than eager's (`same` passes that as well)."""
    import torch

    if exact is not None and bool(torch.isfinite(other).all()) and not bool(torch.isfinite(value).all()):
        truth = _wide(exact)
        if bool(torch.isfinite(truth).all()) and torch.allclose(truth, other, rtol=4e-2, atol=4e-2 * _rms(truth)):
            return Difference(name=name, status="PASS", error=None, allowed=None, detail="eager overflows here, this agrees with float64")
    count = int((torch.isfinite(value) != torch.isfinite(other)).sum())
    detail = f"{count} of {value.numel()} elements are infinite or NaN on one side only"
    return Difference(name=name, status="WRONG", error=None, allowed=None, detail=detail)
