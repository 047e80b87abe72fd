"""What of a graph's inputs only a live graph tells: parameters and buffers that it holds itself, and which inputs keep their address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def describe_attributes(module: Any, output_graph: Any, describe_value: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """The parameters and buffers of a graph (an optimizer's, for example) in the order in which AOTAutograd puts them before its inputs.

    Dynamo keeps their sources in `OutputGraph.param_name_to_source` (2.11 to 2.15).
    """
    sources = getattr(output_graph, "param_name_to_source", None) or {}
    own = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
    return [{"name": name, "source": source_name(sources.get(name)), **describe_value(value)} for name, value in own.items()]


def source_name(source: Any) -> str | None:
    """Dynamo's name for where an input comes from ("L['self'].cache"); a method in 2.11, a property in 2.15."""
    name = getattr(source, "name", None)
    return str(name() if callable(name) else name) if name is not None else None


def static_kind(node: Any) -> str | None:
    """How an input is marked that keeps its address, guarded or unguarded (`mark_static_address`, tensors of modules); else None."""
    marks = node.meta.get("tensor_dict")
    kind = marks.get("_dynamo_static_input_type") if isinstance(marks, dict) else None
    return kind if isinstance(kind, str) else None
