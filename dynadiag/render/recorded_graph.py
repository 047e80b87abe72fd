"""A captured graph with what was recorded of it: its nodes, the modules they are in, people's names of its inputs, and who writes what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.facts.guard_sources import readable
from dynadiag.model.graph import Graph, Node
from dynadiag.trace import graph_details, graph_nodes, probe_result, read_payload

_KEY = re.compile(r"list\(dict\.keys\((?:[^()]|\(\))*\)\)\[(\d+)\]")
PAYLOAD_LIMIT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGraph:
    """`labels` are names of inputs as a person writes them, `classes` class names by module path, `writes` the inputs that a node writes.

    `writes` is None where nobody followed the graph: then its text tells.
    """

    nodes: Sequence[Node]
    labels: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    writes: Mapping[str, Sequence[str]] | None = None

    def label(self, name: str) -> str:
        """The input as a person writes it, else as torch calls it."""
        return self.labels.get(name, name)


def recorded_graph(graph: Graph) -> RecordedGraph:
    """Read a graph of a log; raises `DynadiagError` when its text is missing, too long or no graph."""
    if graph.text is None:
        raise DynadiagError(f"the log does not contain its text{f': {graph.why_not}' if graph.why_not else ''}")
    if graph.text.length > PAYLOAD_LIMIT_BYTES:
        raise DynadiagError(f"its text is longer than {PAYLOAD_LIMIT_BYTES >> 20} MiB")
    nodes = graph_nodes(read_payload(graph.text))
    if not nodes:
        raise DynadiagError("its text contains no graph")
    details = _details(graph)
    modules = dict(_modules(details))
    classes = details.get("classes")
    return RecordedGraph(
        nodes=tuple(replace(node, modules=modules[node.name]) if node.name in modules else node for node in nodes),
        labels=dict(_labels(details)),
        classes={path: kind for path, kind in classes.items() if isinstance(kind, str)} if isinstance(classes, dict) else {},
        writes=_writes(graph),
    )


def _details(graph: Graph) -> Mapping[str, Any]:
    if graph.details is None or graph.details.length > PAYLOAD_LIMIT_BYTES:
        return {}
    try:
        return graph_details(graph.details)
    except DynadiagError:
        return {}


def _modules(details: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Module stacks by node name, from entries like [name, index of "a > b > c" in strings, ...]."""
    strings, entries = details.get("strings"), details.get("nodes")
    texts = strings if isinstance(strings, list) else []
    stacks = [tuple(str(text).split(" > ")) for text in texts]
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, list) and len(entry) > 1 and type(entry[1]) is int and 0 <= entry[1] < len(stacks):
            yield str(entry[0]), stacks[entry[1]]


def _labels(details: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for kind in ("inputs", "attributes"):
        entries = details.get(kind)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("source"), str) and isinstance(entry.get("name"), str):
                yield entry["name"], _named(entry["source"])


def _named(source: str) -> str:
    """The source as a person writes it; the key of a dict whose keys are tensors (an optimizer's state) has a number only."""
    return _KEY.sub(lambda match: f"key {match[1]}", readable(source))


def _writes(graph: Graph) -> Mapping[str, Sequence[str]] | None:
    """By node the inputs that it writes, where the probe followed the graph to its end."""
    if graph.probe is None:
        return None
    try:
        probed = probe_result(graph.probe)
    except DynadiagError:
        return None
    if probed is None or probed.mutations is None or probed.error is not None:
        return None
    found: dict[str, list[str]] = {}
    for mutation in probed.mutations:
        for site in mutation.sites:
            if site.node is not None and not site.through:
                found.setdefault(site.node, []).append(_named(mutation.source) if mutation.source else mutation.name)
    return found
