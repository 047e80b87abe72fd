"""Tensors by name, in whatever a step takes or returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

_DEEPEST = 8


def tensors_in(name: str, value: Any, *, depth: int = 0) -> dict[str, Any]:
    """The tensors inside `value` (containers, dataclasses, mappings), each named by the way to it; numbers are left out."""
    import torch

    if isinstance(value, torch.Tensor):
        return {name: value}
    found: dict[str, Any] = {}
    if depth < _DEEPEST:
        for key, item in _items(value):
            found.update(tensors_in(f"{name}{key}", item, depth=depth + 1))
    return found


def numbers_in(name: str, value: Any, *, depth: int = 0) -> dict[str, float]:
    """Plain numbers inside `value`, named likewise: a loss that was read with `.item()` is a result as well."""
    if isinstance(value, bool | int | float):
        return {name: float(value)}
    found: dict[str, float] = {}
    if depth < _DEEPEST:
        for key, item in _items(value):
            found.update(numbers_in(f"{name}{key}", item, depth=depth + 1))
    return found


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, list | tuple):
        fields = getattr(value, "_fields", None)
        return [(f".{fields[at]}" if fields else f"[{at}]", item) for at, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{item.name}", getattr(value, item.name, None)) for item in dataclasses.fields(value)]
    return []
