"""The schemas of operators that only the recorded process has: what they say they write is else lost with it."""

from __future__ import annotations

import sys
from typing import Any

# Namespaces that come with torch: their schemas can be asked of any torch.
TORCHS_OWN = frozenset({"aten", "prims", "prim", "inductor", "_c10d_functional", "quantized", "torchvision"})


def operator_schemas(module: Any) -> dict[str, str]:
    """Schema by operator name ("lib::scale", "lib::scale.out") of all operators in a graph and its sub graphs that torch does not bring."""
    torch = sys.modules["torch"]
    found: dict[str, str] = {}
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for target in {node.target for node in part.graph.nodes if node.op == "call_function"}:
            for schema in _schemas(target, torch):
                found[f"{schema.name}.{schema.overload_name}".rstrip(".")] = str(schema)
    return found


def _schemas(target: Any, torch: Any) -> list[Any]:
    overloads: list[Any] = []
    if isinstance(target, torch._ops.OpOverloadPacket):
        overloads = [getattr(target, name) for name in target.overloads()]
    elif isinstance(target, torch._ops.OpOverload):
        overloads = [target]
    return [overload._schema for overload in overloads if overload._schema.name.split("::")[0] not in TORCHS_OWN]
