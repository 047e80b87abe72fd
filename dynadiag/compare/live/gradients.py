"""The gradients that eager gives for the cotangents of a real backward, and how they differ from those that the compiled one gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from dynadiag.compare.aliasing import is_plain, snapshot
from dynadiag.compare.live.backward import SeenBackward
from dynadiag.compare.live.comparing import compare
from dynadiag.compare.live.execution import Execution, How, execute, noise_anchors
from dynadiag.compare.live.graph_copy import GraphCopy
from dynadiag.model.difference import Difference
from dynadiag.torch_compat.dispatch.live_call import RandomState

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
    def run(values: list[Any], how: How) -> list[list[Any]]:
        gradients = _eager(call, positions, cotangents, values, how)
        return [[gradients[number] for number in both]]

    return run


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
