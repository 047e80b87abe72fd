"""Other states to begin a step from: other data, or the same but for rounding, which shows how far rounding moves the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynadiag.bench.inside.state import Held

TF32_EPS = 2.0**-10
_SEED = 7


def nudge(held: Mapping[str, Held], eps: float, seed: int = _SEED) -> None:
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
            generator = generators.setdefault(tensor.device, torch.Generator(tensor.device).manual_seed(seed))
            noise = torch.rand(tensor.shape, generator=generator, device=tensor.device, dtype=torch.float32)
            tensor.copy_(tensor.double() * (1 + eps * (noise - 0.5).double()))


def change_inputs(held: Mapping[str, Held]) -> int:
    """Other data of the same kind, in place; how many tensors were changed.

    Inputs are rotated along their last axis. Then fractions shrink by a quarter, and of integers the last becomes the first (so that they
    stay in range): a plain rotation would leave every sum as it was. Integers in one dimension may be offsets that have to ascend: left.
    """
    import torch

    changed = 0
    with torch.no_grad():
        for item in held.values():
            tensor = item.tensor
            if item.kind != "input" or tensor.dim() == 0 or tensor.shape[-1] < 2 or tensor.layout != torch.strided:
                continue
            rotated = tensor.roll(1, -1)
            if tensor.is_floating_point():
                tensor.copy_(rotated * 0.75)
            elif tensor.dim() > 1:
                rotated[..., -1] = rotated[..., 0]
                tensor.copy_(rotated)
            else:
                continue
            changed += 1
    return changed
