"""What a comparison of two runs found: `DiffResult` and its parts, as all formats show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

Kind = Literal["break", "recompile", "fallback", "mutation", "other"]
What = Literal["gained", "lost", "worse", "better"]


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line, its file as the project names it, and its source as recorded."""

    file: str
    line: int | None = None
    function: str | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class FindingChange:
    """One thing that is in one run only, or that is more or less in the new one: `counts` has how many, such as recompiles, old and new."""

    kind: Annotated[Kind, "break, recompile, fallback, mutation or other"]
    what: Annotated[What, "gained, lost, worse or better"]
    code: Annotated[str, "the code of a finding; of a fallback its kind"]
    title: str
    old: SourceLine | None
    new: SourceLine | None
    fingerprint: str
    regression: bool
    counts: Annotated[tuple[int, int] | None, "of a recompiled function how often, old and new"] = None


@dataclass(frozen=True, kw_only=True)
class GraphChange:
    """Graphs of one function that are not the same in both runs, by their ids; `came` and `went` count operators by name.

    `what`: changed, gained, lost, or moved to another function (`function` is the old one, `moved_to` the new one). `calls` is the first
    call, old and new, that differs where all operators are the same ("%" is another node); None where only order or wiring do.
    """

    what: Annotated[Literal["changed", "gained", "lost", "moved"], "changed, gained, lost or moved"]
    function: str
    old: Annotated[str | None, "the graph's id in the old run"]
    new: str | None
    came: Mapping[str, int]
    went: Mapping[str, int]
    moved_to: str | None = None
    calls: Annotated[
        tuple[str, str] | None,
        "the first call that differs, old and new, where the operators are the same; % is another node",
    ] = None


@dataclass(frozen=True, kw_only=True)
class GuardChange:
    """A function whose number of guards changed; `kinds` has old and new numbers of the kinds that differ."""

    function: str
    old: int
    new: int
    kinds: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class TimeChange:
    """Compile time of one function in seconds, each measured once; None where it was not recorded."""

    function: str
    old_s: float | None
    new_s: float | None


@dataclass(frozen=True, kw_only=True)
class KeyPartChange:
    """A component of a cache key, by torch's name, that is not the same in both runs, or is in one only."""

    name: str
    old: Annotated[str | None, "as torch prints it; null where the old key has no such component"]
    new: Annotated[str | None, "null where the new key has no such component"]


@dataclass(frozen=True, kw_only=True)
class CacheChange:
    """A compilation that a cache gave in one run and not in the other, or for which it was asked by another key in the new run."""

    function: str
    old: Annotated[str | None, "what the caches answered in the old run, such as `aotautograd hit`; null where it has no counterpart"]
    new: str
    why: Annotated[str | None, "torch's reason where a cache was bypassed"]
    parts: Annotated[tuple[KeyPartChange, ...], "the components of the keys that differ, as far as both runs list them"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two runs: where it was read, what ran, and with which torch; `incomplete` says why it was cut short.

    `failed` is how the program failed, `cut_short`: records are missing that nothing will tell of, so that nothing can be judged.
    """

    path: str
    program: str
    torch: str | None
    device: str | None
    incomplete: Annotated[str | None, "why the run was cut short; null for one that was not, or of which that is not known"]
    failed: Annotated[
        str | None,
        "how the program failed, such as `was killed by SIGSEGV`; null for one that ended well or that was ended by dynadiag",
    ] = None
    cut_short: Annotated[bool, "records are missing that nothing will tell of: nothing is judged, and the exit status is 2"] = False


@dataclass(frozen=True, kw_only=True)
class DiffResult:
    """The comparison. `same` counts by kind what is in both; `counts` has old and new totals; `doubts` say what cannot be compared.

    `ranks` says where two ranks of one job first differ, in the order in which they compiled; None where it is not two ranks.
    """

    old: Side
    new: Side
    changes: tuple[FindingChange, ...]
    same: Annotated[Mapping[str, int], "by kind, how many are in both runs and as before"]
    counts: Annotated[Mapping[str, tuple[int | None, int | None]], "totals of report.json's summary, old and new; null means not known"]
    graphs: tuple[GraphChange, ...]
    same_graphs: int
    guards: tuple[GuardChange, ...]
    compile_s: Annotated[tuple[float | None, float | None], "old and new, in seconds, each measured once; null means not recorded"]
    times: tuple[TimeChange, ...]
    doubts: Annotated[tuple[str, ...], "what cannot be compared, or only in part"]
    caches: Annotated[tuple[CacheChange, ...], "what the caches did not give in the new run"] = ()
    ranks: Annotated[
        str | None,
        "where two ranks of one job first differ, in the order in which they compiled; null where it is not two ranks",
    ] = None

    @property
    def regressions(self) -> tuple[FindingChange, ...]:
        """What is worse in the new run."""
        return tuple(change for change in self.changes if change.regression)

    @property
    def worse(self) -> bool:
        """Whether something is worse in the new run, or only its program failed."""
        return bool(self.regressions) or (self.new.failed is not None and self.old.failed is None)

    @property
    def exit_status(self) -> int:
        """0 when nothing is worse; 1 where something is, or the new program failed; 2 where a run is not complete."""
        if self.old.cut_short or self.new.cut_short:
            return 2
        return 1 if self.worse or self.new.failed is not None else 0
