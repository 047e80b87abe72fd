"""Candidates that are parts of a graph: some operators are kept, what they read from outside becomes an input with its real value.

Cuts preserve outputs: every kept result that no kept operator reads is returned, so the parts of a graph that falls apart all stay alive.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import networkx
import torch
from torch.fx import Graph, GraphModule, Node

from dynadiag.reduce.graphs.candidate import CALLS, Candidate
from dynadiag.reduce.graphs.inputs import Input, from_value

NEAR = 4
"""Over how many edges an operator is near: what a fused kernel gets wrong is rarely longer."""

Values = Mapping[str, Any]
"""The value of each node by name, from one run without the compiler."""


class Cutter:
    """Builds candidates from sets of operator numbers; `values` are those of one eager run of the candidate on its inputs, `earlier` those
    of a run for each of its earlier calls.
    """

    def __init__(self, candidate: Candidate, values: Values, earlier: Sequence[Values] = ()) -> None:
        self._candidate = candidate
        self._values = values
        self._of_calls = (*earlier, values)
        self._nodes = list(candidate.module.graph.nodes)
        self._position = {node: position for position, node in enumerate(self._nodes)}
        placeholders = [node for node in self._nodes if node.op == "placeholder"]
        calls = zip(*(call.inputs for call in candidate.calls), strict=True)
        self._inputs: dict[Node, tuple[Input, ...]] = dict(zip(placeholders, calls, strict=True))
        self.items = tuple(position for position, node in enumerate(self._nodes) if node.op in CALLS)

    def block_of(self, item: int) -> str:
        """The module that an operator came from."""
        stack = self._nodes[item].meta.get("nn_module_stack") or self._nodes[item].meta.get("dynadiag_module_stack")
        return str(list(stack.values())[-1][0]) if isinstance(stack, dict) and stack else str(stack)

    @functools.cache  # noqa: B019 - a cutter lives as long as its search, which asks for the same pair again and again
    def between(self, first: int, last: int) -> frozenset[int]:
        """The operators on the ways by which a value of the first gets to the last, with both."""
        graph = self._reads
        return frozenset(networkx.descendants(graph, first) & networkx.ancestors(graph, last) | {first, last})

    @functools.cache  # noqa: B019 - as above
    def near(self, last: int) -> frozenset[int]:
        """The operators whose values get to the last over at most three others, with it."""
        return frozenset(networkx.ego_graph(self._reads.reverse(copy=False), last, radius=NEAR))

    @functools.cached_property
    def _reads(self) -> networkx.DiGraph[int]:
        """An edge from each node to those that read it."""
        graph: networkx.DiGraph[int] = networkx.DiGraph()
        graph.add_nodes_from(self.items)
        graph.add_edges_from((self._position[node], self._position[user]) for node in self._nodes for user in node.users)
        return graph

    def build(self, kept: frozenset[int]) -> Candidate:
        """The candidate of these operators, with what they cannot do without."""
        inside = self._closed({self._nodes[position] for position in kept})
        graph = Graph()
        made: dict[Node, Any] = {}
        inputs: list[tuple[Input, ...]] = []
        for node in self._outside(inside):
            made[node], group = self._cut(node, graph)
            inputs.extend(group)
        order = sorted(inside, key=self._position.__getitem__)
        for node in order:
            made[node] = graph.node_copy(node, made.__getitem__)
        graph.output(tuple(made[node] for node in order if self._is_output(node, inside)))
        *earlier, last = zip(*inputs, strict=True) if inputs else [()] * len(self._of_calls)
        calls = tuple(replace(call, inputs=pair) for call, pair in zip(self._candidate.earlier, earlier, strict=True))
        return Candidate(GraphModule(self._candidate.module, graph), last, self._candidate.configs, calls)

    def _closed(self, kept: set[Node]) -> set[Node]:
        """The kept nodes and all that must come along: producers of what cannot be an input, and the other half of a pair."""
        inside, pending = set(), list(kept)
        while pending:
            node = pending.pop()
            if node in inside:
                continue
            inside.add(node)
            pending += [source for source in node.all_input_nodes if not self._can_be_cut(source)]
            pending += [user for user in node.users if _leaves(node, user)]
            if isinstance(self._values.get(node.name), tuple | list) and not any(user in kept for user in node.users):
                pending += self._first_part(node)
        return inside

    def _can_be_cut(self, node: Node) -> bool:
        return node.op == "placeholder" or (
            node.op != "get_attr" and node.name in self._values and isinstance(self._values[node.name], torch.Tensor | int | float)
        )

    def _first_part(self, node: Node) -> list[Node]:
        """One tensor of a kept tuple, so that the operator has an output."""
        return [user for user in node.users if isinstance(self._values.get(user.name), torch.Tensor)][:1]

    def _outside(self, inside: set[Node]) -> list[Node]:
        read = {source for node in inside for source in node.all_input_nodes} - inside
        return sorted(read, key=lambda node: (node.op != "placeholder", self._position[node]))

    def _cut(self, node: Node, graph: Graph) -> tuple[Any, list[tuple[Input, ...]]]:
        """What stands for a node that is not kept: an input for each call, or the number that it is in all of them."""
        if node in self._inputs:
            return graph.node_copy(node), [self._inputs[node]]
        values = [mapping[node.name] for mapping in self._of_calls]
        if not any(isinstance(value, torch.Tensor) for value in values) and all(value == values[-1] for value in values):
            return values[-1], []
        placeholder = graph.placeholder(node.name)
        placeholder.meta = {key: node.meta[key] for key in ("val", "tensor_meta") if key in node.meta}
        # A leaf: what a part of the graph computes its gradients for.
        token = f"{self._candidate.key[:12]} {self._position[node]}"
        tokens = [f"{token} call {number}" for number in range(len(values) - 1)] + [token]
        return placeholder, [tuple(from_value(value, name, as_leaf=True) for value, name in zip(values, tokens, strict=True))]

    def _is_output(self, node: Node, inside: set[Node]) -> bool:
        return isinstance(self._values.get(node.name), torch.Tensor) and not any(user in inside for user in node.users)


def _leaves(node: Node, user: Node) -> bool:
    """Whether `user` ends what `node` began (`_enter_autocast` and `_exit_autocast`): one without the other is no program."""
    return node.op == "call_function" and "enter" in str(node.target) and "exit" in str(user.target)
