"""What is known of single compilations (texts that stay in the log, timed phases, facts about shapes), and of profiled and other calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dynadiag.model.location import Location, PayloadRef


@dataclass(frozen=True, slots=True)
class Listing:
    """A long text of a compilation: Inductor's output code (ids `o#`), or the tree of its guards as torch printed it (`t#`)."""

    id: str
    kind: Literal["output_code", "guards"]
    frame: str
    attempt: int
    text: PayloadRef


class EagerCall(NamedTuple):
    """A call of a method, or of a submodule, of a compiled module, which hands it on as it was: `number` names the place in its process.

    `calls` is how often it was called there (until the program ended, where that was recorded), `stack` how that place was first reached.
    """

    number: int
    is_module: bool
    calls: int
    stack: tuple[Location, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledWork:
    """One warmed-up call, the `call`-th of `function` in its process, looked at from inside.

    `in_graphs` counts the operators of the graphs that ran in it, `outside` those that it dispatched elsewhere, both without a backward;
    `regions` says how often each compiled frame ran. `eager`: what is called is part of a compiled module and is itself not compiled.
    """

    process: int
    function: str
    call: int
    in_graphs: int
    outside: int
    graphs: int
    regions: Mapping[str, int]
    eager: EagerCall | None = None


class CompiledTime(NamedTuple):
    """How long some warmed-up calls took by the host's clock, and how much of that in compiled graphs, in seconds."""

    process: int
    graph_s: float
    call_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardCost:
    """What one check of a compilation's guards took, in microseconds, the fastest of `checks`: of all, of those on no value, of `parts`.

    A part is a value, by its source, with all that is checked below it: it was timed in a copy of the guards that holds nothing else.
    """

    frame: str
    attempt: int
    checks: int
    whole_us: float
    root_us: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEvent:
    """One look-up in a compile cache: `cache` is fx_graph or aotautograd, `result` hit, miss or bypass, `why` torch's reason for a bypass.

    `key` is what it looked for, `parts` the record where that lists the components of the key (`trace.cache_keys` reads them). `status` is
    torch's own word: with "guard_miss" there was an entry for other sizes. `took_s` is what compiling took after a miss, `saved_s` what a
    hit saved, both by torch's clock.
    """

    frame: str | None
    cache: str
    result: str
    why: str | None = None
    process: int = 0
    key: str | None = None
    status: str | None = None
    parts: PayloadRef | None = None
    took_s: float | None = None
    saved_s: float | None = None


class PhaseSpan(NamedTuple):
    """One phase of torch's `dynamo_timed`: when it began (microseconds of the process's clock since 1970), and how deep it lies."""

    process: int
    frame: str | None
    name: str
    began_us: float
    took_us: float
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFact:
    """What a compilation decided about symbolic shapes, with the user stack that torch recorded for it (() where it has none).

    `specialized`: `text` is the symbol, `value` the constant that it became, `why` torch's reason; `guard`: `text` is the condition;
    `unbacked`: `text` is a symbol that depends on data, `value` its range.
    """

    kind: Literal["specialized", "guard", "unbacked"]
    frame: str
    attempt: int
    text: str
    sources: tuple[str, ...] = ()
    value: str | None = None
    why: str | None = None
    stack: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class CallSpan:
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

    spans: tuple[CallSpan, ...]
    asks: tuple[Ask, ...]
    nodes: tuple[Node, ...]
    starter: int
    period_ns: float | None
    untimed: str | None
    how: str = ""
    too_long: bool = False
