"""Higher order operators: their body takes their place, or the operators inside it are bypassed."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, GraphModule, Node

from dynadiag.reduce.graphs.candidate import CALLS, Candidate, own_copy
from dynadiag.reduce.graphs.passes.editing import call_positions, node_at, tidied
from dynadiag.reduce.graphs.passes.operators import bypass, readable


def shrink_bodies(candidate: Candidate) -> Iterator[Candidate]:
    """For each operator with bodies: each body inlined; then each operator of each body bypassed."""
    for position in call_positions(candidate):
        for body in _bodies(candidate.module, node_at(candidate.module.graph, position)):
            for operands in _operands(node_at(candidate.module.graph, position)):
                if len(operands) == len(_placeholders(getattr(candidate.module, body).graph)):
                    yield _inlined(candidate, position, body, operands)
    for body in _all_bodies(candidate.module):
        yield from _bypassed(candidate, body)


def _bodies(module: GraphModule, node: Node) -> list[str]:
    names = [str(source.target) for source in node.all_input_nodes if source.op == "get_attr"]
    return [name for name in names if isinstance(getattr(module, name, None), GraphModule)]


def _all_bodies(module: GraphModule) -> list[str]:
    named = {str(node.target): None for node in module.graph.nodes if node.op == "get_attr"}
    return [name for name in named if isinstance(getattr(module, name, None), GraphModule)]


@dataclass(frozen=True)
class _Operand:
    """What a body gets: the value of the node at `position`, or its first slice; without a position the number `constant`."""

    position: int | None
    sliced: bool = False
    constant: Any = None


def _operands(node: Node) -> Iterator[list[_Operand]]:
    """What the operator may give to its body: a list among its arguments, all arguments that are no bodies, or all lists one after another
    (`scan`: init, xs, additional inputs; `while_loop`: carried, additional inputs), of the second the first slices too.
    """
    order = {other: position for position, other in enumerate(node.graph.nodes)}
    lists = [
        list(pair)
        for pair in node.args
        if isinstance(pair, list | tuple) and pair and all(type(item) in (Node, int, float) for item in pair)
    ]

    def operand(item: Any, *, sliced: bool = False) -> _Operand:
        return _Operand(order[item], sliced) if isinstance(item, Node) else _Operand(None, constant=item)

    for element in reversed(lists):
        yield [operand(item) for item in element]
    yield [_Operand(order[argument]) for argument in node.args if isinstance(argument, Node) and argument.op != "get_attr"]
    for sliced in (False, True) if len(lists) > 1 else ():
        yield [operand(item, sliced=sliced and which == 1) for which, group in enumerate(lists) for item in group]


def _placeholders(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _inlined(candidate: Candidate, position: int, body: str, operands: list[_Operand]) -> Candidate:
    module = own_copy(candidate.module)
    graph, inner = module.graph, getattr(module, body)
    nodes = list(graph.nodes)
    call = nodes[position]
    _hoist_attributes(module, inner, body)
    with graph.inserting_before(call):
        values = [_value(graph, nodes, operand) for operand in operands]
        made: dict[Node, Any] = dict(zip(_placeholders(inner.graph), values, strict=True))
        result = graph.graph_copy(inner.graph, made)
    _replace_results(graph, call, result)
    return tidied(module, candidate)


def _value(graph: Graph, nodes: Sequence[Node], item: _Operand) -> Any:
    if item.position is None:
        return item.constant
    return graph.call_function(operator.getitem, (nodes[item.position], 0)) if item.sliced else nodes[item.position]


def _hoist_attributes(module: GraphModule, inner: GraphModule, body: str) -> None:
    """What the body reads from itself is read from the outer module afterwards."""
    for node in inner.graph.nodes:
        if node.op == "get_attr":
            name = f"{body}_{str(node.target).replace('.', '_')}"
            setattr(module, name, inner.get_submodule(str(node.target)) if _is_module(inner, node) else inner.get_buffer(str(node.target)))
            node.target = name


def _is_module(inner: GraphModule, node: Node) -> bool:
    return isinstance(getattr(inner, str(node.target), None), GraphModule)


def _replace_results(graph: Graph, call: Node, result: Any) -> None:
    for user in list(call.users):
        if user.target is operator.getitem and isinstance(result, tuple | list) and isinstance(user.args[1], int):
            user.replace_all_uses_with(result[user.args[1]])
            graph.erase_node(user)
    if call.users:
        call.replace_all_uses_with(result[0] if isinstance(result, tuple | list) else result)
    graph.erase_node(call)


def _bypassed(candidate: Candidate, body: str) -> Iterator[Candidate]:
    inner = getattr(candidate.module, body).graph
    for position, node in reversed(list(enumerate(inner.nodes))):
        for which in range(len(readable(node))) if node.op in CALLS else ():
            module = own_copy(candidate.module)
            changed = getattr(module, body)
            bypass(changed.graph, position, which)
            changed.recompile()
            yield tidied(module, candidate)
