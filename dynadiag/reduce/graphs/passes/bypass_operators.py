"""An operator is replaced by one of the values that it reads."""

from __future__ import annotations

from collections.abc import Iterator

from torch.fx import Graph, Node

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.passes.editing import call_positions, edited, node_at


def bypass_operators(candidate: Candidate) -> Iterator[Candidate]:
    """For each operator, the last first: its users read one of its inputs instead."""
    for position in call_positions(candidate):
        for which in range(len(readable(node_at(candidate.module.graph, position)))):

            def edit(graph: Graph, position: int = position, which: int = which) -> None:
                bypass(graph, position, which)

            yield edited(candidate, edit)


def bypass(graph: Graph, position: int, which: int) -> None:
    """Take out the node at `position`; its users read its input number `which`."""
    node = node_at(graph, position)
    node.replace_all_uses_with(readable(node)[which])
    graph.erase_node(node)


def readable(node: Node) -> list[Node]:
    """The values that an operator reads, without bodies and constants of the module."""
    return [source for source in node.all_input_nodes if source.op != "get_attr"]
