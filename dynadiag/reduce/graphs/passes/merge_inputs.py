"""Inputs of one shape and dtype become one input."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from torch.fx import Graph

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import TensorInput
from dynadiag.reduce.graphs.passes.editing import edited


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
