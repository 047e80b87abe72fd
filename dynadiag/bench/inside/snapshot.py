"""Copies of a step's state, to begin again from the same point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynadiag.bench.inside.state import Slot, State

_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Copies of a state's tensors and gradients, and what its slots held."""

    state: State
    copies: dict[str, Any]
    gradients: dict[str, Any]
    slots: tuple[tuple[Slot, Any], ...]

    def restore(self) -> None:
        """Put all back: the same objects in their places, the old values in the same tensors (their addresses stay), generators seeded.

        A tensor that has another shape or dtype by now gets fresh storage.
        """
        import torch

        for slot, value in self.slots:
            if slot.get() is not value:
                slot.put(value)
        with torch.no_grad():
            now = self.state.optimizer_tensors()
            for name, copy in self.copies.items():
                # A compiled optimizer may have put a tensor of its own in the place of `step`: its value is what counts.
                tensor = now.get(name, self.state.held[name].tensor)
                if tensor.shape == copy.shape and tensor.dtype == copy.dtype:
                    tensor.copy_(copy)
                else:
                    tensor.data = copy.clone()
        for name, held in self.state.held.items():
            if held.tensor.is_leaf:
                old = self.gradients.get(name)
                held.tensor.grad = None if old is None else old.clone()
        seed_generators()


def take_snapshot(state: State) -> Snapshot:
    """Copies of everything as it is now, on the same devices."""
    return Snapshot(
        state=state,
        copies={name: held.tensor.detach().clone() for name, held in state.held.items()},
        gradients={name: gradient.detach().clone() for name, gradient in state.gradients().items()},
        slots=tuple((slot, slot.get()) for slot in state.slots.values()),
    )


def seed_generators() -> None:
    """Seed Python's and torch's generators, of every device."""
    import random

    import torch

    random.seed(_SEED)
    torch.manual_seed(_SEED)


def cuda_in_use() -> bool:
    """Whether this process has a CUDA device and has used it."""
    import torch

    initialized: Any = torch.cuda.is_initialized
    return torch.cuda.is_available() and bool(initialized())


def generator_states() -> list[bytes]:
    """The states of torch's generators: when they differ, random numbers were drawn in between."""
    import torch

    states = [torch.get_rng_state()]
    if cuda_in_use():
        states.extend(torch.cuda.get_rng_state_all())
    return [bytes(state.tolist()) for state in states]
