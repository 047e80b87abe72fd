"""A captured graph in formats of other tools: DOT, GraphML, and networkx' JSON of nodes and links."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from dynadiag.graphs.critical_path import CriticalPath
from dynadiag.graphs.view import as_networkx
from dynadiag.model.graph import Node

FORMATS = ("dot", "graphml", "json")


def graph_text(nodes: Sequence[Node], chosen: str, *, clean: Callable[[str], str], path: CriticalPath) -> str:
    """All nodes and edges in one of `FORMATS`; `clean` makes a text of a log safe. The JSON also has the critical path."""
    import networkx

    names: dict[str, str] = {}
    used: set[str] = set()
    for at, node in enumerate(nodes):
        name = clean(node.name)
        names[node.name] = name if name not in used else f"{name}~{at}"
        used.add(names[node.name])
    cleaned = networkx.relabel_nodes(as_networkx(nodes), names)
    for _, attributes in cleaned.nodes(data=True):
        attributes.update({key: clean(str(value)) for key, value in attributes.items()})
    if chosen == "graphml":
        made = io.BytesIO()
        networkx.write_graphml_xml(cleaned, made)
        return made.getvalue().decode("utf-8") + "\n"
    if chosen == "json":
        content: dict[str, Any] = {"schema_version": 1, **networkx.node_link_data(cleaned, edges="links")}
        calls = [names[node.name] for node in nodes if node.is_call]
        content["critical_path"] = {"calls": [calls[at] for at in path.calls], "of": len(calls), "bytes": path.most_bytes}
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return _dot(cleaned)


def _dot(graph: Any) -> str:
    import graphviz

    made = graphviz.Digraph("graph", node_attr={"shape": "box"})
    numbers = {name: f"n{at}" for at, name in enumerate(graph)}
    for name, attributes in graph.nodes(data=True):
        label = "\\n".join(graphviz.escape(text) for text in (name, attributes["target"], attributes["tensor"]) if text)
        made.node(numbers[name], label=graphviz.nohtml(label))
    for tail, head in graph.edges:
        made.edge(numbers[tail], numbers[head])
    return str(made.source)
