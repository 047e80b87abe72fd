"""What differs between what eager gave and what a compiled call gave, under a rule that says how much of it is rounding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dynadiag.compare.aliasing import is_plain
from dynadiag.compare.measures import as_text, strides
from dynadiag.compare.rounding import Beside, Look, by_elements, by_noise, by_step, by_truth, equal, moved_as_often, settled
from dynadiag.model.difference import Difference

_FACTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "layout": lambda value: value.layout,
    "shape": lambda value: tuple(value.shape),
    "dtype": lambda value: value.dtype,
    "device": lambda value: value.device,
    "requires_grad": lambda value: value.requires_grad,
}
Values = Sequence[Any]
Told = tuple[str, object, object]
"""A kind of difference, and what each side gave."""


@dataclass(frozen=True)
class Seen:
    """A tensor (or another value) after a call: `where` it was found, as the how many-th of those, and under which name."""

    where: str
    index: int
    name: str
    value: Any


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Further eager runs, each a list of values by position: `further` from a state that is a bit off, `same` from the same state."""

    further: Sequence[Values] = ()
    same: Sequence[Values] = ()


_NO_RUNS = Runs()


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Other eager runs beside the first, by position: one in float64, a second one, one from a state that is half a rounding off, and what
    the values were before the step. `runs` makes more, for the positions that it is given; it is asked once, of what would be wrong.

    `coarsest` is the least precise dtype computed in, `tf32` says whether eager may use that.
    """

    exact: Values = ()
    again: Values = ()
    nudged: Values = ()
    before: Values = ()
    runs: Callable[[Collection[int]], Runs] | None = None
    coarsest: torch.dtype | None = None
    tf32: bool = False

    def of(self, at: int, runs: Runs = _NO_RUNS) -> Beside:
        """What they have for one value."""
        exact, again, nudged, before = (one[at] if at < len(one) else None for one in (self.exact, self.again, self.nudged, self.before))
        further, same = ([one[at] for one in some if at < len(one)] for some in (runs.further, runs.same))
        own = Beside(exact=exact, again=again, nudged=nudged, before=before, coarsest=self.coarsest, tf32=self.tf32)
        return replace(own, further=further, same=same)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which facts of a tensor are compared, and how much of a difference of values is rounding.

    Where a fact differs that is not in `beside_values`, values are not compared. `plain_only`: other tensors than plain ones are not
    looked at. `anywhere`: values are compared wherever they live.
    """

    facts: tuple[str, ...]
    strides: bool = False
    beside_values: frozenset[str] = frozenset()
    floats: Callable[[torch.Tensor, torch.Tensor, Beside], Look]
    discrete: Callable[[torch.Tensor, torch.Tensor, Beside], Look]
    others: Callable[[Any, Any, bool], Told | None]
    plain_only: bool = False
    strided_only: bool = False
    anywhere: bool = False


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was found of one value; `error` and `allowed` are root mean squares over the size of its values, where those were measured."""

    name: str
    differences: tuple[Difference, ...] = ()
    error: float | None = None
    allowed: float | None = None
    detail: str = ""


@dataclass
class _Judging:
    rule: Rule
    noise: Noise
    no_values: frozenset[int]
    runs: Runs = field(default=_NO_RUNS)

    def one(self, at: int, seen: Seen, compiled: Any) -> Judged:
        rule, eager = self.rule, seen.value
        if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
            others = _gradients if seen.where == "gradient" else rule.others
            told = others(eager, compiled, at not in self.no_values)
            return Judged(name=seen.name, differences=() if told is None else (difference(seen, *told),))
        if rule.plain_only and not (is_plain(eager) and is_plain(compiled)):
            return Judged(name=seen.name)
        if rule.anywhere:
            device = _fastest_device()
            eager, compiled = eager.to(device), compiled.to(device)
        found, comparable = _facts(seen, eager, compiled, rule)
        if not comparable or at in self.no_values or (rule.strided_only and eager.layout is not torch.strided):
            return Judged(name=seen.name, differences=tuple(found))
        beside = self.noise.of(at, self.runs)
        look = _values(eager.detach(), compiled.detach(), beside.on(eager.device) if rule.anywhere else beside, rule)
        if look.wrong:
            found.append(_value(seen, eager.detach(), compiled.detach(), look))
        return Judged(name=seen.name, differences=tuple(found), error=look.error, allowed=look.allowed, detail=look.detail)


def judge(
    eager: Sequence[Seen], compiled: Sequence[Any], noise: Noise, rule: Rule, *, no_values: frozenset[int] = frozenset()
) -> list[Judged]:
    """What was found of each value; of another number of values one difference. Values at `no_values` are not compared."""
    if len(eager) != len(compiled):
        first = eager[0] if eager else Seen("output", 0, "", None)
        return [Judged(name=first.name, differences=(difference(first, "missing", f"{len(eager)} values", f"{len(compiled)} values"),))]
    judging = _Judging(rule, noise, no_values)
    found = [judging.one(at, seen, value) for at, (seen, value) in enumerate(zip(eager, compiled, strict=True))]
    doubtful = [at for at, one in enumerate(found) if any(item.kind == "value" for item in one.differences)]
    doubtful = [at for at in doubtful if isinstance(eager[at].value, torch.Tensor)]
    if doubtful and noise.runs is not None:
        judging.runs = noise.runs(doubtful)
        for at in doubtful:
            found[at] = judging.one(at, eager[at], compiled[at])
    return found


def difference(seen: Seen, kind: str, eager: object, compiled: object, **more: Any) -> Difference:
    """A difference of this value."""
    place = {"where": seen.where, "index": seen.index, "name": seen.name}
    return Difference(kind=kind, **place, eager=str(eager), compiled=str(compiled), **more)  # type: ignore[arg-type]


def _fastest_device() -> str:
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return "cuda" if in_use else "cpu"


def _facts(seen: Seen, eager: torch.Tensor, compiled: torch.Tensor, rule: Rule) -> tuple[list[Difference], bool]:
    """The facts that differ, and whether values can be compared all the same."""
    found: list[Difference] = []
    for kind in rule.facts:
        was, now = _FACTS[kind](eager), _FACTS[kind](compiled)
        if was != now:
            found.append(difference(seen, kind, was, now))
            if kind == "layout":
                break
    comparable = all(one.kind in rule.beside_values for one in found)
    if rule.strides and comparable and eager.layout is torch.strided and strides(eager) != strides(compiled):
        found.append(difference(seen, "stride", tuple(eager.stride()), tuple(compiled.stride())))
    return found, comparable


def _values(eager: torch.Tensor, compiled: torch.Tensor, beside: Beside, rule: Rule) -> Look:
    with torch.no_grad():
        look = rule.floats if eager.is_floating_point() or eager.is_complex() else rule.discrete
        return look(eager, compiled, beside)


def _value(seen: Seen, eager: torch.Tensor, compiled: torch.Tensor, look: Look) -> Difference:
    if look.mask is None:
        return difference(seen, "value", "", "", elements=eager.numel(), wrong_elements=look.count, detail=look.detail)
    first = tuple(int(number) for number in look.mask.nonzero()[0])
    largest = None
    if eager.is_floating_point():
        gaps = (compiled.double() - eager.double()).abs()[look.mask]
        finite = gaps[torch.isfinite(gaps)]
        largest = float(finite.max()) if finite.numel() else None
    count = int(look.mask.sum()) if look.count is None else look.count
    more = {"elements": eager.numel(), "wrong_elements": count, "first_wrong": first, "largest": largest, "detail": look.detail}
    return difference(seen, "value", as_text(eager[first]), as_text(compiled[first]), **more)


# -- numbers, None and the like


def _gradients(eager: Any, compiled: Any, _: bool) -> Told | None:
    words = ("no gradient", "a gradient")
    return None if (eager is None) == (compiled is None) else ("missing", words[eager is not None], words[compiled is not None])


def _numbers(eager: Any, compiled: Any, values: bool) -> Told | None:
    """A symbolic number is compared as the number that it is; fractions are not."""
    if isinstance(eager, torch.Tensor) or isinstance(compiled, torch.Tensor) or (eager is None) != (compiled is None):
        return "missing", type(eager).__name__, type(compiled).__name__
    exact = isinstance(eager, int | bool | str) and isinstance(compiled, int | bool | str)
    return ("value", eager, compiled) if exact and values and eager != compiled else None


def _by_type(eager: Any, compiled: Any, values: bool) -> Told | None:
    same_kind = isinstance(eager, torch.Tensor) == isinstance(compiled, torch.Tensor)
    if same_kind and (not values or eager == compiled or isinstance(eager, float)):
        return None
    return "value" if same_kind else "missing", type(eager).__name__, type(compiled).__name__


def _the_same(eager: Any, compiled: Any, _: bool) -> Told | None:
    return None if type(compiled) is type(eager) and compiled == eager else ("value", eager, compiled)


def _there(_: Any, compiled: Any, __: bool) -> Told | None:
    return ("missing", "a value", "missing") if compiled is None else None


EXPLAIN = Rule(
    facts=("shape", "dtype", "device", "requires_grad"),
    strides=True,
    beside_values=frozenset(("requires_grad",)),
    floats=by_elements,
    discrete=settled,
    others=_numbers,
    plain_only=True,
)
"""Of `explain --parity`: element by element, beside eager's own noise."""
PARITY = Rule(
    facts=("layout", "shape", "dtype", "requires_grad"),
    strides=True,
    floats=by_noise,
    discrete=settled,
    others=_by_type,
    strided_only=True,
)
"""Of `parity`: root mean squares beside eager's own noise."""
MINIFY = Rule(facts=("shape", "dtype"), floats=by_truth, discrete=equal, others=_the_same)
"""Of `minify`: root mean squares from float64."""
BENCH = Rule(facts=("dtype", "shape"), floats=by_step, discrete=moved_as_often, others=_there, anywhere=True)
"""Of `bench`: the rule of torch's own benchmarks, made aware of scale (`rounding.by_step`)."""
