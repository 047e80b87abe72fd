"""Dynamo's counters as plain numbers."""

from __future__ import annotations

import sys
from typing import Any


def snapshot() -> dict[str, dict[str, int]] | None:
    """`torch._dynamo.utils.counters` as nested dicts of int; None when Dynamo was never imported."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters: Any = getattr(utils, "counters", None)
    if counters is None:
        return None
    groups = {str(group): _numbers(values) for group, values in dict(counters).items()}
    return {group: values for group, values in groups.items() if values}


def _numbers(values: Any) -> dict[str, int]:
    return {str(name): count for name, count in dict(values).items() if isinstance(count, int)}
