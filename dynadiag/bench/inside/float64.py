"""A step's state in float64, and whether what came of it is a truth to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dynadiag.bench.inside.state import Held


@contextmanager
def in_float64(held: Mapping[str, Held]) -> Iterator[None]:
    """Every floating tensor of the state as float64, in place; autocast leaves float64 alone. Scales and settings stay."""
    import torch

    changed = [item.tensor for item in held.values() if item.kind not in ("scaler", "setting") and item.tensor.is_floating_point()]
    before = [tensor.data for tensor in changed]
    default = torch.get_default_dtype()
    try:
        for tensor in changed:
            gradient = tensor.grad if tensor.is_leaf else None
            tensor.grad = None
            tensor.data = tensor.data.double()
            # A step that adds to the gradients it finds has to find them here as well.
            tensor.grad = None if gradient is None else gradient.to(tensor.dtype)
        torch.set_default_dtype(torch.float64)
        yield
    finally:
        torch.set_default_dtype(default)
        for tensor, data in zip(changed, before, strict=True):
            tensor.grad = None
            tensor.data = data


def loses_numbers(value: Any, exact: Any) -> bool:
    """Whether float64 has NaN or infinity where eager has a number."""
    if not (value.is_floating_point() or value.is_complex()) or value.layout != exact.layout:
        return False
    value, exact = (one.to_dense() if one.is_sparse else one for one in (value, exact))
    return bool((value.isfinite() & ~exact.to(value.device).isfinite()).any())
