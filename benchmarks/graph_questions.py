"""CPU time of questions about graphs, by one pass of ours over the nodes and by networkx: the table of docs/pictures.md.

    python benchmarks/graph_questions.py

The graphs are made: each call reads the one before and one further up, every tenth is a view, every twentieth writes in place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dynadiag.facts.graph_writes import is_write, text_writes
from dynadiag.graphs.critical_path import critical_path
from dynadiag.graphs.structure import is_same, structure_of
from dynadiag.model.graph import Node
from dynadiag.render.graph_view import graph_view

SIZES = (1_000, 5_000, 19_000)


def made(count: int) -> list[Node]:
    """A graph of so many calls."""
    nodes = [Node(name="x", op="placeholder", target="L_x_")]
    for at in range(count):
        target = "add_" if at % 20 == 0 else "view" if at % 10 == 5 else f"op{at % 50}"
        names = tuple(dict.fromkeys((f"n{at - 1}", f"n{at // 2}"))) if at > 1 else ("x",)
        nodes.append(Node(name=f"n{at}", op="call_method", target=target, args=names, annotation="f32[4, 8]"))
    return [*nodes, Node(name="output", op="output", target="output", args=(f"n{count - 1}",))]


def longest_path(nodes: Sequence[Node]) -> int:
    """The critical path by networkx."""
    import networkx

    from dynadiag.graphs.view import as_networkx

    return len(networkx.dag_longest_path(as_networkx([node for node in nodes if node.is_call])))


def reached_inputs(nodes: Sequence[Node]) -> int:
    """Which inputs are written, by reachability over views and writes."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(node.name for node in nodes)
    graph.add_edges_from((node.args[0], node.name) for node in nodes if node.args and (node.target == "view" or is_write(node)))
    return sum(networkx.has_path(graph, "x", node.name) for node in nodes if is_write(node))


def refined_colours(nodes: Sequence[Node]) -> str:
    """The hash of a graph by Weisfeiler and Lehman."""
    import networkx

    from dynadiag.graphs.view import as_networkx

    found = networkx.weisfeiler_lehman_graph_hash(as_networkx(nodes), edge_attr="arguments", node_attr="target")
    return str(found)


def matched(nodes: Sequence[Node]) -> bool:
    """Whether a graph does the same as itself, by VF2++ on the plain view."""
    import networkx

    from dynadiag.graphs.view import as_networkx

    graph = as_networkx(nodes)
    return bool(networkx.vf2pp_is_isomorphic(graph, graph.copy(), node_label="target"))


def cpu_ms(question: Callable[[], object]) -> str:
    """CPU milliseconds of one answer."""
    began = time.process_time()
    question()
    return f"{1000 * (time.process_time() - began):,.0f}"


def main() -> None:
    """Print the table."""
    print(f"import of networkx: {cpu_ms(lambda: __import__('networkx'))} ms")
    print("| question | nodes | ours | networkx |\n|---|--:|--:|--:|")
    for count in SIZES:
        nodes = made(count)
        view = graph_view(nodes)
        structure, other = structure_of(nodes), structure_of(nodes)
        assert structure is not None and other is not None
        rows = {
            "critical path": (lambda: critical_path(view.sources, [1] * count), lambda: longest_path(nodes)),  # noqa: B023
            "inputs that are written": (lambda: text_writes(nodes), lambda: reached_inputs(nodes)),  # noqa: B023
            "digest of a structure": (lambda: structure_of(nodes), lambda: refined_colours(nodes)),  # noqa: B023
            "are two the same": (lambda: is_same(structure, other), lambda: matched(nodes)),  # noqa: B023
        }
        for name, (ours, theirs) in rows.items():
            print(f"| {name} | {count:,} | {cpu_ms(ours)} | {cpu_ms(theirs)} |", flush=True)


if __name__ == "__main__":
    main()
