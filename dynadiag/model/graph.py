"""Captured graphs and what was recorded of their inputs and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dynadiag.model.location import Location, PayloadRef

GraphKind = Literal["dynamo", "aot_joint", "aot_forward", "aot_backward", "aot_inference", "post_grad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a graph as its text shows it. `target` is the called op or function as written; `location` the user line above it."""

    name: str
    op: str
    target: str
    args: tuple[str, ...] = ()
    annotation: str | None = None
    location: Location | None = None
    modules: tuple[str, ...] = ()

    @property
    def is_call(self) -> bool:
        """Whether it calls something: it is neither an input nor an attribute nor the output."""
        return self.op not in ("placeholder", "get_attr", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One captured graph: counts now, its text through `text` when somebody wants it (`trace.read_payload`).

    `runnable` and `why_not` come from the probe, whose whole record is `probe`; `why_not` may also say why nothing could be counted.
    """

    id: str
    frame: str
    kind: GraphKind
    attempt: int
    nodes: int | None
    ops: Mapping[str, int]
    text: PayloadRef | None
    details: PayloadRef | None = None
    why_not: str | None = None
    runnable: bool | None = None
    probe: PayloadRef | None = None
    record: int | None = None
    operators: int | None = None

    @property
    def size(self) -> int | None:
        """How many operators it has: as the recorder counted what a plain run dispatches, else the calls in its text; None if unknown."""
        return self.operators if self.operators is not None else sum(self.ops.values()) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRecord:
    """A record that tells of mutations (`trace.aot_metadata`, `trace.side_effects` read it); kinds: aot_metadata, side_effects."""

    kind: Literal["aot_metadata", "side_effects"]
    frame: str
    attempt: int
    payload: PayloadRef
    record: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedInput:
    """A tensor that Dynamo met while it traced a frame (`describe_tensor` and `describe_source`, torch/_subclasses/meta_utils.py)."""

    frame: str
    source: str
    shape: tuple[int, ...] | None
    stride: tuple[int, ...] | None
    dtype: str | None
    device: str | None
    requires_grad: bool
    is_leaf: bool
    is_parameter: bool
    storage: int | None
