"""Making a changed copy of a candidate; what passes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from dynadiag.reduce.candidate import CALLS, Candidate, own_copy
from dynadiag.reduce.inputs import Input, TensorInput


def edited(candidate: Candidate, edit: Callable[[Graph], None], inputs: Sequence[Input] | None = None) -> Candidate:
    """A copy of the candidate whose graph `edit` has changed; inputs that nobody reads any more are gone.

    Nodes of the copy stand at the same positions as those of the original.
    """
    module = own_copy(candidate.module)
    edit(module.graph)
    return tidied(module, candidate.inputs if inputs is None else inputs, candidate.configs)


def tidied(module: GraphModule, inputs: Sequence[Input], configs: tuple[tuple[str, Any], ...]) -> Candidate:
    """The candidate of this graph without unused inputs and without attributes that are never read."""
    kept = []
    for node, one in zip([node for node in module.graph.nodes if node.op == "placeholder"], inputs, strict=True):
        if node.users:
            kept.append(one)
        else:
            module.graph.erase_node(node)
    for node in reversed(list(module.graph.nodes)):
        if node.op == "get_attr" and not node.users:
            module.graph.erase_node(node)
    return Candidate(GraphModule(module, module.graph), tuple(kept), configs)


def with_inputs(candidate: Candidate, inputs: Iterable[Input]) -> Candidate:
    """The same graph with other inputs."""
    return Candidate(candidate.module, tuple(inputs), candidate.configs)


def changed_inputs(candidate: Candidate, change: Callable[[TensorInput], TensorInput | None]) -> Iterator[Candidate]:
    """All tensors changed at once, then each alone (only when there are several that change)."""
    new = [change(one) if isinstance(one, TensorInput) else None for one in candidate.inputs]
    positions = [position for position, one in enumerate(new) if one is not None]
    if not positions:
        return
    yield with_inputs(candidate, (fresh or old for fresh, old in zip(new, candidate.inputs, strict=True)))
    for position in positions if len(positions) > 1 else ():
        single = list(candidate.inputs)
        single[position] = new[position] or single[position]
        yield with_inputs(candidate, single)


def call_positions(candidate: Candidate) -> list[int]:
    """Where the operators stand, the last first."""
    return [position for position, node in enumerate(candidate.module.graph.nodes) if node.op in CALLS][::-1]


def node_at(graph: Graph, position: int) -> Node:
    """The node at a position."""
    node: Node = list(graph.nodes)[position]
    return node


def map_constants(node: Node, change: Callable[[Any], Any]) -> None:
    """Replace the constants in the arguments of a node."""

    def visit(value: Any) -> Any:
        return value if isinstance(value, Node) else change(value)

    node.args = map_aggregate(node.args, visit)
    node.kwargs = map_aggregate(node.kwargs, visit)


def reshaped(one: TensorInput, shape: tuple[int, ...]) -> TensorInput:
    """The input with smaller sizes: its data cut off, its strides as dense as before and in the same order."""
    stride = _dense_stride(one, shape)
    if one.fill != "data" or one.data is None:
        return replace(one, shape=shape, stride=stride)
    cut = one.data[tuple(slice(size) for size in shape)]
    data = torch.empty_strided(shape, stride, dtype=one.dtype, device=one.data.device).copy_(cut)
    return one.with_data(data, f"{one.token}[{shape}]")


def _dense_stride(one: TensorInput, shape: tuple[int, ...]) -> tuple[int, ...]:
    order = sorted(range(len(shape)), key=lambda dim: (one.stride[dim], one.shape[dim], -dim))
    stride, step = [0] * len(shape), 1
    for dim in order:
        stride[dim] = step
        step *= max(shape[dim], 1)
    return tuple(stride)
