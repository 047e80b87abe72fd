"""Values inside a graph made visible: they become outputs of the graph, which is then compiled again."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.torch_compat.inductor.kernels import is_operator
from dynadiag.torch_compat.pytree import tree_leaves

_UNDEFINED = frozenset(("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted"))


def operators_of(candidate: Candidate, values: Mapping[str, Any]) -> list[Node]:
    """The operators that compute something, in their order: no views, no writes into inputs, nothing with undefined values."""
    return [node for node in candidate.module.graph.nodes if _computes(node, values)]


def results_of(node: Node, values: Mapping[str, Any]) -> list[Node]:
    """The nodes that hold the results of an operator: itself, or those that take one of several."""
    if isinstance(values.get(node.name), torch.Tensor):
        return [node]
    return [user for user in node.users if user.target is operator.getitem and isinstance(values.get(user.name), torch.Tensor)]


def exposing(candidate: Candidate, nodes: Sequence[Node]) -> Candidate:
    """The candidate with the values of these nodes as further outputs, behind its own."""
    module = own_copy(candidate.module)
    by_name = {node.name: node for node in module.graph.nodes}
    (end,) = (node for node in module.graph.nodes if node.op == "output")
    end.args = ((*tree_leaves(end.args[0], is_leaf=lambda item: item is None), *(by_name[node.name] for node in nodes)),)
    module.recompile()
    return replace(candidate, module=module)


def _computes(node: Node, values: Mapping[str, Any]) -> bool:
    if node.op != "call_function" or not is_operator(node.target):
        return False
    target: Any = node.target
    if target._schema.is_mutable or target.overloadpacket.__name__ in _UNDEFINED:
        return False
    given = {_memory(values.get(argument.name)) for argument in node.all_input_nodes} - {0}
    results = results_of(node, values)
    return bool(results) and all(_memory(values[result.name]) not in given for result in results)


def _memory(value: Any) -> int:
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) and value.layout is torch.strided else 0
