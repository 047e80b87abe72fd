"""What is in force around a call, and the random numbers that it would draw."""

from __future__ import annotations

import random
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
    """The states of the generators that a call may draw from; None for numpy where it is not loaded."""

    python: Any
    numpy: Any
    torch: Any

    @classmethod
    def now(cls) -> RandomStates:
        """As they are."""
        from dynadiag.torch_compat.dispatch.live_call import RandomState

        numpy = sys.modules.get("numpy")
        return cls(python=random.getstate(), numpy=None if numpy is None else numpy.random.get_state(), torch=RandomState())

    def put_back(self) -> None:
        """Let them go on from here."""
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        self.torch.set_back()


def seed_generators(seed: int = 0) -> None:
    """Seed the generators of Python, torch (of every device) and NumPy where it is loaded."""
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(seed)


def cuda_in_use() -> bool:
    """Whether this process has a CUDA device and has used it."""
    import torch

    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
