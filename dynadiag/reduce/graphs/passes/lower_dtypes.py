"""Inputs and constants become float32 (integers: int64)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch.fx import Graph

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import TensorInput
from dynadiag.reduce.graphs.passes.editing import changed_inputs, edited, map_constants

_PLAIN = {torch.float64: torch.float32, torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.int32: torch.int64}


def lower_dtypes(candidate: Candidate) -> Iterator[Candidate]:
    """Everywhere at once, constants of the graph included; then each input alone."""
    calls = [
        [_plain(input_) or input_ if isinstance(input_, TensorInput) else input_ for input_ in call.inputs] for call in candidate.calls
    ]
    if all(new is old for call, before in zip(calls, candidate.calls, strict=True) for new, old in zip(call, before.inputs, strict=True)):
        return

    def edit(graph: Graph) -> None:
        for node in graph.nodes:
            map_constants(node, lambda value: _PLAIN.get(value, value) if isinstance(value, torch.dtype) else value)

    yield edited(candidate, edit, calls)
    yield from changed_inputs(candidate, _plain)


def _plain(tensor_input: TensorInput) -> TensorInput | None:
    dtype = _PLAIN.get(tensor_input.dtype)
    if dtype is None:
        return None
    if tensor_input.fill == "data" and tensor_input.data is not None:
        return tensor_input.with_data(tensor_input.data.to(dtype), f"{tensor_input.token} {dtype}")
    return replace(tensor_input, dtype=dtype)
