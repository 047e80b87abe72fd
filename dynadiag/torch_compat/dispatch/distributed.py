"""Tensors of `torch.distributed` that hold another one: what a collective gives in eager, and DTensor."""

from __future__ import annotations

import sys

import torch


def own_part(value: torch.Tensor) -> tuple[torch.Tensor, str]:
    """What this rank has of a tensor, and how it lies over the ranks ("" for one that is no DTensor).

    What a collective gives is waited for: eager has an AsyncCollectiveTensor where compiled code has a tensor (2.11 and 2.15).
    """
    layout = ""
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(value, distributed.DTensor):
        layout = f"DTensor {value.placements}"
        with torch.no_grad():
            value = value.to_local()
    collectives = sys.modules.get("torch.distributed._functional_collectives")
    if collectives is not None and isinstance(value, collectives.AsyncCollectiveTensor):
        value = value.trigger_wait()
    return value, layout
