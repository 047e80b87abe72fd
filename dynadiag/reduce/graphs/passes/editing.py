"""Making a changed copy of a candidate; what passes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from dynadiag.reduce.graphs.candidate import CALLS, Candidate, graphs_in, own_copy
from dynadiag.reduce.graphs.inputs import Input, TensorInput

Calls = Sequence[Sequence[Input]]


def edited(candidate: Candidate, edit: Callable[[Graph], None], calls: Calls | None = None) -> Candidate:
    """A copy of the candidate whose graph `edit` has changed, with other inputs for all calls; inputs that nobody reads any more are gone.

    Nodes of the copy stand at the same positions as those of the original.
    """
    module = own_copy(candidate.module)
    edit(module.graph)
    return tidied(module, candidate if calls is None else with_calls(candidate, calls))


def tidied(module: GraphModule, of: Candidate) -> Candidate:
    """The candidate `of` with this graph, without unused inputs and without attributes that are never read."""
    kept = []
    for position, node in enumerate([node for node in module.graph.nodes if node.op == "placeholder"]):
        if node.users:
            kept.append(position)
        else:
            module.graph.erase_node(node)
    for node in reversed(list(module.graph.nodes)):
        if node.op == "get_attr" and not node.users:
            module.graph.erase_node(node)
    fewer = with_calls(of, [[call.inputs[position] for position in kept] for call in of.calls])
    return replace(fewer, module=GraphModule(module, module.graph))


def with_inputs(candidate: Candidate, inputs: Iterable[Input]) -> Candidate:
    """The same graph with other inputs in its last call."""
    return replace(candidate, inputs=tuple(inputs))


def with_calls(candidate: Candidate, calls: Calls) -> Candidate:
    """The same graph with other inputs in all calls, the last one last."""
    *earlier, last = map(tuple, calls)
    return replace(
        candidate, inputs=last, earlier=tuple(replace(call, inputs=pair) for call, pair in zip(candidate.earlier, earlier, strict=True))
    )


def changed_inputs(candidate: Candidate, change: Callable[[TensorInput], TensorInput | None]) -> Iterator[Candidate]:
    """All tensors changed at once, then each alone in all calls, then each call alone (only when there are several that change)."""
    new = [[change(input_) if isinstance(input_, TensorInput) else None for input_ in call.inputs] for call in candidate.calls]
    places = [
        (number, position) for number, call in enumerate(new) for position, tensor_input in enumerate(call) if tensor_input is not None
    ]
    positions, numbers = sorted({position for _, position in places}), sorted({number for number, _ in places})
    if not places:
        return
    yield _changed_at(candidate, new, places)
    for which in positions if len(positions) > 1 else ():
        yield _changed_at(candidate, new, [place for place in places if place[1] == which])
    for number in numbers if len(numbers) > 1 else ():
        yield _changed_at(candidate, new, [place for place in places if place[0] == number])


def _changed_at(candidate: Candidate, new: Sequence[Sequence[Input | None]], places: Iterable[tuple[int, int]]) -> Candidate:
    calls = [list(call.inputs) for call in candidate.calls]
    for number, position in places:
        calls[number][position] = new[number][position] or calls[number][position]
    return with_calls(candidate, calls)


def call_positions(candidate: Candidate) -> list[int]:
    """Where the operators stand, the last first."""
    return [position for position, node in enumerate(candidate.module.graph.nodes) if node.op in CALLS][::-1]


def node_at(graph: Graph, position: int) -> Node:
    """The node at a position."""
    node: Node = list(graph.nodes)[position]
    return node


_OF_DIMENSIONS = frozenset(
    [
        *("all", "amax", "amin", "any", "argmax", "argmin", "cat", "concat", "cumprod", "cumsum", "flatten", "gather", "index_select"),
        *("log_softmax", "logsumexp", "mean", "moveaxis", "movedim", "permute", "prod", "softmax", "sort", "squeeze", "stack", "std"),
        *("sum", "swapaxes", "swapdims", "transpose", "unbind", "unsqueeze", "var"),
    ]
)
"""Operators whose integers are all numbers of dimensions."""


def _name(node: Node) -> str:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return str(name).split(".")[0]


def change_numbers(graph: Graph, change: Callable[[int], int], *, but: Node | None = None) -> None:
    """Replace the integers above 1 in the arguments of all operators, those in sub graphs too; not where they are numbers of dimensions."""
    module = graph.owning_module
    for owner in graphs_in(module) if isinstance(module, GraphModule) else ():
        for node in owner.graph.nodes:
            if node.op in CALLS and node is not but and _name(node) not in _OF_DIMENSIONS:
                map_constants(node, lambda value: change(value) if type(value) is int and value > 1 else value)
        owner.recompile()


def map_constants(node: Node, change: Callable[[Any], Any]) -> None:
    """Replace the constants in the arguments of a node."""

    def visit(value: Any) -> Any:
        return value if isinstance(value, Node) else change(value)

    node.args = map_aggregate(node.args, visit)
    node.kwargs = map_aggregate(node.kwargs, visit)
