"""A captured graph as networkx sees it, its longest chain, and its forms for other tools."""

import json
import re
import xml.etree.ElementTree as ElementTree

import networkx
import pytest

from dynadiag.graphs.critical_path import critical_path
from dynadiag.graphs.export import FORMATS, graph_text
from dynadiag.graphs.view import MOST_NODES, as_networkx
from dynadiag.model.graph import Node
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
    path = critical_path(diamond(), lambda text: int(text))
    assert path is not None
    assert path.calls == ("a", "b", "d")
    assert (path.of, path.most_bytes) == (4, 108)
    unknown = critical_path(diamond(), lambda text: None)
    assert unknown is not None and unknown.most_bytes is None


def test_too_large_a_graph_has_no_critical_path():
    assert critical_path([node(f"n{at}") for at in range(MOST_NODES + 1)], lambda text: 0) is None


@pytest.mark.parametrize("chosen", FORMATS)
def test_every_format_has_every_node_and_edge(chosen):
    path = critical_path(diamond(), lambda text: int(text))
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
    text = graph_text([node(bad, target=bad), node(bad[:-1], [bad], target="<b>x</b>")], chosen, clean=clean, path=None)
    assert not set(text) & set("\x00\x1b\u202e\ud800")
    if chosen == "graphml":
        ElementTree.fromstring(text)
        assert "<script>" not in text
    elif chosen == "dot":
        inside = [line for line in text.splitlines() if line.startswith("\t") and "shape" not in line]
        assert len(inside) == 2
        assert all(re.fullmatch(r'\tn\d(?: -> n\d| \[label="(?:[^"\\]|\\.)*"\])', line) for line in inside)
