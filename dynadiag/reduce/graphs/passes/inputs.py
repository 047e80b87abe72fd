"""Inputs become simpler: made-up data, constants in the graph, one for two, contiguous, float32 or int64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.fx import Graph
from torch.fx.node import map_aggregate

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import Fill, PlainInput, TensorInput, contiguous_stride
from dynadiag.reduce.graphs.passes.editing import changed_inputs, edited, map_constants


def simple_data(candidate: Candidate) -> Iterator[Candidate]:
    """All inputs at once, then one at a time, the simplest values first; then the same values in memory of their own."""
    fills: tuple[Fill, ...] = ("random", "zeros", "ones") if _some_data(candidate) else ("zeros", "ones")
    for fill in fills:
        yield from changed_inputs(candidate, lambda item, fill=fill: _filled(item, fill))  # type: ignore[misc]
    yield from changed_inputs(candidate, partial(_alone, shared=_shared_memory(candidate)))


def _some_data(candidate: Candidate) -> bool:
    return any(isinstance(input_, TensorInput) and input_.fill == "data" for input_ in candidate.inputs)


def _shared_memory(candidate: Candidate) -> set[int]:
    """Where the memory lies that several inputs of a call share."""
    places = [[_address(input_) for input_ in call.inputs if isinstance(input_, TensorInput)] for call in candidate.calls]
    return {place for call in places for place in call if place and call.count(place) > 1}


def _address(tensor_input: TensorInput) -> int:
    return (
        tensor_input.data.untyped_storage().data_ptr()
        if tensor_input.fill == "data" and tensor_input.data is not None and tensor_input.data.numel()
        else 0
    )


def _alone(tensor_input: TensorInput, shared: set[int]) -> TensorInput | None:
    return (
        tensor_input.with_data(tensor_input.data.clone(), f"{tensor_input.token} alone")
        if tensor_input.data is not None and _address(tensor_input) in shared and not tensor_input.overlaps_itself
        else None
    )


def _filled(tensor_input: TensorInput, fill: Fill) -> TensorInput | None:
    changed = replace(tensor_input, fill=fill, data=None, token="", high=_high(tensor_input) if fill == "random" else tensor_input.high)
    return changed if changed.rank() < tensor_input.rank() else None


def _high(tensor_input: TensorInput) -> int:
    """One more than the largest integer of the data, so that random indices stay within their table."""
    if (
        tensor_input.data is None
        or tensor_input.dtype.is_floating_point
        or tensor_input.dtype.is_complex
        or tensor_input.dtype == torch.bool
        or not tensor_input.data.numel()
    ):
        return tensor_input.high
    return max(2, int(tensor_input.data.max()) + 1)


def plain_inputs(candidate: Candidate) -> Iterator[Candidate]:
    """Gradients first, since they cost a whole backward; then each plain input."""
    yield from changed_inputs(candidate, lambda item: replace(item, requires_grad=False, leaf=True) if item.requires_grad else None)
    yield from changed_inputs(candidate, lambda element: None if element.leaf else replace(element, leaf=True))
    for position, tensor_input in enumerate(candidate.inputs):
        if isinstance(tensor_input, PlainInput) and isinstance(tensor_input.value, bool | int | float | str | None):
            yield _inlined(candidate, position, tensor_input.value)


def _inlined(candidate: Candidate, position: int, value: bool | int | float | str | None) -> Candidate:
    def edit(graph: Graph) -> None:
        gone = [node for node in graph.nodes if node.op == "placeholder"][position]

        def visit(argument: Any) -> Any:
            return value if argument is gone else argument

        for user in list(gone.users):
            user.args = map_aggregate(user.args, visit)
            user.kwargs = map_aggregate(user.kwargs, visit)

    return edited(candidate, edit)


def merge_inputs(candidate: Candidate) -> Iterator[Candidate]:
    """All inputs of a kind at once, then pairs of neighbours among them."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for position, tensor_input in enumerate(candidate.inputs):
        if isinstance(tensor_input, TensorInput):
            groups.setdefault((tensor_input.shape, tensor_input.dtype, tensor_input.device), []).append(position)
    for members in groups.values():
        if len(members) > 1:
            yield _merged(candidate, members)
        for pair in itertools.pairwise(members) if len(members) > 2 else ():
            yield _merged(candidate, pair)


def _merged(candidate: Candidate, members: Sequence[int]) -> Candidate:
    def edit(graph: Graph) -> None:
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for other in members[1:]:
            placeholders[other].replace_all_uses_with(placeholders[members[0]])

    return edited(candidate, edit)


def contiguous_strides(candidate: Candidate) -> Iterator[Candidate]:
    """All inputs at once, then each."""
    yield from changed_inputs(candidate, _contiguous)


def _contiguous(tensor_input: TensorInput) -> TensorInput | None:
    if tensor_input.contiguous:
        return None
    if tensor_input.fill == "data" and tensor_input.data is not None:
        return tensor_input.with_data(tensor_input.data.contiguous(), f"{tensor_input.token} contiguous")
    return replace(tensor_input, stride=contiguous_stride(tensor_input.shape))


_USUAL = {torch.float64: torch.float32, torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.int32: torch.int64}


def lower_dtypes(candidate: Candidate) -> Iterator[Candidate]:
    """Everywhere at once, constants of the graph included; then each input alone."""
    calls = [
        [_in_usual_dtype(input_) or input_ if isinstance(input_, TensorInput) else input_ for input_ in call.inputs]
        for call in candidate.calls
    ]
    if all(new is old for call, before in zip(calls, candidate.calls, strict=True) for new, old in zip(call, before.inputs, strict=True)):
        return

    def edit(graph: Graph) -> None:
        for node in graph.nodes:
            map_constants(node, lambda value: _USUAL.get(value, value) if isinstance(value, torch.dtype) else value)

    yield edited(candidate, edit, calls)
    yield from changed_inputs(candidate, _in_usual_dtype)


def _in_usual_dtype(tensor_input: TensorInput) -> TensorInput | None:
    dtype = _USUAL.get(tensor_input.dtype)
    if dtype is None:
        return None
    if tensor_input.fill == "data" and tensor_input.data is not None:
        return tensor_input.with_data(tensor_input.data.to(dtype), f"{tensor_input.token} {dtype}")
    return replace(tensor_input, dtype=dtype)
