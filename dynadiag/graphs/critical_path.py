"""The longest chain of calls of a graph: what has to happen one after the other, however much runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dynadiag.graphs.view import MOST_NODES, as_networkx
from dynadiag.model.graph import Node

_NO_CALLS = frozenset({"placeholder", "get_attr", "output"})


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """`calls` are the nodes of the longest chain, in order, of `of` calls; `most_bytes` is the largest sum of bytes that a chain makes.

    `most_bytes` is None where the sizes of a call's tensor are not known.
    """

    calls: tuple[str, ...]
    of: int
    most_bytes: int | None


def critical_path(nodes: Sequence[Node], size: Callable[[str | None], int | None]) -> CriticalPath | None:
    """The longest chain by calls and by bytes; `size` gives the bytes of an annotation. None for more than `MOST_NODES` nodes."""
    calls = [node for node in nodes if node.op not in _NO_CALLS]
    if not calls or len(nodes) > MOST_NODES:
        return None
    import networkx

    graph = as_networkx(calls)
    chain = networkx.dag_longest_path(graph)
    sizes = {node.name: size(node.annotation) for node in calls}
    if None in sizes.values():
        return CriticalPath(tuple(chain), len(calls), None)
    largest: dict[str, int] = {}
    for name in networkx.topological_sort(graph):
        largest[name] = (sizes[name] or 0) + max((largest[before] for before in graph.predecessors(name)), default=0)
    return CriticalPath(tuple(chain), len(calls), max(largest.values()))
