"""Copies of a step's state, to begin again from the same point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynadiag.bench.inside.state import Slot, State
from dynadiag.capture.call_state import RandomStates


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Copies of a state's tensors and gradients, and what its slots held."""

    state: State
    copies: dict[str, Any]
    gradients: dict[str, Any]
    slots: tuple[tuple[Slot, Any], ...]
    containers: tuple[tuple[Any, Any], ...]
    histories: tuple[tuple[dict[str, Any], dict[str, Any]], ...]
    generators: RandomStates

    def restore(self) -> None:
        """Put all back: the same objects in their places, the old values in the same tensors (their addresses stay), and random numbers.

        A tensor that has another shape or dtype by now gets fresh storage.
        """
        import torch

        for container, held in self.containers:
            _put_back(container, held)
        for slot, value in self.slots:
            if slot.get() is not value:
                slot.put(value)
        for kept, held in self.histories:
            kept.update({key: value.copy() if isinstance(value, list) else value for key, value in held.items()})
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
        # Autocast keeps the casts of weights, and would go on with those of the values that were just overwritten.
        torch.clear_autocast_cache()
        self.generators.put_back()


def take_snapshot(state: State) -> Snapshot:
    """Copies of everything as it is now, on the same devices."""
    return Snapshot(
        state=state,
        copies={name: held.tensor.detach().clone() for name, held in state.held.items()},
        gradients={name: gradient.detach().clone() for name, gradient in state.gradients().items()},
        slots=tuple((slot, slot.get()) for slot in state.slots.values()),
        containers=tuple((container, container.copy()) for container in state.containers),
        histories=tuple(state.optimizer_histories()),
        generators=RandomStates.now(),
    )


def _put_back(container: Any, held: Any) -> None:
    """Let a list or a dict hold what it held: a loss that each step appends would else be a new result each time."""
    if isinstance(container, list):
        if len(container) != len(held):
            container[:] = held
    elif container.keys() != held.keys():
        for key in [key for key in container if key not in held]:
            del container[key]
        container.update({key: value for key, value in held.items() if key not in container})
