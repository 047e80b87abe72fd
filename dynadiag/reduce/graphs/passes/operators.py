"""Operators of the graph become fewer and plainer: one reads through to its input, arguments are left out or become 0 or 1, outputs go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.fx import Graph, Node

from dynadiag.reduce.graphs.candidate import Candidate, leaves
from dynadiag.reduce.graphs.passes.editing import call_positions, edited, map_constants, node_at


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


def default_arguments(candidate: Candidate) -> Iterator[Candidate]:
    """For each operator: without any keyword, without each keyword, without each last positional constant."""
    for position in call_positions(candidate):
        node = node_at(candidate.module.graph, position)
        if getattr(node.target, "__module__", "") == "_operator":
            continue  # Python's operators have no defaults
        if len(node.kwargs) > 1:
            yield _without_keywords(candidate, position, list(node.kwargs))
        for name in node.kwargs:
            yield _without_keywords(candidate, position, [name])
        if len(node.args) > 1 and not isinstance(node.args[-1], Node):
            yield _shortened(candidate, position)


def _without_keywords(candidate: Candidate, position: int, names: list[str]) -> Candidate:
    def edit(graph: Graph) -> None:
        node = node_at(graph, position)
        node.kwargs = {name: value for name, value in node.kwargs.items() if name not in names}

    return edited(candidate, edit)


def _shortened(candidate: Candidate, position: int) -> Candidate:
    def edit(graph: Graph) -> None:
        node = node_at(graph, position)
        node.args = node.args[:-1]

    return edited(candidate, edit)


def simple_constants(candidate: Candidate) -> Iterator[Candidate]:
    """For each operator, each different number in it: 0 or 1."""
    yield from _with_numbers(candidate, lambda number: [simple for simple in (0, 1) if number not in (0, 1) or simple < number])


def constants_of_their_class(candidate: Candidate) -> Iterator[Candidate]:
    """For each operator, each different number in it: the plainest with its sign that is, as it is, 0, 1, a power of two, whole, or none of
    these. Compilers fold, strengthen and factor by that.
    """
    yield from _with_numbers(candidate, lambda number: [plain] if (plain := _plainest(number)) != number else [])


def _plainest(number: float) -> float:
    if number == 0 or abs(number) == 1 or not math.isfinite(number):
        return number
    if math.frexp(abs(number))[0] == 0.5:
        plain = 2.0 if abs(number) > 1 else 0.5
    elif number == int(number):
        plain = 3.0
    else:
        plain = 1.5 if abs(number) > 1 else 0.75
    return math.copysign(plain, number)


def _with_numbers(candidate: Candidate, simpler: Callable[[float], Sequence[float]]) -> Iterator[Candidate]:
    for position in call_positions(candidate):
        node = node_at(candidate.module.graph, position)
        numbers = {value: None for value in leaves((node.args, node.kwargs)) if type(value) in (int, float)}
        for number in numbers:
            for simple in simpler(number):
                yield _with_number(candidate, position, number, type(number)(simple))


def _with_number(candidate: Candidate, position: int, old: Any, new: Any) -> Candidate:
    def edit(graph: Graph) -> None:
        map_constants(node_at(graph, position), lambda value: new if type(value) is type(old) and value == old else value)

    return edited(candidate, edit)


def drop_outputs(candidate: Candidate) -> Iterator[Candidate]:
    """Only one output, the last first; then each output left out."""
    outputs = next(node for node in candidate.module.graph.nodes if node.op == "output").args[0]
    if not isinstance(outputs, tuple | list) or len(outputs) < 2:
        return
    everything = range(len(outputs))
    for kept in ([position] for position in reversed(everything)):
        yield _returning(candidate, kept)
    for left_out in everything if len(outputs) > 2 else ():
        yield _returning(candidate, [position for position in everything if position != left_out])


def _returning(candidate: Candidate, kept: list[int]) -> Candidate:
    def edit(graph: Graph) -> None:
        output = next(node for node in graph.nodes if node.op == "output")
        values = output.args[0]
        assert isinstance(values, tuple | list)
        output.args = (tuple(values[position] for position in kept),)
        for node in reversed(list(graph.nodes)):
            if node.op not in ("placeholder", "output") and not node.users and not node.is_impure():
                graph.erase_node(node)

    return edited(candidate, edit)
