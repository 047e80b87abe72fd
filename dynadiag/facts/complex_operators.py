"""Operators on complex numbers, which Inductor puts into its code as calls of ATen: compiled in name only.

`unsupported_input_tensor` and `unsupported_output_tensor` (`torch/_inductor/lowering.py`, 2.11 and 2.15) leave each operator that takes or
gives complex numbers to ATen, with one warning for the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag import trace
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.graph import Graph, Node
from dynadiag.model.run import Run

_MARKS = ('"c32[', '"c64[', '"c128[')
_COMPLEX = re.compile(r"^c(?:32|64|128)\[")
_COMPLEX_INPUT = re.compile(r"(\w+): \"c(?:32|64|128)\[")
_CALLED = re.compile(r"^\s+(?:\w+ = )?(torch\.ops\.\w+\.\w+\.\w+)\(", re.MULTILINE)
# What only names the same numbers anew.
_NO_WORK = re.compile(
    r"\.(?:_?conj|_neg_view|view|view_as_(?:real|complex)|real|imag|select|slice|reshape|permute|t|transpose|squeeze|unsqueeze|expand|alias)\."
)
_MOST_GRAPHS = 200


@of_last_run
def complex_operators(run: Run) -> tuple[tuple[Graph, Node], ...]:
    """Each operator on complex numbers that the code of its graph calls by its name; of a graph whose code was recorded."""
    graphs = [graph for graph in run.graphs if graph.kind == "post_grad"][:_MOST_GRAPHS]
    return tuple((graph, node) for graph in graphs for node in _left_to_aten(graph, run))


def _left_to_aten(graph: Graph, run: Run) -> Iterator[Node]:
    try:
        text = "" if graph.text is None else trace.read_payload(graph.text)
        called = _called_in_code(graph, run) if any(mark in text for mark in _MARKS) else set()
    except UnreadableInputError:
        return
    nodes = trace.graph_nodes(text) if called else ()
    names = {*_COMPLEX_INPUT.findall(text), *(child.name for child in nodes if _COMPLEX.match(child.annotation or ""))} if nodes else set()
    for node in nodes:
        if node.target in called and not _NO_WORK.search(node.target) and not names.isdisjoint((node.name, *node.args)):
            yield node


def _called_in_code(graph: Graph, run: Run) -> set[str]:
    """The operators that the code which Inductor wrote for the frame calls by their names."""
    texts = [
        listing.text
        for listing in run.listings
        if listing.kind == "output_code" and listing.frame == graph.frame and listing.attempt == graph.attempt
    ]
    return {name for text in texts for name in _CALLED.findall(trace.read_payload(text))}
