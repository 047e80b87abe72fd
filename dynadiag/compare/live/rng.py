"""Whether a compiled call drew the random numbers that eager drew: only then can gradients that depend on them be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynadiag.compare.aliasing import is_plain
from dynadiag.compare.measures import root_mean_square

_HALVES = (torch.bfloat16, torch.float16)
_ROUNDINGS = 64
_ROUNDINGS_OF_HALVES = 4
_APART = 10
_SEEDS = (1, 2)
Values = Sequence[Any]


def same_draws(eager: Values, compiled: Values, otherwise: Callable[[int], Values], coarsest: torch.dtype | None) -> bool:
    """Whether values that depend on random numbers come from the same ones: all are equal but for a few roundings, and others would differ.

    `otherwise(seed)` gives eager's values for other random numbers. False where nothing tells.
    """
    limit = _limit(coarsest)
    if not eager or any(_gap(item, other) > limit for item, other in zip(eager, compiled, strict=True)):
        return False
    return all(any(_gap(element, other) > _APART * limit for element, other in zip(eager, otherwise(seed), strict=True)) for seed in _SEEDS)


def _limit(coarsest: torch.dtype | None) -> float:
    if coarsest in _HALVES:
        return _ROUNDINGS_OF_HALVES * torch.finfo(coarsest).eps
    return _ROUNDINGS * torch.finfo(torch.float32).eps


def _gap(item: Any, other: Any) -> float:
    """How far apart relative to their size, whole numbers by how many differ; infinite where they cannot be compared."""
    if not is_plain(item) or not is_plain(other):
        return 0.0 if item is other or (type(item) is type(other) and item == other) else math.inf
    if item.shape != other.shape or item.dtype != other.dtype:
        return math.inf
    with torch.no_grad():
        if not (item.is_floating_point() or item.is_complex()):
            return float((item != other).double().mean()) if item.numel() else 0.0
        wide = torch.complex128 if item.is_complex() else torch.float64
        size, gap = root_mean_square(item.to(wide)), root_mean_square(other.to(wide) - item.to(wide))
    found = gap / size if size else gap
    return found if math.isfinite(found) else math.inf
