"""Constant arguments go, so that operators take their defaults."""

from __future__ import annotations

from collections.abc import Iterator

from torch.fx import Graph, Node

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.passes.editing import call_positions, edited, node_at


def default_arguments(candidate: Candidate) -> Iterator[Candidate]:
    """For each operator: without any keyword, without each keyword, without each last positional constant."""
    for position in call_positions(candidate):
        node = node_at(candidate.module.graph, position)
        if getattr(node.target, "__module__", "") == "_operator":
            continue  # Python's operators have no defaults
        if len(node.kwargs) > 1:
            yield _without(candidate, position, list(node.kwargs))
        for name in node.kwargs:
            yield _without(candidate, position, [name])
        if len(node.args) > 1 and not isinstance(node.args[-1], Node):
            yield _shortened(candidate, position)


def _without(candidate: Candidate, position: int, names: list[str]) -> Candidate:
    def edit(graph: Graph) -> None:
        node = node_at(graph, position)
        node.kwargs = {name: value for name, value in node.kwargs.items() if name not in names}

    return edited(candidate, edit)


def _shortened(candidate: Candidate, position: int) -> Candidate:
    def edit(graph: Graph) -> None:
        node = node_at(graph, position)
        node.args = node.args[:-1]

    return edited(candidate, edit)
