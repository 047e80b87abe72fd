"""Outputs that the program still holds while the same graph is called again: a later call must not change them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from dynadiag.compare.aliasing import bytes_of, is_plain, storage_key
from dynadiag.compare.live.comparing import compare
from dynadiag.model.difference import Difference
from dynadiag.torch_compat.aot.autograd_engine import unseen


@dataclass
class HeldOutputs:
    """Outputs of call `number` that may still be held, by position, with what eager gave in their place.

    Only weak references: the program's memory is freed as without us, and what eager gave is let go with it.
    """

    number: int
    _kept: dict[int, tuple[weakref.ref[torch.Tensor], int, torch.Tensor]] = field(default_factory=dict)

    @classmethod
    def of_call(cls, number: int, results: Sequence[Any], eager: Sequence[Any], random: frozenset[int], *, cap_bytes: int) -> HeldOutputs:
        """What to watch of a call that gave what eager gives; nothing where that needs more memory than the cap."""
        held = cls(number)
        if bytes_of(eager) > cap_bytes:
            return held
        for at, (result, expected) in enumerate(zip(results, eager, strict=False)):
            if at not in random and is_plain(result) and is_plain(expected) and not result.is_inference():
                held._keep(at, result, expected.detach())
        return held

    def _keep(self, at: int, result: torch.Tensor, expected: torch.Tensor) -> None:
        kept = self._kept
        self._kept[at] = weakref.ref(result, unseen(lambda _: kept.pop(at, None))), result._version, expected

    def settle(self, inputs: Sequence[Any]) -> None:
        """Before the next call: forget what the program has changed meanwhile, or passes in again."""
        passed = {storage_key(value) for value in inputs if isinstance(value, torch.Tensor) and is_plain(value)}
        for at, (reference, version, _) in list(self._kept.items()):
            value = reference()
            if value is None or value._version != version or _lost(value) or storage_key(value) in passed or self._changed(at, value):
                self._kept.pop(at, None)

    def overwritten(self) -> tuple[Difference, ...]:
        """After the next call: the outputs that are no longer what they were."""
        found = []
        for at, (reference, _, _) in list(self._kept.items()):
            value = reference()
            if value is not None and (change := self._changed(at, value)) is not None:
                found.append(change)
        self._kept.clear()
        return tuple(found)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def _changed(self, at: int, value: torch.Tensor) -> Difference | None:
        expected = self._kept[at][2]
        name = f"output {at} of call {self.number}"
        if (lost := _lost(value)) is not None:
            return Difference(kind="overwritten", where="output", index=at, name=name, eager="as it was returned", compiled=lost)
        (difference,) = compare([expected], [value.detach()], [name], where="output")[:1] or (None,)
        if difference is None:
            return None
        return replace(difference, kind="overwritten", index=at)


def _lost(value: torch.Tensor) -> str | None:
    """What torch says when the memory of a CUDA graph's output was given to a later call (`torch/_inductor/cudagraph_trees.py`)."""
    try:
        value.untyped_storage().data_ptr()
    except RuntimeError as error:
        return f"RuntimeError: {' '.join(str(error).split())}"[:500]
    return None
