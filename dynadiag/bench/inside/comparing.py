"""Whether the results of a step, by name, are as right as eager's: `compare.rounding` says how much is rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dynadiag.bench.inside.layout import is_layout

if TYPE_CHECKING:  # `compare` imports torch, and a script sets variables (OMP_NUM_THREADS) before it does that itself
    from dynadiag.compare.judge import Judged, Noise, Runs

_NO_SUCH_VALUE = "no such value"


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


def compare_all(reference: Reference, result: Mapping[str, Any]) -> list[Judged]:
    """What was found of each tensor of the reference, and of each that only the result has; layouts are no values."""
    from dynadiag.compare.judge import BENCH, Judged, Seen, difference, judge

    names = [name for name in reference.first if not is_layout(name)]
    values = [reference.first[name] for name in names]
    # A number of Python's is held as float64, however it was computed.
    numbers = [value.dim() == 0 and str(value.dtype) == "torch.float64" for value in values]
    seen = [Seen("output", at, name, values[at], number=numbers[at]) for at, name in enumerate(names)]
    found = judge(seen, [result.get(name) for name in names], _noise(reference, names), BENCH)
    extra = [Seen("output", 0, name, None) for name in result if name not in reference.first and not is_layout(name)]
    return found + [Judged(name=item.name, differences=(difference(item, "missing", _NO_SUCH_VALUE, "a value"),)) for item in extra]


def _noise(reference: Reference, names: Sequence[str]) -> Noise:
    from dynadiag.compare.judge import Noise, Runs

    def by_position(run: Mapping[str, Any]) -> list[Any]:
        return [run.get(name) for name in names]

    def runs(doubtful: Collection[int]) -> Runs:
        assert reference.nudges is not None
        made = reference.nudges({names[at] for at in doubtful})
        return Runs(further=[by_position(run) for run in made.further], same=[by_position(run) for run in made.same])

    exact, again, nudged, before = map(by_position, (reference.exact, reference.second, reference.nudged, reference.before))
    known = Noise(exact=exact, again=again, nudged=nudged, before=before, tf32=reference.tf32)
    return known if reference.nudges is None else replace(known, runs=runs)


def status_of(judged: Judged) -> str:
    """PASS, WRONG or DTYPE_CHANGED."""
    if not judged.differences:
        return "PASS"
    return "DTYPE_CHANGED" if judged.differences[0].kind == "dtype" else "WRONG"


def detail_of(judged: Judged) -> str:
    """How it is wrong, in words; or what else there is to say."""
    if not judged.differences:
        return judged.detail
    first = judged.differences[0]
    eager, here = (text.removeprefix("torch.") for text in (first.eager, first.compiled))
    words = {"dtype": f"{eager} in eager, {here} here", "shape": f"shape {eager} in eager, {here} here"}
    missing = "eager has no such value" if eager == _NO_SUCH_VALUE else "missing"
    return words.get(first.kind) or (missing if first.kind == "missing" else judged.detail)


def weight_of(judged: Judged) -> float:
    """What the worst is chosen by."""
    if not judged.differences:
        return -1.0
    if judged.error is None or judged.allowed is None or not math.isfinite(judged.error):
        return math.inf
    return judged.error / max(judged.allowed, 1e-30)
