"""How many operators a graph of Dynamo's has."""

from __future__ import annotations

import operator
import sys
from typing import Any

_READS = frozenset({"item", "tolist"})  # of a tensor, for a number


def count_operators(module: Any) -> int:
    """The calls in a graph that a plain run would dispatch: those that give or write a tensor, or read a number from one.

    An item of a tuple, a size and arithmetic on sizes are none. An operator that wraps a graph (`torch.utils.checkpoint`) counts as that
    graph does; a loop or a branch in a graph as one.
    """
    return sum(_operators(node, module) for node in module.graph.nodes if node.op in ("call_function", "call_method", "call_module"))


def _operators(node: Any, module: Any) -> int:
    first = node.args[0] if node.args else None
    body = _body(first, module)
    if body is not None:
        return count_operators(body)
    result = node.meta.get("example_value")
    if node.target is operator.getitem:
        return int(_is_tensor(_value(first)))
    name = getattr(node.target, "__name__", node.target)
    return int(_holds_tensor(result) or name in _READS or (result is None and any(_holds_tensor(_value(one)) for one in node.args)))


def _body(argument: Any, module: Any) -> Any:
    """The graph that the first argument of an operator names, or None."""
    if getattr(argument, "op", None) != "get_attr":
        return None
    value: Any = module
    for part in str(argument.target).split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, sys.modules["torch"].fx.GraphModule) else None


def _value(argument: Any) -> Any:
    return argument.meta.get("example_value") if hasattr(argument, "meta") else argument


def _is_tensor(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor)


def _holds_tensor(value: Any) -> bool:
    """Whether it is a tensor, or a list or tuple with one, however deep (of nodes: with one that is)."""
    if isinstance(value, (list, tuple)):
        return any(_holds_tensor(_value(one)) for one in value)
    return _is_tensor(value)
