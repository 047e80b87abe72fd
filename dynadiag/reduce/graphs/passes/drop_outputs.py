"""Fewer results are returned."""

from __future__ import annotations

from collections.abc import Iterator

from torch.fx import Graph, Node

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.passes.editing import edited


def drop_outputs(candidate: Candidate) -> Iterator[Candidate]:
    """Only one output, the last first; then each output left out."""
    outputs = next(node for node in candidate.module.graph.nodes if node.op == "output").args[0]
    if not isinstance(outputs, tuple | list) or len(outputs) < 2:
        return
    everything = range(len(outputs))
    for kept in ([position] for position in reversed(everything)):
        yield _returning(candidate, kept)
    for left_out in everything if len(outputs) > 2 else ():
        yield _returning(candidate, [position for position in everything if position != left_out])


def _returning(candidate: Candidate, kept: list[int]) -> Candidate:
    def edit(graph: Graph) -> None:
        output = next(node for node in graph.nodes if node.op == "output")
        values = output.args[0]
        assert isinstance(values, tuple | list)
        output.args = (tuple(values[position] for position in kept),)
        for node in reversed(list(graph.nodes)):
            if _is_dead(node):
                graph.erase_node(node)

    return edited(candidate, edit)


def _is_dead(node: Node) -> bool:
    return node.op not in ("placeholder", "output") and not node.users and not node.is_impure()
