"""Real data become zeros, ones or seeded random numbers; tensors that share memory get memory of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import Fill, TensorInput
from dynadiag.reduce.graphs.passes.editing import changed_inputs


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
    places = [[_place(input_) for input_ in call.inputs if isinstance(input_, TensorInput)] for call in candidate.calls]
    return {place for call in places for place in call if place and call.count(place) > 1}


def _place(tensor_input: TensorInput) -> int:
    return (
        tensor_input.data.untyped_storage().data_ptr()
        if tensor_input.fill == "data" and tensor_input.data is not None and tensor_input.data.numel()
        else 0
    )


def _alone(tensor_input: TensorInput, shared: set[int]) -> TensorInput | None:
    return (
        tensor_input.with_data(tensor_input.data.clone(), f"{tensor_input.token} alone")
        if tensor_input.data is not None and _place(tensor_input) in shared and not tensor_input.overlaps_itself
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
