"""Other states to begin a step from: other data, or the same but for rounding, which shows how far rounding moves the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynadiag.capture.reach import Held

TF32_EPS = 2.0**-10
_SEED = 7
# What a changed fraction is multiplied by: few bits, so that nothing is rounded by more than its last place.
_SHARES = (0.75, 0.625, 0.875)


def floating(held: Mapping[str, Held]) -> list[Any]:
    """The floating tensors of the state, without scales and settings."""
    return [item.tensor for item in held.values() if item.kind not in ("scaler", "setting") and item.tensor.is_floating_point()]


def nudge(held: Mapping[str, Held], eps: float, seed: int = _SEED) -> None:
    """Multiply every value of the floating tensors by 1 plus at most half of `eps`, in place, at random. Scales and settings stay."""
    import torch

    from dynadiag.compare.noise import Generators, perturbed

    generators = Generators(seed)
    with torch.no_grad():
        for tensor in floating(held):
            if tensor.layout == torch.strided and tensor.numel():
                tensor.copy_(perturbed(tensor, eps / 2, generators))
    torch.clear_autocast_cache()


def change_inputs(held: Mapping[str, Held]) -> int:
    """Other data of the same kind, in place; how many tensors were changed.

    Inputs are rotated along their last axis. Then fractions shrink, each tensor's by another share, and of integers the last becomes the
    first (so that they stay in range): a plain rotation would leave every sum as it was, and one share for all every ratio. Integers in one
    dimension may be offsets that have to ascend: left. Of parameters and buffers every other element shrinks: what keeps those of its
    first call would else be right. Fractions in one dimension that ascend may be the edges of bins: they shrink and stay in order.
    """
    import torch

    changed = 0
    with torch.no_grad():
        for at, item in enumerate(held.values()):
            tensor, share = item.tensor, _SHARES[at % len(_SHARES)]
            if tensor.layout != torch.strided or not tensor.numel():
                continue
            if item.kind in ("input", "parameter", "buffer") and _ascends(tensor):
                tensor.mul_(share)
                changed += 1
            elif item.kind == "input":
                changed += _change_input(tensor, share)
            elif item.kind in ("parameter", "buffer") and tensor.is_floating_point():
                every_other = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape) % 2 == 0
                tensor.copy_(torch.where(every_other, tensor * share, tensor))
                changed += 1
    torch.clear_autocast_cache()
    return changed


def _ascends(tensor: Any) -> bool:
    return tensor.is_floating_point() and tensor.dim() == 1 and tensor.numel() > 2 and bool((tensor.diff() > 0).all())


def _change_input(tensor: Any, share: float) -> bool:
    if tensor.dim() == 0 or tensor.shape[-1] < 2:
        return False
    rotated = tensor.roll(1, -1)
    if tensor.is_floating_point():
        tensor.copy_(rotated * share)
    elif tensor.dim() > 1:
        rotated[..., -1] = rotated[..., 0]
        tensor.copy_(rotated)
    else:
        return False
    return True
