"""What a call left, as plain data and copies of tensors: entries of what it gave, and of the state that it can reach."""

from __future__ import annotations

from typing import Any

import torch

from dynadiag.capture.reach import RandomStates, State, find_state, strided_copy
from dynadiag.compare.aliasing import is_plain, sharing
from dynadiag.torch_compat.dispatch.distributed import own_part
from dynadiag.torch_compat.pytree import tree_leaves

PLAIN = (bool, int, float, str, type(None))
_LONGEST = 200
Entry = tuple[str, str, Any]
"""(where, name, value): a value is a copy of a tensor with what else is known of it, or plain data that has to be the same."""


class Notes:
    """Makes entries; a tensor that has not changed since is copied once. `full`: copies would take more than the cap."""

    def __init__(self, cap_bytes: int) -> None:
        self.full = False
        self._left = cap_bytes
        self._kept: dict[tuple[str, str], torch.Tensor] = {}

    def of_state(self, state: State, when: str) -> list[Entry]:
        """Its tensors with their gradients, its plain values, the lengths of its containers, and the random numbers."""
        found = [(when, name, self.copy(when, name, held.tensor)) for name, held in state.held.items()]
        for name, held in state.held.items():
            gradient = held.tensor.grad if held.tensor.is_leaf else None
            found.append(("gradient", name, None if gradient is None else self.copy("gradient", name, gradient)))
        for name, slot in state.slots.items():
            value = slot.get()
            # None is also what a name has that is no global of the function.
            if isinstance(value, PLAIN) and value is not None:
                found.append((f"value {when}", name, value if not isinstance(value, str) else value[:_LONGEST]))
        lengths = [("lengths", "containers", sorted(len(container) for container in state.containers))]
        drawn = RandomStates.now(wake_numpy=False).digests()
        return [*found, *lengths, *(("random numbers", name, digest) for name, digest in drawn.items())]

    def of_results(self, result: Any, state: State) -> list[Entry]:
        """What a call gave, and how that shares memory with the state that it left."""
        leaves: list[Any] = []
        for at, leaf in enumerate(tree_leaves(result)):
            if isinstance(leaf, (torch.Tensor, *PLAIN)):
                leaves.append((f"output {at}", leaf))
            else:
                held = find_state(None, (leaf,)).held
                leaves.append((f"output {at}", f"a {type(leaf).__qualname__} with {len(held)} tensors"))
                leaves += [(f"output {at} {name}", item.tensor) for name, item in held.items()]
        found = [("output", name, self.copy("output", name, value)) for name, value in leaves]
        kind = type(own_part(result)[0] if isinstance(result, torch.Tensor) else result)
        shape = [("output", "the result", f"{kind.__qualname__} of {len(leaves)}")]
        parts = [(name, own_part(value)[0]) for name, value in leaves if isinstance(value, torch.Tensor)]
        made = [(name, value) for name, value in parts if is_plain(value)]
        there = [(name, element.tensor) for name, element in state.held.items() if is_plain(element.tensor)]
        names = [name for name, _ in (*made, *there)]
        pairs = sharing([value for _, value in made], [value for _, value in there])
        shared = sorted(f"{names[number]} and {names[other]}: {how}" for (number, other), how in pairs.items())
        return [*shape, *found, ("shared memory", "outputs", shared)]

    def copy(self, where: str, name: str, value: Any) -> Any:
        """A copy that keeps sizes and strides; the one of before where nothing changed since."""
        if not isinstance(value, torch.Tensor):
            return value
        requires_grad = value.requires_grad
        value, layout = own_part(value)
        if not is_plain(value):
            return f"not compared: {type(value).__name__} of layout {value.layout}"
        key = (where if where in ("output", "gradient") else "state", name)
        kept = self._kept.get(key)
        with torch.no_grad():
            if kept is None or not _as_it_was(kept, value):
                self._left -= value.element_size() * (
                    1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
                )
                self.full = self.full or self._left < 0
                if self.full:
                    return "not compared: too large"
                self._kept[key] = kept = strided_copy(value, "cpu")  # that of a GPU is the program's
        return {"tensor": kept, "device": str(value.device), "requires_grad": requires_grad, **({"layout": layout} if layout else {})}


def _as_it_was(kept: torch.Tensor, value: torch.Tensor) -> bool:
    same = (kept.shape, kept.dtype, kept.stride()) == (value.shape, value.dtype, value.stride())
    return same and bool(torch.equal(kept.to(value.device), value))
