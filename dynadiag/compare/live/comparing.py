"""What differs between what eager gave and what the compiled call gave: values beyond eager's own noise, sizes, memory, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from dynadiag.compare.aliasing import is_plain, sharing, snapshot
from dynadiag.compare.judge import EXPLAIN, Noise, Runs, Seen, judge, sharing_differences
from dynadiag.compare.live.backward import SeenBackward
from dynadiag.compare.live.execution import Execution, How, execute, noise_anchors
from dynadiag.compare.live.graph_copy import GraphCopy
from dynadiag.compare.rounding import root_mean_square
from dynadiag.model.difference import Difference, Where
from dynadiag.torch_compat.dispatch.live_call import RandomState

_HALVES = (torch.bfloat16, torch.float16)
_ROUNDINGS = 64
_ROUNDINGS_OF_HALVES = 4
_APART = 10
_SEEDS = (1, 2)
Values = Sequence[Any]


def same_draws(eager: Values, compiled: Values, otherwise: Callable[[int], Values], coarsest: torch.dtype | None) -> bool:
    """Whether values that depend on random numbers come from the same ones: all are equal but for a few roundings, and others would differ.

    `otherwise(seed)` gives eager's values for other random numbers. False where nothing tells.
    """
    limit = _limit(coarsest)
    if not eager or any(_gap(item, other) > limit for item, other in zip(eager, compiled, strict=True)):
        return False
    return all(any(_gap(element, other) > _APART * limit for element, other in zip(eager, otherwise(seed), strict=True)) for seed in _SEEDS)


def _limit(coarsest: torch.dtype | None) -> float:
    if coarsest in _HALVES:
        return _ROUNDINGS_OF_HALVES * torch.finfo(coarsest).eps
    return _ROUNDINGS * torch.finfo(torch.float32).eps


def _gap(item: Any, other: Any) -> float:
    """How far apart relative to their size, whole numbers by how many differ; infinite where they cannot be compared."""
    if not is_plain(item) or not is_plain(other):
        return 0.0 if item is other or (type(item) is type(other) and item == other) else math.inf
    if item.shape != other.shape or item.dtype != other.dtype:
        return math.inf
    with torch.no_grad():
        if not (item.is_floating_point() or item.is_complex()):
            return float((item != other).double().mean()) if item.numel() else 0.0
        wide = torch.complex128 if item.is_complex() else torch.float64
        size, gap = root_mean_square(item.to(wide)), root_mean_square(other.to(wide) - item.to(wide))
    found = gap / size if size else gap
    return found if math.isfinite(found) else math.inf


Gradients = list[torch.Tensor | None]


@dataclass(frozen=True)
class CopiedCall:
    """A graph and copies of what one call of it got; `random` says that eager drew other random numbers in it than the compiled call.

    `draws` are the generators as they were before it, where both drew the same.
    """

    copy: GraphCopy
    pristine: Sequence[Any]
    coarsest: torch.dtype | None
    random: bool
    indices: Mapping[Node, torch.Tensor]
    draws: RandomState | None = None


def gradient_differences(call: CopiedCall, seen: SeenBackward) -> tuple[Difference, ...]:
    """What eager's gradients for the same cotangents have otherwise. Raises what eager raises.

    Of a gradient that one side does not have only where every output had a cotangent: for one without AOTAutograd takes zeros, and so gives
    zeros where eager gives nothing.
    """
    positions = sorted(seen.gradients)
    eager = _eager(call, positions, seen.cotangents, snapshot(call.pristine), How())
    compiled = [seen.gradients[at] for at in positions]
    names = [call.copy.names[at] for at in positions]
    rows = list(zip(positions, names, eager, compiled, strict=True)) if seen.complete else []
    found = [
        _missing(at, name, tensor) for at, name, tensor, other in rows if (tensor is None) != (other is None) and at not in seen.unwanted
    ]
    both = [number for number in range(len(positions)) if eager[number] is not None and compiled[number] is not None]
    again = _runner(call, positions, seen.cotangents, both)
    different = compare(
        [eager[number] for number in both],
        [_detached(compiled[number]) for number in both],
        [names[number] for number in both],
        where="gradient",
        anchors=lambda: noise_anchors(call.pristine, call.coarsest, call.indices, again, parts=1, wide=call.draws is None)[0],
        coarsest=call.coarsest,
        no_values=frozenset(range(len(both))) if call.random else frozenset(),
    )
    places = {number: positions[at] for number, at in enumerate(both)}
    rest = [difference for difference in different if difference.kind not in ("stride", "requires_grad")]
    return (*found, *(replace(item, index=places[item.index]) for item in rest))


def _missing(at: int, name: str, eager: torch.Tensor | None) -> Difference:
    words = ("no gradient", "a gradient")
    return Difference(kind="missing", where="gradient", index=at, name=name, eager=words[eager is not None], compiled=words[eager is None])


def _detached(value: torch.Tensor | None) -> Any:
    return None if value is None else value.detach()


def _runner(call: CopiedCall, positions: Sequence[int], cotangents: Mapping[int, torch.Tensor], both: Sequence[int]) -> Callable[..., Any]:
    def eager_gradients(values: list[Any], how: How) -> list[list[Any]]:
        gradients = _eager(call, positions, cotangents, values, how)
        return [[gradients[number] for number in both]]

    return eager_gradients


def _eager(call: CopiedCall, positions: Sequence[int], cotangents: Mapping[int, torch.Tensor], values: list[Any], how: How) -> Gradients:
    if call.draws is not None:
        call.draws.set_back()
    with torch.enable_grad():
        needing = [_origin(values[at]) for at in positions]
        done: Execution = execute(call.copy, values, how)
        made = [*done.outputs, *values]
        parts = [(made[at], cotangent) for at, cotangent in sorted(cotangents.items()) if _flows(made[at])]
    if not parts:
        return [None] * len(needing)
    outputs, given = [item for item, _ in parts], [cotangent.to(element.dtype) for element, cotangent in parts]
    wanted = [entry for entry in needing if entry is not None]
    found = iter(torch.autograd.grad(outputs, wanted, given, allow_unused=True))
    return [next(found) if one is not None else None for one in needing]


def _origin(value: Any) -> Any:
    """Where its gradient goes: a tensor that is written in place is afterwards another one to autograd."""
    if not is_plain(value) or not value.requires_grad:
        return None
    return value if value.is_leaf else torch.autograd.graph.get_gradient_edge(value)


def _flows(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.grad_fn is not None


Anchors = Callable[[], Runs]


def compare(
    eager: Sequence[Any],
    compiled: Sequence[Any],
    names: Sequence[str],
    *,
    where: Where,
    anchors: Anchors | None = None,
    coarsest: torch.dtype | None = None,
    before: Sequence[Any] = (),
    no_values: frozenset[int] = frozenset(),
) -> tuple[Difference, ...]:
    """Everything that differs between two lists of values, position by position.

    `anchors` gives the same list from eager calls that differ only by noise (float64, inputs changed in their last digits); it is asked
    once, and only when values differ. `coarsest` is the least precise dtype computed in, `before` what the values were before the call.
    Values at `no_values` are not compared.
    """
    seen = [Seen(where, at, names[at] if at < len(names) else "", value) for at, value in enumerate(eager)]
    noise = Noise(runs=None if anchors is None else lambda _: anchors(), coarsest=coarsest, before=before)
    return tuple(difference for judged in judge(seen, compiled, noise, EXPLAIN, no_values=no_values) for difference in judged.differences)


def compare_sharing(
    eager: tuple[Sequence[Any], Sequence[Any]], compiled: tuple[Sequence[Any], Sequence[Any]], names: Sequence[str]
) -> tuple[Difference, ...]:
    """Outputs that alias an input or another output in one call and not, or differently, in the other.

    Each side is (outputs, inputs); `names` are those of the inputs. What is no plain tensor on both sides is left out.
    """
    if len(eager[0]) != len(compiled[0]):
        return ()
    plain = [is_plain(item) and is_plain(other) for item, other in zip(eager[0], compiled[0], strict=True)]
    was, now = (
        sharing([element if kept else None for element, kept in zip(outputs, plain, strict=True)], inputs)
        for outputs, inputs in (eager, compiled)
    )
    return tuple(sharing_differences(was, now, lambda at: f"output {at}" if at < len(plain) else names[at - len(plain)]))
