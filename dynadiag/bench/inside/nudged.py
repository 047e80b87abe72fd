"""How far rounding moves the results of a step that has no float64 run: eager once more, its floating state moved by half a rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynadiag.bench.inside.state import Held

TF32_EPS = 2.0**-10
_SEED = 7


def nudge(held: Mapping[str, Held], eps: float) -> None:
    """Multiply every value of the floating tensors by 1 plus at most half of `eps`, in place, at random; a loss scaler's stay.

    The generator is one of its own: what the step draws is left as it is.
    """
    import torch

    generators: dict[Any, torch.Generator] = {}
    with torch.no_grad():
        for item in held.values():
            tensor = item.tensor
            if item.kind == "scaler" or not tensor.is_floating_point() or tensor.layout != torch.strided or not tensor.numel():
                continue
            generator = generators.setdefault(tensor.device, torch.Generator(tensor.device).manual_seed(_SEED))
            noise = torch.rand(tensor.shape, generator=generator, device=tensor.device, dtype=torch.float32)
            tensor.copy_(tensor.double() * (1 + eps * (noise - 0.5).double()))
