"""What differs between what eager gave and what the compiled call gave: values beyond eager's own noise, sizes, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from dynadiag.shadow.measures import NOISE_FACTOR, as_text, root_mean_square, special, strides, tolerance_of
from dynadiag.shadow.memory import alias_pattern, is_plain

Kind = Literal["value", "shape", "stride", "dtype", "device", "requires_grad", "alias", "missing", "raises", "accepts", "overwritten"]
Where = Literal["output", "input", "gradient"]
Anchors = Callable[[], Sequence[Sequence[Any]]]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that a caller would see differ: the how-many-th output or input, its name, and what each side gave, as short text.

    For values also how many of how many elements differ, the first of them by index, and the largest difference.
    """

    kind: Kind
    where: Where
    index: int
    name: str
    eager: str
    compiled: str
    elements: int | None = None
    wrong_elements: int | None = None
    first_wrong: tuple[int, ...] | None = None
    largest: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare(
    eager: Sequence[Any],
    compiled: Sequence[Any],
    names: Sequence[str],
    *,
    where: Where,
    anchors: Anchors | None = None,
    coarsest: torch.dtype | None = None,
    no_values: frozenset[int] = frozenset(),
) -> tuple[Difference, ...]:
    """Everything that differs between two lists of values, position by position.

    `anchors` gives the same list from eager calls that differ only by noise (float64, inputs changed in their last digits); it is asked
    once, and only when values differ. `coarsest` is the least precise dtype computed in. Values at `no_values` are not compared.
    """
    asked: list[Sequence[Sequence[Any]]] = []

    def others(at: int) -> list[Any]:
        if not asked:
            asked.append(anchors() if anchors is not None else ())
        return [one[at] for one in asked[0] if at < len(one)]

    if len(eager) != len(compiled):
        counts = f"{len(eager)} values", f"{len(compiled)} values"
        return (_Place(where, 0, names[0] if names else "").difference("missing", *counts),)
    found: list[Difference] = []
    for at, (one, other) in enumerate(zip(eager, compiled, strict=True)):
        name = names[at] if at < len(names) else ""
        found += _one(one, other, lambda at=at: others(at), _Place(where, at, name), coarsest, at in no_values)  # type: ignore[misc]
    return tuple(found)


def compare_sharing(
    eager: tuple[Sequence[Any], Sequence[Any]], compiled: tuple[Sequence[Any], Sequence[Any]], names: Sequence[str]
) -> tuple[Difference, ...]:
    """Outputs that share memory with an input or with another output in one call and not, or differently, in the other.

    Each side is (outputs, inputs); `names` are those of the inputs. Parts of one storage that do not overlap count as separate: nobody
    could tell by writing to one of them.
    """
    count = len(eager[0])
    if count != len(compiled[0]):
        return ()
    was, now = _sharing(eager, count), _sharing(compiled, count)
    plain = [is_plain(one) and is_plain(other) for one, other in zip([*eager[0], *eager[1]], [*compiled[0], *compiled[1]], strict=False)]
    found = []
    for one, other in sorted(was.keys() | now.keys()):
        if was.get((one, other)) != now.get((one, other)) and plain[one] and plain[other]:
            name = f"output {other}" if other < count else names[other - count]
            place = _Place("output", one, name)
            found.append(place.difference("alias", _shared(was.get((one, other))), _shared(now.get((one, other)))))
    return tuple(found)


def _sharing(side: tuple[Sequence[Any], Sequence[Any]], outputs: int) -> dict[tuple[int, int], str]:
    """How each output overlaps other outputs and inputs, which are numbered behind the outputs."""
    pattern = alias_pattern([*side[0], *side[1]])
    return {(one, other): how for one, other, how in pattern if one < outputs and how != "one storage"}


@dataclass(frozen=True)
class _Place:
    where: Where
    index: int
    name: str

    def difference(self, kind: Kind, eager: object, compiled: object, **more: Any) -> Difference:
        return Difference(kind=kind, where=self.where, index=self.index, name=self.name, eager=str(eager), compiled=str(compiled), **more)


def _shared(how: str | None) -> str:
    return {None: "separate memory", "overlap": "overlapping memory"}.get(how, str(how))


def _one(
    eager: Any, compiled: Any, others: Callable[[], list[Any]], place: _Place, coarsest: torch.dtype | None, skip_values: bool
) -> list[Difference]:
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        return _plain_values(eager, compiled, place, skip_values)
    if not is_plain(eager) or not is_plain(compiled):
        return []
    facts: tuple[tuple[Kind, object, object], ...] = (
        ("shape", tuple(eager.shape), tuple(compiled.shape)),
        ("dtype", eager.dtype, compiled.dtype),
        ("device", eager.device, compiled.device),
        ("requires_grad", eager.requires_grad, compiled.requires_grad),
    )
    found = [place.difference(kind, was, now) for kind, was, now in facts if was != now]
    if any(one.kind != "requires_grad" for one in found):
        return found
    if strides(eager) != strides(compiled):
        found.append(place.difference("stride", tuple(eager.stride()), tuple(compiled.stride())))
    if not skip_values and (wrong := _wrong(eager.detach(), compiled.detach(), others, coarsest)) is not None:
        found.append(_value_difference(eager.detach(), compiled.detach(), wrong, place))
    return found


def _plain_values(eager: Any, compiled: Any, place: _Place, skip_values: bool) -> list[Difference]:
    """Numbers and None; a symbolic number is compared as the number that it is."""
    if isinstance(eager, torch.Tensor) or isinstance(compiled, torch.Tensor) or (eager is None) != (compiled is None):
        return [place.difference("missing", type(eager).__name__, type(compiled).__name__)]
    exact = isinstance(eager, int | bool | str) and isinstance(compiled, int | bool | str)
    if exact and not skip_values and eager != compiled:
        return [place.difference("value", eager, compiled)]
    return []


def _wrong(eager: torch.Tensor, compiled: torch.Tensor, others: Callable[[], list[Any]], coarsest: torch.dtype | None) -> Any:
    """A mask of the elements that differ by more than noise, or None."""
    if torch.equal(eager, compiled):
        return None
    if not (eager.is_floating_point() or eager.is_complex()):
        stable = all(isinstance(other, torch.Tensor) and torch.equal(other.to(eager.dtype), eager) for other in others())
        return eager != compiled if stable else None
    with torch.no_grad():
        return _wrong_floats(eager, compiled, others, coarsest)


def _wrong_floats(eager: torch.Tensor, compiled: torch.Tensor, others: Callable[[], list[Any]], coarsest: torch.dtype | None) -> Any:
    wide = torch.complex128 if eager.is_complex() else torch.float64
    expected, got = eager.to(wide), compiled.to(wide)
    tolerance = max(_tolerance(eager.dtype), _tolerance(coarsest))
    finite = torch.isfinite(expected) & torch.isfinite(got)
    scale = root_mean_square(expected[finite])
    allowed = tolerance * (expected.abs().nan_to_num() + scale) + 1e-12
    wrong = torch.where(finite, (got - expected).abs() > allowed, special(got) != special(expected))
    if not bool(wrong.any()):
        return None
    for anchor in others():
        if not isinstance(anchor, torch.Tensor) or anchor.shape != eager.shape:
            continue
        other = anchor.detach().to(wide)
        noise = (other - expected).abs().nan_to_num(nan=float("inf"), posinf=float("inf"))
        noise[special(other) == special(expected)] = (other - expected).abs().nan_to_num()[special(other) == special(expected)]
        spread = root_mean_square(noise[torch.isfinite(noise)])
        wrong &= torch.where(finite, (got - expected).abs() > allowed + NOISE_FACTOR * (noise + spread), torch.isfinite(noise))
    return wrong if bool(wrong.any()) else None


def _tolerance(dtype: torch.dtype | None) -> float:
    return 0.0 if dtype is None else tolerance_of(dtype)


def _value_difference(eager: torch.Tensor, compiled: torch.Tensor, wrong: torch.Tensor, place: _Place) -> Difference:
    first = tuple(int(number) for number in wrong.nonzero()[0])
    largest = None
    if eager.is_floating_point():
        gaps = (compiled.double() - eager.double()).abs()[wrong]
        finite = gaps[torch.isfinite(gaps)]
        largest = float(finite.max()) if finite.numel() else None
    return place.difference(
        "value",
        as_text(eager[first]),
        as_text(compiled[first]),
        elements=eager.numel(),
        wrong_elements=int(wrong.sum()),
        first_wrong=first,
        largest=largest,
    )
