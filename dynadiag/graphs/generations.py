"""How far things stand behind what has no cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def generations(causes: Mapping[str, Iterable[str]]) -> Mapping[str, int]:
    """By name its generation, from 0: later than all of its causes. Names that stand behind one another share one."""
    if not causes:
        return {}
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_edges_from((cause, name) for name, behind in causes.items() for cause in behind)
    condensed = networkx.condensation(graph)
    members = networkx.get_node_attributes(condensed, "members")
    ordered = enumerate(networkx.topological_generations(condensed))
    return {name: number for number, groups in ordered for group in groups for name in members[group]}
