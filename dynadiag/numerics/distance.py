"""How far values lie from each other: to the bit, and as a part of their size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def same_bits(item: Any, other: Any) -> bool:
    """Whether two values are equal to the bit; NaN equals NaN, and so do the two zeros."""
    if not isinstance(item, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(item) is type(other) and bool(item == other or item != item)
    if item.shape != other.shape or item.dtype != other.dtype or item.layout != other.layout:
        return False
    if item.layout is not torch.strided:
        item, other = item.to_dense(), other.to_dense()
    return bool(((item == other) | ((item != item) & (other != other))).all())


def all_same_bits(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two lists of results are."""
    return len(values) == len(others) and all(map(same_bits, values, others))


def relative(item: Any, other: Any) -> float | None:
    """The root mean square of the difference over that of `other`, of what is finite in both; None where that says nothing."""
    both = finite_pair(item, other)
    if both is None:
        return None
    off, size = rms(both[0] - both[1]), rms(both[1])
    return off / size if size else (0.0 if not off else None)


def finite_pair(item: Any, other: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Both in float64, the elements that are finite in both; None where they are no such tensors of one shape."""
    if not (isinstance(item, torch.Tensor) and isinstance(other, torch.Tensor) and item.shape == other.shape and item.is_floating_point()):
        return None
    one, two = item.detach().to_dense().double(), other.detach().to_dense().double()
    finite = one.isfinite() & two.isfinite()
    return (one[finite], two[finite]) if bool(finite.any()) else None


def rms(value: torch.Tensor) -> float:
    """The root mean square."""
    return float(value.square().mean().sqrt()) if value.numel() else 0.0
