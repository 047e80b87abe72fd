"""What the comparison with eager keeps: options, the compiled graphs that are watched, and what one call of them should give."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Node

from dynadiag.compare.aliasing import AliasPattern, bytes_of, is_plain, storage_key
from dynadiag.compare.live.backward import Edge
from dynadiag.compare.live.comparing import compare
from dynadiag.compare.live.execution import Execution
from dynadiag.compare.live.graph_copy import GraphCopy
from dynadiag.model.difference import Difference
from dynadiag.torch_compat.aot.autograd_engine import unseen
from dynadiag.torch_compat.dispatch.live_call import RandomState


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


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """How many calls of each graph are compared at first, and the most memory that copies of one call's inputs may take."""

    calls: int = 3
    cap_bytes: int = 2 << 30


@dataclass
class Region:
    """One compiled graph: where it belongs, and which calls were compared."""

    copy: GraphCopy | None
    why_not: str | None
    compile_ids: dict[str, Any]
    epoch: int
    graph: int
    patterns: dict[AliasPattern, int] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    held: HeldOutputs | None = None

    @property
    def attributes(self) -> list[Any]:
        """The tensors that the graph holds itself."""
        return [] if self.copy is None else [value for value in self.copy.attributes.values() if isinstance(value, torch.Tensor)]


@dataclass(frozen=True)
class Expectation:
    """What the call should give: eager's results on copies, and copies as they were before; `edges` is where its gradients go.

    `held` are outputs of the call before that it must leave alone. A call with nothing but those is not compared. `draws` are the random
    generators before the call; `drawn_alike` says that the compiled call drew the same numbers. `refused` is the operator that raised.
    """

    number: int
    pattern: AliasPattern
    pristine: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    eager: Execution | None = None
    raised: str | None = None
    refused: Node | None = None
    edges: dict[int, Edge] = field(default_factory=dict)
    held: HeldOutputs | None = None
    draws: RandomState | None = None
    drawn_alike: bool = False

    @property
    def compared(self) -> bool:
        """Whether eager was called."""
        return self.eager is not None or self.raised is not None

    def writes_shared(self) -> bool:
        """Whether memory that two inputs share is written while one of them requires grad: copies do not keep what autograd knows of it."""
        shared = self.sharing()
        return bool(self.eager is not None and shared & self.edges.keys() and shared & self.eager.written.keys())

    def sharing(self) -> set[int]:
        """The inputs whose memory overlaps another's."""
        return {at for number, other, how in self.pattern if how != "one storage" for at in (number, other)}
