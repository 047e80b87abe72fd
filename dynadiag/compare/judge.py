"""What differs between what eager gave and what a compiled call gave, under a rule that says how much of it is rounding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dynadiag.compare.aliasing import is_plain
from dynadiag.compare.rounding import Beside, Look, as_text, look_at, on_fastest, strides
from dynadiag.model.difference import Difference

_FACTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "layout": lambda value: value.layout,
    "shape": lambda value: tuple(value.shape),
    "dtype": lambda value: value.dtype,
    "device": lambda value: value.device,
    "requires_grad": lambda value: value.requires_grad,
}
Values = Sequence[Any]
_COMPARED = (int, bool, str, torch.dtype, torch.device)


@dataclass(frozen=True)
class Seen:
    """A tensor (or another value) after a call: `where` it was found, as the how many-th of those, and under which name.

    `number` says that a tensor holds a number of Python's, which may have been computed in float32.
    """

    where: str
    index: int
    name: str
    value: Any
    number: bool = False


@dataclass(frozen=True, kw_only=True)
class Runs:
    """More eager runs, each a list of values by position: `further` from a state that is a bit off, `same` from the same state, `exact` in
    float64 where that was not made before. `coarsest` is the least precise dtype computed in, where that was not known before; `tf32` says
    whether products may have been computed in that.
    """

    further: Sequence[Values] = ()
    same: Sequence[Values] = ()
    exact: Values = ()
    coarsest: torch.dtype | None = None
    tf32: bool = False


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
        single = (self.exact or runs.exact, self.again, self.nudged, self.before)
        exact, again, nudged, before = (sequence[at] if at < len(sequence) else None for sequence in single)
        further, same = ([item[at] for item in some if at < len(item)] for some in (runs.further, runs.same))
        known = {"coarsest": self.coarsest or runs.coarsest, "tf32": self.tf32 or runs.tf32}
        return Beside(exact=exact, again=again, nudged=nudged, before=before, further=further, same=same, **known)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which facts of a tensor are compared beside its values, of which `rounding.look_at` alone says whether they are right.

    Where a fact differs that is not in `beside_values`, values are not compared. `plain_only`: other tensors than plain ones are not
    looked at. `anywhere`: values are compared wherever they live.
    """

    facts: tuple[str, ...]
    strides: bool = False
    beside_values: frozenset[str] = frozenset()
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
            return self._no_tensors(at, seen, compiled)
        if rule.plain_only and not (is_plain(eager) and is_plain(compiled)):
            return Judged(name=seen.name)
        if rule.anywhere:
            eager, compiled = (on_fastest(tensor) for tensor in (eager, compiled))
        found, comparable = _facts(seen, eager, compiled, rule)
        if not comparable or at in self.no_values or (rule.strided_only and eager.layout is not torch.strided):
            return Judged(name=seen.name, differences=tuple(found))
        beside = self._beside(at, number=seen.number)
        with torch.no_grad():
            look = look_at(eager.detach(), compiled.detach(), beside.on(eager.device) if rule.anywhere else beside)
        if look.wrong:
            found.append(_value(seen, eager.detach(), compiled.detach(), look))
        return Judged(name=seen.name, differences=tuple(found), error=look.error, allowed=look.allowed, detail=look.detail)

    def adds(self, at: int, seen: Seen) -> bool:
        """Whether the call changed a value that was there before, and only a float64 run can tell what that adds."""
        before = self.noise.before[at] if at < len(self.noise.before) else None
        if self.noise.exact or not isinstance(before, torch.Tensor) or not isinstance(seen.value, torch.Tensor):
            return False
        value = seen.value
        if self.rule.anywhere:
            before, value = (on_fastest(tensor) for tensor in (before, value))
        same = before.shape == value.shape and before.dtype == value.dtype and before.device == value.device
        return same and value.is_floating_point() and not torch.equal(before, value)

    def _beside(self, at: int, *, number: bool) -> Beside:
        beside = self.noise.of(at, self.runs)
        return replace(beside, coarsest=beside.coarsest or torch.float32) if number else beside

    def _no_tensors(self, at: int, seen: Seen, compiled: Any) -> Judged:
        """Numbers, None and the like; a symbolic number is compared as the number that it is."""
        eager = seen.value
        if (eager is None) != (compiled is None) or isinstance(eager, torch.Tensor) or isinstance(compiled, torch.Tensor):
            told = [type(item).__name__ for item in (eager, compiled)]
            if seen.where == "gradient":
                told = ["no gradient" if element is None else "a gradient" for element in (eager, compiled)]
            return Judged(name=seen.name, differences=(difference(seen, "missing", *told),))
        if at in self.no_values:
            return Judged(name=seen.name)
        if float in (type(eager), type(compiled)) and isinstance(eager, int | float) and isinstance(compiled, int | float):
            look = look_at(_as_tensor(eager), _as_tensor(compiled), self._beside(at, number=True).each(_as_tensor))
            wrong, detail = look.wrong, look.detail
        else:
            wrong, detail = isinstance(eager, _COMPARED) and isinstance(compiled, _COMPARED) and eager != compiled, ""
        differences = (difference(seen, "value", eager, compiled, detail=detail),) if wrong else ()
        return Judged(name=seen.name, differences=differences, detail=detail)


def judge(
    eager: Sequence[Seen], compiled: Sequence[Any], noise: Noise, rule: Rule, *, no_values: frozenset[int] = frozenset()
) -> list[Judged]:
    """What was found of each value; of another number of values one difference. Values at `no_values` are not compared."""
    if len(eager) != len(compiled):
        first = eager[0] if eager else Seen("output", 0, "", None)
        return [Judged(name=first.name, differences=(difference(first, "missing", f"{len(eager)} values", f"{len(compiled)} values"),))]
    judging = _Judging(rule, noise, no_values)
    found = [judging.one(at, seen, value) for at, (seen, value) in enumerate(zip(eager, compiled, strict=True))]
    doubtful = [
        at for at, judged in enumerate(found) if any(item.kind == "value" for item in judged.differences) or judging.adds(at, eager[at])
    ]
    doubtful = [at for at in doubtful if isinstance(eager[at].value, torch.Tensor | float)]
    if doubtful and noise.runs is not None:
        judging.runs = noise.runs(doubtful)
        for at in doubtful:
            found[at] = judging.one(at, eager[at], compiled[at])
    return found


def difference(seen: Seen, kind: str, eager: object, compiled: object, **more: Any) -> Difference:
    """A difference of this value."""
    place = {"where": seen.where, "index": seen.index, "name": seen.name}
    return Difference(kind=kind, **place, eager=str(eager), compiled=str(compiled), **more)  # type: ignore[arg-type]


def sharing_differences(
    eager: Mapping[tuple[int, int], str], compiled: Mapping[tuple[int, int], str], name: Callable[[int], str]
) -> list[Difference]:
    """The outputs that alias another output or an input in one call but not, or differently, in the other (`aliasing.sharing` of both).

    `name` names what an output aliases, by its number there.
    """
    return [
        difference(
            Seen("output", pair[0], name(pair[1]), None), "alias", *(side.get(pair, "separate memory") for side in (eager, compiled))
        )
        for pair in sorted(eager.keys() | compiled.keys())
        if eager.get(pair) != compiled.get(pair)
    ]


def _facts(seen: Seen, eager: torch.Tensor, compiled: torch.Tensor, rule: Rule) -> tuple[list[Difference], bool]:
    """The facts that differ, and whether values can be compared all the same."""
    found: list[Difference] = []
    for kind in rule.facts:
        was, now = _FACTS[kind](eager), _FACTS[kind](compiled)
        if was != now:
            found.append(difference(seen, kind, was, now))
            if kind == "layout":
                break
    comparable = all(item.kind in rule.beside_values for item in found)
    if rule.strides and comparable and eager.layout is torch.strided and strides(eager) != strides(compiled):
        found.append(difference(seen, "stride", tuple(eager.stride()), tuple(compiled.stride())))
    return found, comparable


def _as_tensor(number: Any) -> Any:
    return torch.tensor(float(number), dtype=torch.float64) if isinstance(number, int | float) else None


def _value(seen: Seen, eager: torch.Tensor, compiled: torch.Tensor, look: Look) -> Difference:
    assert look.mask is not None
    first = tuple(int(number) for number in look.mask.nonzero()[0])
    eager, compiled = eager.to_dense(), compiled.to_dense()
    largest = None
    if eager.is_floating_point():
        gaps = (compiled.double() - eager.double()).abs()[look.mask]
        finite = gaps[torch.isfinite(gaps)]
        largest = float(finite.max()) if finite.numel() else None
    more = {
        "elements": eager.numel(),
        "wrong_elements": int(look.mask.sum()),
        "first_wrong": first,
        "largest": largest,
        "detail": look.detail,
    }
    return difference(seen, "value", as_text(eager[first]), as_text(compiled[first]), **more)


EXPLAIN = Rule(
    facts=("shape", "dtype", "device", "requires_grad"), strides=True, beside_values=frozenset(("requires_grad",)), plain_only=True
)
"""Of `explain --parity`."""
PARITY = Rule(facts=("layout", "shape", "dtype", "requires_grad"), strides=True, strided_only=True)
"""Of `parity`."""
MINIFY = Rule(facts=("shape", "dtype"))
"""Of `minify`."""
BENCH = Rule(facts=("dtype", "shape"), anywhere=True)
"""Of `bench`."""
