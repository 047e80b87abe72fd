"""Inputs become contiguous."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import TensorInput, contiguous_stride
from dynadiag.reduce.graphs.passes.editing import changed_inputs


def contiguous_strides(candidate: Candidate) -> Iterator[Candidate]:
    """All inputs at once, then each."""
    yield from changed_inputs(candidate, _contiguous)


def _contiguous(one: TensorInput) -> TensorInput | None:
    if one.contiguous:
        return None
    if one.fill == "data" and one.data is not None:
        return one.with_data(one.data.contiguous(), f"{one.token} contiguous")
    return replace(one, stride=contiguous_stride(one.shape))
