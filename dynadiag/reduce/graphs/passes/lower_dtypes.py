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
    calls = [[_plain(one) or one if isinstance(one, TensorInput) else one for one in call.inputs] for call in candidate.calls]
    if all(new is old for call, before in zip(calls, candidate.calls, strict=True) for new, old in zip(call, before.inputs, strict=True)):
        return

    def edit(graph: Graph) -> None:
        for node in graph.nodes:
            map_constants(node, lambda value: _PLAIN.get(value, value) if isinstance(value, torch.dtype) else value)

    yield edited(candidate, edit, calls)
    yield from changed_inputs(candidate, _plain)


def _plain(one: TensorInput) -> TensorInput | None:
    dtype = _PLAIN.get(one.dtype)
    if dtype is None:
        return None
    if one.fill == "data" and one.data is not None:
        return one.with_data(one.data.to(dtype), f"{one.token} {dtype}")
    return replace(one, dtype=dtype)
