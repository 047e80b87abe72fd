"""A captured graph as networkx sees it, its longest chain, and its forms for other tools."""

import json
import re
import xml.etree.ElementTree as ElementTree

import networkx
import pytest

from dynadiag.graphs.critical_path import CriticalPath, critical_path
from dynadiag.graphs.export import FORMATS, graph_text
from dynadiag.graphs.view import as_networkx
from dynadiag.model.graph import Node
from dynadiag.render.graph_view import graph_view
from dynadiag.render.sanitise import clean


def node(name, args=(), op="call_function", target="torch.f", bytes_of="8"):
    return Node(name=name, op=op, target=target, args=tuple(args), annotation=bytes_of)


def diamond():
    """x -> a -> b -> d and x -> c -> d, where c makes most bytes."""
    calls = [node("a", ["x"]), node("b", ["a"]), node("c", ["x"], bytes_of="100"), node("d", ["b", "c"])]
    return [node("x", op="placeholder"), *calls, node("output", ["d"], op="output")]


def test_edges_go_from_what_is_read_to_who_reads_it_with_its_places():
    graph = as_networkx([node("x", op="placeholder"), node("a", ["x", "2", "x"])])
    assert list(graph.edges(data="arguments")) == [("x", "a", "0 2")]


def test_the_longest_chain_by_calls_and_by_bytes():
    reads = [(), (0,), (), (1, 2)]
    assert critical_path(reads, [8, 8, 100, 8]) == CriticalPath((0, 1, 3), 108)
    assert critical_path(reads, [8, None, 100, 8]) == CriticalPath((0, 1, 3), None)
    assert critical_path([], []) == CriticalPath((), 0)


def test_the_path_of_a_view_goes_along_what_calls_read():
    assert graph_view(diamond()).critical_path == CriticalPath((0, 1, 3), None)


def test_a_long_graph_has_its_path():
    reads = [(at - 1, at // 2) if at else () for at in range(50_000)]
    assert len(critical_path(reads, [1] * 50_000).calls) == 50_000


@pytest.mark.parametrize("chosen", FORMATS)
def test_every_format_has_every_node_and_edge(chosen):
    path = CriticalPath((0, 1, 3), 108)
    text = graph_text(diamond(), chosen, clean=clean, path=path)
    if chosen == "json":
        content = json.loads(text)
        assert content["critical_path"] == {"calls": ["a", "b", "d"], "of": 4, "bytes": 108}
        edges = networkx.node_link_graph(content, edges="links").edges
    elif chosen == "graphml":
        edges = networkx.parse_graphml(text).edges
    else:
        assert text.count("label=") == 6
        edges = [line for line in text.splitlines() if "->" in line]
    assert len(edges) == 6


@pytest.mark.parametrize("chosen", FORMATS)
def test_hostile_names_are_text(chosen):
    bad = '"]; x -> y <script>&]]>\x00\x1b[31m\u202e\ud800'
    text = graph_text([node(bad, target=bad), node(bad[:-1], [bad], target="<b>x</b>")], chosen, clean=clean, path=CriticalPath((), None))
    assert not set(text) & set("\x00\x1b\u202e\ud800")
    if chosen == "graphml":
        ElementTree.fromstring(text)
        assert "<script>" not in text
    elif chosen == "dot":
        inside = [line for line in text.splitlines() if line.startswith("\t") and "shape" not in line]
        assert len(inside) == 2
        assert all(re.fullmatch(r'\tn\d(?: -> n\d| \[label="(?:[^"\\]|\\.)*"\])', line) for line in inside)
