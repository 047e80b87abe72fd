"""Graphs of one call joined to fewer graphs: what the call would be without some of its graph breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynadiag.torch_compat.dynamo.break_costs import Entered, is_module_state


class CannotJoinError(Exception):
    """Two graphs cannot be joined; the message says why, in one line."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A joined graph with what it is called with (tensors by the identity that they had on the tape) and what it gives, likewise.

    Parameters and buffers are attributes of `module`, as they are of the program's: as arguments they would cost other guards, and CUDA
    graphs would copy them in each call.
    """

    module: Any
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...]


def join(entered: Sequence[Entered], wanted: set[int]) -> Part:
    """One graph that does what these did one after the other; it gives the outputs whose identity is in `wanted`.

    Values go from graph to graph by identity: an output that a later graph gets as an input becomes an edge. Numbers stay as they were.
    """
    import torch

    joined = torch.fx.Graph()
    root: dict[str, Any] = {}
    outside = _from_outside(entered)
    inputs = [value for value in outside if not is_module_state(value)]
    made = {id(value): joined.placeholder(f"input_{number}") for number, value in enumerate(inputs)}
    for value in outside:
        if is_module_state(value):
            name = f"state_{len(root)}"
            root[name] = value
            made[id(value)] = joined.create_node("get_attr", name)
    outputs: dict[int, Any] = {}
    for number, call in enumerate(entered):
        placeholders = [node for node in call.piece.graph.graph.nodes if node.op == "placeholder"]
        known = {node: _known(value, made) for node, value in zip(placeholders, call.inputs, strict=True)}
        results = _copy_into(joined, call.piece.graph, known, root, f"graph_{number}_")
        for value, node in zip(call.outputs, results, strict=True):
            if isinstance(value, torch.Tensor) and isinstance(node, torch.fx.Node):
                made[id(value)] = outputs[id(value)] = node
    given = [key for key in outputs if key in wanted]
    joined.output(tuple(outputs[key] for key in given))
    return Part(module=torch.fx.GraphModule(root, joined), inputs=tuple(inputs), outputs=tuple(given))


def _from_outside(entered: Sequence[Entered]) -> list[Any]:
    """The tensors that come from none of these graphs, in the order in which they are first taken."""
    import torch

    found: dict[int, Any] = {}
    given: set[int] = set()
    for call in entered:
        found.update({id(value): value for value in call.inputs if isinstance(value, torch.Tensor) and id(value) not in given})
        given |= {id(value) for value in call.outputs}
    return list(found.values())


def _known(value: Any, made: dict[int, Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return made[id(value)]
    if isinstance(value, bool | int | float | str | None):
        return value
    raise CannotJoinError(f"a graph takes a {type(value).__name__}")


def _copy_into(joined: Any, graph: Any, known: dict[Any, Any], root: dict[str, Any], prefix: str) -> list[Any]:
    """Copy the operations; what the graph gives."""
    results: list[Any] = []
    for node in graph.graph.nodes:
        if node.op == "output":
            results = [known.get(item, item) if hasattr(item, "op") else item for item in node.args[0]]
        elif node.op != "placeholder":
            copied = joined.node_copy(node, lambda item: known[item])
            if node.op in ("get_attr", "call_module"):
                copied.target = prefix + str(node.target).replace(".", "_")
                root[copied.target] = _attribute(graph, str(node.target))
            known[node] = copied
    return results


def _attribute(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner
