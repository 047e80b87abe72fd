"""What the comparison with eager keeps: options, the compiled graphs that are watched, and what one call of them should give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from dynadiag.compare.aliasing import AliasPattern
from dynadiag.compare.live.backward import Edge
from dynadiag.compare.live.execution import Execution
from dynadiag.compare.live.graph_copy import GraphCopy
from dynadiag.compare.live.held import HeldOutputs
from dynadiag.torch_compat.dispatch.live_call import RandomState


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
