"""Numbers and other plain inputs become constants in the graph; tensors no longer ask for gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch.fx import Graph
from torch.fx.node import map_aggregate

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import PlainInput
from dynadiag.reduce.graphs.passes.editing import changed_inputs, edited


def plain_inputs(candidate: Candidate) -> Iterator[Candidate]:
    """Gradients first, since they cost a whole backward; then each plain input."""
    yield from changed_inputs(candidate, lambda one: replace(one, requires_grad=False, leaf=True) if one.requires_grad else None)
    yield from changed_inputs(candidate, lambda one: None if one.leaf else replace(one, leaf=True))
    for position, one in enumerate(candidate.inputs):
        if isinstance(one, PlainInput) and isinstance(one.value, bool | int | float | str | None):
            yield _inlined(candidate, position, one.value)


def _inlined(candidate: Candidate, position: int, value: bool | int | float | str | None) -> Candidate:
    def edit(graph: Graph) -> None:
        gone = [node for node in graph.nodes if node.op == "placeholder"][position]

        def visit(argument: Any) -> Any:
            return value if argument is gone else argument

        for user in list(gone.users):
            user.args = map_aggregate(user.args, visit)
            user.kwargs = map_aggregate(user.kwargs, visit)

    return edited(candidate, edit)
