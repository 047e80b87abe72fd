"""Numbers in the arguments of operators become 0 or 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.fx import Graph

from dynadiag.reduce.graphs.candidate import Candidate, leaves
from dynadiag.reduce.graphs.passes.editing import call_positions, edited, map_constants, node_at


def simple_constants(candidate: Candidate) -> Iterator[Candidate]:
    """For each operator, each different number in it."""
    for position in call_positions(candidate):
        node = node_at(candidate.module.graph, position)
        numbers = {value: None for value in leaves((node.args, node.kwargs)) if type(value) in (int, float)}
        for number in numbers:
            for simple in (0, 1):
                if number not in (0, 1) or simple < number:
                    yield _with(candidate, position, number, type(number)(simple))


def _with(candidate: Candidate, position: int, old: Any, new: Any) -> Candidate:
    def edit(graph: Graph) -> None:
        map_constants(node_at(graph, position), lambda value: new if type(value) is type(old) and value == old else value)

    return edited(candidate, edit)
