"""What is in force around a call, and the random numbers that it would draw."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Mode:
    """What a call runs under: grad mode, inference mode, devices with autocast, and whether the module is in training mode."""

    grad: bool
    inference: bool
    autocast: tuple[str, ...]
    training: bool | None

    @classmethod
    def of(cls, owner: Any) -> Mode:
        """As it is now, for a call of `owner`."""
        import torch

        training = getattr(getattr(owner, "__self__", owner), "training", None)
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(device for device in ("cuda", "cpu") if torch.is_autocast_enabled(device)),
            training=training if isinstance(training, bool) else None,
        )


@dataclass(frozen=True, kw_only=True)
class RandomStates:
    """The states of the generators that a call may draw from; None for what is not loaded or not in use."""

    python: Any
    numpy: Any
    cpu: Any
    cuda: Any

    @classmethod
    def now(cls) -> RandomStates:
        """As they are."""
        import random

        import torch

        numpy = sys.modules.get("numpy")
        return cls(
            python=random.getstate(),
            numpy=None if numpy is None else numpy.random.get_state(),
            cpu=torch.get_rng_state(),
            cuda=torch.cuda.get_rng_state_all() if cuda_in_use() else None,
        )

    def put_back(self) -> None:
        """Let them go on from here."""
        import random

        import torch

        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state_all(self.cuda)


def cuda_in_use() -> bool:
    """Whether this process has a CUDA device and has used it."""
    import torch

    initialized: Any = torch.cuda.is_initialized
    return torch.cuda.is_available() and bool(initialized())
