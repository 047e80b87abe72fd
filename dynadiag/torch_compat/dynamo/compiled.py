"""Telling what is compiled already, and forgetting it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def ensure_compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` itself when `torch.compile` has already wrapped it, else `torch.compile(fn)`. Imports torch."""
    import torch

    if is_compiled(fn):
        return fn
    compiled: Callable[..., Any] = torch.compile(fn)
    return compiled


def forget_compiled() -> None:
    """Empty Dynamo's caches, so that the next call compiles everything again, as `torch._dynamo.explain` does. Imports torch."""
    import torch

    torch.compiler.reset()


def is_compiled(fn: Any) -> bool:
    """Whether a call of `fn` goes through Dynamo: a wrapper or an `OptimizedModule` (both keep the original), or `Module.compile()`.

    `torch.compiler.disable` marks its wrappers in the same way and says so (`torch/_dynamo/eval_frame.py`, 2.11 to 2.15).
    """
    if getattr(fn, "_torchdynamo_disable", False):
        return False
    return getattr(fn, "_torchdynamo_orig_callable", None) is not None or getattr(fn, "_compiled_call_impl", None) is not None


def uncompiled(value: Any) -> Any:
    """What was compiled, from its wrapper (`torch/_dynamo/eval_frame.py`, 2.11 to 2.15); anything else as it is."""
    if isinstance(value, types.FunctionType):
        return getattr(value, "_torchdynamo_orig_callable", None) or value
    return value.__dict__["_modules"].get("_orig_mod", value) if is_optimized_module(value) else value


def is_optimized_module(value: Any) -> bool:
    """Whether it is what `torch.compile` gives for a module."""
    return type(value).__name__ == "OptimizedModule"
