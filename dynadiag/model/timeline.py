"""What happened when in profiled calls: marks on the host, what it asks of a device, and the nodes of backwards. Times in nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the host's time: "call" of a compiled function, "region", "lookup", "graph", "inner" (behind the graph's wrappers)."""

    kind: str
    begin: int
    end: int
    name: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A call of the device's runtime that gives work or waits, with the number of host events since the last.

    `waited` is what it waited, -1 where it does not wait; `work` are (stream, nanoseconds, kind): kind 1 is a product, convolution or
    attention of a library, 2 a kernel that Inductor wrote, 0 any other.
    """

    begin: int
    end: int
    events: int
    waited: int
    work: tuple[tuple[int, int, int], ...]

    @property
    def waits(self) -> bool:
        """Whether the host goes on only when the device is done."""
        return self.waited >= 0

    @property
    def own(self) -> int:
        """What it takes without the wait."""
        return self.end - self.begin - max(0, self.waited)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a backward: where the operator that made it began (None: not known), and whether it is that of a compiled graph."""

    begin: int
    end: int
    made_at: int | None
    compiled: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """All of them in order, and `how` they came about.

    `starter` is the function (its number) whose calls took `period_ns` each without a profiler, if that is known, else `untimed` says why;
    `too_long` says that the calls ask too much of a device to be written down.
    """

    spans: tuple[Span, ...]
    asks: tuple[Ask, ...]
    nodes: tuple[Node, ...]
    starter: int
    period_ns: float | None
    untimed: str | None
    how: str = ""
    too_long: bool = False
