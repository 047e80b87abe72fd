"""What differs between the call of a graph and the call of its compiled form: values beyond eager's own noise, sizes, memory, gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from dynadiag.parity.calling import Call, Seen
from dynadiag.shadow.measures import NOISE_FACTOR, as_text, root_mean_square, special, strides, tolerance_of

Aspect = Literal["values", "shape", "stride", "dtype", "layout", "requires_grad", "aliasing", "missing_gradient", "raises"]
Anchors = Callable[[], Sequence[Call | None]]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that a caller would see differ: `where` and `name` say on what, `eager` and `compiled` what each gave, as short text."""

    where: str
    position: int
    name: str
    aspect: Aspect
    eager: str
    compiled: str
    elements: int | None = None
    wrong_elements: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def differences(eager: Call, compiled: Call, anchors: Anchors, *, values: bool) -> list[Difference]:
    """Everything that differs. `anchors` gives eager calls in float64 and on slightly changed inputs: only asked where values differ.

    `values` False compares all but values (random numbers, memory that nobody wrote).
    """
    found: list[Difference] = []
    if len(eager.seen) != len(compiled.seen):
        return [_difference(eager.seen[0], "layout", f"{len(eager.seen)} tensors", f"{len(compiled.seen)} tensors")]
    for at, (one, other) in enumerate(zip(eager.seen, compiled.seen, strict=True)):
        found += _one(one, other, functools.partial(_anchored, anchors, at), values)
    return [*found, *_relations(eager, compiled)]


def _anchored(anchors: Anchors, at: int) -> list[Any]:
    return [anchor.seen[at].value for anchor in anchors() if anchor is not None and at < len(anchor.seen)]


def _difference(seen: Seen, aspect: Aspect, eager: object, compiled: object, **more: int) -> Difference:
    return Difference(
        where=seen.where, position=seen.position, name=seen.name, aspect=aspect, eager=str(eager), compiled=str(compiled), **more
    )


def _one(one: Seen, other: Seen, anchors: Callable[[], list[Any]], values: bool) -> list[Difference]:
    eager, compiled = one.value, other.value
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        return _plain(one, eager, compiled, values)
    if eager.layout is not compiled.layout:
        return [_difference(one, "layout", eager.layout, compiled.layout)]
    plain: tuple[tuple[Aspect, Any, Any], ...] = (
        ("shape", tuple(eager.shape), tuple(compiled.shape)),
        ("dtype", eager.dtype, compiled.dtype),
        ("requires_grad", eager.requires_grad, compiled.requires_grad),
    )
    found = [_difference(one, aspect, was, now) for aspect, was, now in plain if was != now]
    if found or eager.layout is not torch.strided:
        return found
    if strides(eager) != strides(compiled) and one.where != "gradient":
        found.append(_difference(one, "stride", tuple(eager.stride()), tuple(compiled.stride())))
    if values and (wrong := wrong_elements(compiled.detach(), eager.detach(), anchors)):
        found.append(_values(one, eager.detach(), compiled.detach(), wrong))
    return found


def _plain(one: Seen, eager: Any, compiled: Any, values: bool) -> list[Difference]:
    if one.where == "gradient":
        if (eager is None) == (compiled is None):
            return []
        words = {True: "no gradient", False: "a gradient"}
        return [_difference(one, "missing_gradient", words[eager is None], words[compiled is None])]
    same_kind = isinstance(eager, torch.Tensor) == isinstance(compiled, torch.Tensor)
    if same_kind and (not values or eager == compiled or isinstance(eager, float)):
        return []
    return [_difference(one, "values", type(eager).__name__, type(compiled).__name__)]


def wrong_elements(compiled: torch.Tensor, eager: torch.Tensor, anchors: Callable[[], list[Any]]) -> int:
    """How many elements differ, when they differ by more than noise; else 0."""
    if torch.equal(compiled, eager):
        return 0
    if not (eager.is_floating_point() or eager.is_complex()):
        stable = all(isinstance(other, torch.Tensor) and torch.equal(other.to(eager.dtype), eager) for other in anchors())
        return int((compiled != eager).sum()) if stable else 0
    return _wrong_floats(compiled, eager, anchors)


def _wrong_floats(compiled: torch.Tensor, eager: torch.Tensor, anchors: Callable[[], list[Any]]) -> int:
    wide = torch.complex128 if eager.is_complex() else torch.float64
    got, expected = compiled.to(wide), eager.to(wide)
    finite = torch.isfinite(expected) & torch.isfinite(got)
    same_others = torch.equal(special(got)[~finite], special(expected)[~finite])
    tolerance = tolerance_of(eager.dtype)
    error, size = root_mean_square((got - expected)[finite]), root_mean_square(expected[finite])
    if same_others and error <= tolerance * size + 1e-12:
        return 0
    others = [other.to(wide) for other in anchors() if isinstance(other, torch.Tensor) and other.shape == eager.shape]
    if not same_others:
        stable = all(torch.equal(special(other), special(expected)) for other in others)
        if not stable:
            return 0
    else:
        noise = max((root_mean_square((other - expected)[finite].nan_to_num(nan=float("inf"))) for other in others), default=0.0)
        if error <= NOISE_FACTOR * noise + tolerance * size + 1e-12:
            return 0
    near = torch.isclose(got, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)
    return max(int((~near).sum()), 1)


def _values(one: Seen, eager: torch.Tensor, compiled: torch.Tensor, wrong: int) -> Difference:
    at = int((eager != compiled).flatten().nonzero()[0]) if eager.numel() else 0
    return _difference(
        one, "values", as_text(eager.flatten()[at]), as_text(compiled.flatten()[at]), elements=eager.numel(), wrong_elements=wrong
    )


def _relations(eager: Call, compiled: Call) -> list[Difference]:
    was = {(one, other): relation for one, other, relation in eager.relations}
    now = {(one, other): relation for one, other, relation in compiled.relations}
    return [
        Difference(
            where="output",
            position=int(pair[0].split()[1]),
            name=" and ".join(pair),
            aspect="aliasing",
            eager=was.get(pair, "separate memory"),
            compiled=now.get(pair, "separate memory"),
        )
        for pair in sorted(was.keys() | now.keys())
        if was.get(pair) != now.get(pair)
    ]
