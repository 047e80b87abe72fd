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
        yield from changed_inputs(candidate, lambda one, fill=fill: _filled(one, fill))  # type: ignore[misc]
    yield from changed_inputs(candidate, partial(_alone, shared=_shared_memory(candidate)))


def _some_data(candidate: Candidate) -> bool:
    return any(isinstance(one, TensorInput) and one.fill == "data" for one in candidate.inputs)


def _shared_memory(candidate: Candidate) -> set[int]:
    """Where the memory lies that several inputs of a call share."""
    places = [[_place(one) for one in call.inputs if isinstance(one, TensorInput)] for call in candidate.calls]
    return {place for call in places for place in call if place and call.count(place) > 1}


def _place(one: TensorInput) -> int:
    return one.data.untyped_storage().data_ptr() if one.fill == "data" and one.data is not None and one.data.numel() else 0


def _alone(one: TensorInput, shared: set[int]) -> TensorInput | None:
    return (
        one.with_data(one.data.clone(), f"{one.token} alone")
        if one.data is not None and _place(one) in shared and not one.overlaps_itself
        else None
    )


def _filled(one: TensorInput, fill: Fill) -> TensorInput | None:
    changed = replace(one, fill=fill, data=None, token="", high=_high(one) if fill == "random" else one.high)
    return changed if changed.rank() < one.rank() else None


def _high(one: TensorInput) -> int:
    """One more than the largest integer of the data, so that random indices stay within their table."""
    if one.data is None or one.dtype.is_floating_point or one.dtype.is_complex or one.dtype == torch.bool or not one.data.numel():
        return one.high
    return max(2, int(one.data.max()) + 1)
