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
