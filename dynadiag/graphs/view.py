"""A captured graph as networkx sees it: made when somebody asks, while `model` stays plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dynadiag.model.graph import Node
from dynadiag.trace import argument_names

if TYPE_CHECKING:
    import networkx


def as_networkx(nodes: Sequence[Node]) -> networkx.DiGraph[str]:
    """A directed graph: each node by its name with `op`, `target`, `tensor` and `module`, an edge from each value to who reads it.

    An edge's `arguments` are the places at which the value stands, as in "0 2".
    """
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    known: set[str] = set()
    for node in nodes:
        graph.add_node(
            node.name, op=node.op, target=node.target, tensor=node.annotation or "", module=node.modules[-1] if node.modules else ""
        )
        for name, places in _uses(node).items():
            if name in known:
                graph.add_edge(name, node.name, arguments=" ".join(map(str, places)))
        known.add(node.name)
    return graph


def _uses(node: Node) -> Mapping[str, list[int]]:
    """The names that a node reads, with the places of its arguments in which they stand."""
    found: dict[str, list[int]] = {}
    for at, argument in enumerate(node.args):
        for name in argument_names([argument]):
            found.setdefault(name, []).append(at)
    return found
