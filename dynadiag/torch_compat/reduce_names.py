"""Names of functions in a graph, as Python source spells them."""

from __future__ import annotations

import importlib
import operator
from typing import Any

from torch.fx.node import _get_qualified_name

from dynadiag.torch_compat.fx_operators import printed_name


def printed_target(target: Any) -> str | None:
    """The dotted name under which a script finds the function, None when there is none (a lambda, a function of `__main__`)."""
    known = printed_name(target)
    if known is not None:
        return known
    name = getattr(target, "__name__", "")
    if getattr(operator, name, None) is target or target is getattr:
        return None  # written as an operator
    try:
        qualified = str(_get_qualified_name(target))
    except (AttributeError, RuntimeError):
        return None
    return qualified if _found(qualified) is target else None


def _found(qualified: str) -> Any:
    module, _, name = qualified.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError):
        return None
