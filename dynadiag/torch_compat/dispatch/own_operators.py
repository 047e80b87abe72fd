"""The operators that only the recorded process has: their schemas, else lost with it, and the Python functions registered for them."""

from __future__ import annotations

import sys
import weakref
from types import FunctionType, ModuleType
from typing import Any

from dynadiag.torch_compat.trace.hooks import Hooks

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


_kernels: dict[tuple[str, str], weakref.ref[FunctionType]] = {}
# Keys whose functions compute nothing, or call another kernel.
_NO_KERNELS = ("Meta", "Autograd", "ADInplaceOrView", "Functionalize", "Python", "FuncTorch")


def watch_library(library: ModuleType, hooks: Hooks) -> None:
    """Remember, weakly, each Python function that becomes a kernel from now on (`torch.library.Library.impl`, 2.11 to 2.15)."""

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        owner, name, function = (*args, *(kwargs[key] for key in ("op_name", "fn") if key in kwargs))[:3]
        key = args[3] if len(args) > 3 else kwargs.get("dispatch_key", "")
        key = key or owner.dispatch_key
        name = getattr(name, "_name", name)
        if isinstance(function, FunctionType) and not _is_torchs(function) and not key.startswith(_NO_KERNELS):
            qualified = name if "::" in name else f"{owner.ns}::{name}"
            _kernels[qualified.split(".")[0], key] = weakref.ref(function)

    hooks.install("torch.library", lambda: hooks.watch(library.Library, "impl", after=after, file=library.__file__))


def library_kernels(name: str) -> list[Any]:
    """The functions that were registered for an operator ("lib::scale") and are still in use."""
    return [function for (known, _), reference in _kernels.items() if known == name and (function := reference()) is not None]


def _is_torchs(function: FunctionType) -> bool:
    return str(function.__module__).split(".")[0] == "torch"
