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


def _contiguous(tensor_input: TensorInput) -> TensorInput | None:
    if tensor_input.contiguous:
        return None
    if tensor_input.fill == "data" and tensor_input.data is not None:
        return tensor_input.with_data(tensor_input.data.contiguous(), f"{tensor_input.token} contiguous")
    return replace(tensor_input, stride=contiguous_stride(tensor_input.shape))
