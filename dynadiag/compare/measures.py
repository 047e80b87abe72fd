"""The measures that a live and an offline comparison with eager have in common: what is always allowed, sizes, strides, numbers as text."""

from __future__ import annotations

import torch

NOISE_FACTOR = 10.0
"""How many times eager's own error a compiled value may have (bench's rule of correctness has the same)."""
TOLERANCE = {torch.float64: 1e-7, torch.complex128: 1e-7, torch.bfloat16: 4e-2, torch.float16: 8e-3}
"""Relative error that is always allowed, by dtype; 1e-3 for others."""
DEFAULT_TOLERANCE = 1e-3


def on_fastest(value: torch.Tensor) -> torch.Tensor:
    """The tensor on the GPU where this process uses one: comparing a large step's copies on the CPU took minutes (BERT-base, 2.11)."""
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return value.to("cuda") if in_use else value


def tolerance_of(dtype: torch.dtype) -> float:
    """The relative error that is always allowed for this dtype."""
    return TOLERANCE.get(dtype, DEFAULT_TOLERANCE)


def strides(value: torch.Tensor) -> tuple[int, ...]:
    """Strides of the dimensions in which there is a step to take."""
    return tuple(step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1) if value.numel() else ()


def root_mean_square(values: torch.Tensor) -> float:
    """Root mean square; 0 of no values."""
    return float(values.abs().square().mean().sqrt()) if values.numel() else 0.0


def as_text(value: torch.Tensor) -> str:
    """The one number of a tensor, floats with six digits."""
    item = value.item()
    return f"{item:.6g}" if isinstance(item, float) else str(item)


def special(values: torch.Tensor) -> torch.Tensor:
    """0 for finite numbers, else which infinity, or NaN."""
    return torch.isposinf(values) * 1 + torch.isneginf(values) * 2 + torch.isnan(values) * 3
