"""The process groups that a rebuilt graph's collectives name, with the number of ranks that their arguments tell."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from dynadiag.torch_compat.dispatch.writes import declared_schema

_DEFAULT_RANKS = 2


def group_sizes(module: GraphModule) -> dict[str, int]:
    """Ranks by group name; 2 where no argument tells."""
    found: dict[str, int] = {}
    for graph_module in module.modules():
        if isinstance(graph_module, GraphModule):
            for node in graph_module.graph.nodes:
                _collect(node, found)
    return {name: size or _DEFAULT_RANKS for name, size in found.items()}


def _collect(node: Node, found: dict[str, int]) -> None:
    schema = declared_schema(node.target)
    if schema is None:
        return
    arguments = {argument.name: node.args[i] for i, argument in enumerate(schema.arguments) if i < len(node.args)}
    arguments.update(node.kwargs)
    name = arguments.get("group_name")
    if isinstance(name, str):
        size = arguments.get("group_size")
        found[name] = max(found.get(name, 0), size if isinstance(size, int) and 0 < size < 65536 else 0)
