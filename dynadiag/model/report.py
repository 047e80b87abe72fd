"""What we say about a run: `Report` and its parts, as passes fill and renderers show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dynadiag.model.clauses import Clause
from dynadiag.model.location import Location
from dynadiag.model.parity import Parity, Replayed
from dynadiag.model.run import Guard, Run
from dynadiag.model.sentences import sentences

SCHEMA_VERSION = 1

Basis = Literal["measured", "counted", "derived"]
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One concrete change: `text` for a person, optional code before and after, and the torch options that it names.

    `follows`: it is needed as well as the advice before it in the list; else it is another way to the same end. `imports` are the
    statements that `after` needs and that the program's recorded source does not show to be there.
    """

    slug: str
    text: str
    before: str | None = None
    after: str | None = None
    options: tuple[str, ...] = ()
    follows: bool = False
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a finding is ranked by: a value, its unit, how it was obtained, and what else there is to say of it.

    Where it is only known to lie between two ends, these are `low` and `high`, and `value` is the low one.
    """

    value: float
    unit: str
    basis: Basis
    remark: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def is_time(self) -> bool:
        """Whether it is time that a run took or would gain, and no count."""
        return self.basis == "measured" or self.high is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreak:
    """One site that breaks the graph: all events of one torch user frame (file and line) that one line of the user's leads to.

    `reason` is the most common one, `other_reasons` are further ones on the same line; `own_frame` the user's line, `own_frames` also the
    function where the line of some events is not known; `doubts` says in words what torch's records leave open, `unadvised` why there is
    no advice.
    """

    id: str
    fingerprint: str
    gb_id: str | None
    category: str
    reason: str
    explanation: str | None
    hints: tuple[str, ...]
    own_frame: Location | None
    torch_frame: Location | None
    stack: tuple[Location, ...]
    events: int
    frames: tuple[str, ...]
    skipped_frames: tuple[str, ...] = ()
    resume_frames: tuple[str, ...] = ()
    graphs_before: tuple[str, ...] = ()
    graphs_after: tuple[str, ...] = ()
    skip_reason: str | None = None
    cached: bool = False
    fullgraph: bool = False
    processes: tuple[int, ...] = ()
    context: str | None = None
    cost: Cost | None = None
    advice: tuple[Advice, ...] = ()
    other_reasons: tuple[str, ...] = ()
    own_frames: tuple[Location, ...] = ()
    doubts: tuple[str, ...] = ()
    unadvised: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a failed guard saw: the source, what kind of property, and its old and new value as text."""

    source: str
    kind: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile:
    """One recompilation and what changed."""

    id: str
    fingerprint: str
    frame: str
    reasons: tuple[str, ...]
    changed: tuple[Change, ...]
    own_frame: Location | None = None
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """All recompiles of one code object read as one table row: a source and the values it went through."""

    frame_name: str
    own_frame: Location | None
    source: str
    kind: str
    values: tuple[str, ...]
    recompiles: tuple[str, ...]
    entries: int
    limit: int | None
    limit_hit: bool
    became_dynamic: bool
    why: str | None
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Something that ran eagerly without being asked to, in which `processes` (none where that is not known)."""

    id: str
    fingerprint: str
    kind: str
    frame: str | None
    reason: str
    own_frame: Location | None
    events: int = 1
    breaks: tuple[str, ...] = ()
    processes: tuple[int, ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One mutated input of a function: of all compilations of it (`frames`), `frame` being the first.

    `where` says who writes the result back: in_graph, epilogue or rejected. `effects` are worst first; one with a `condition` comes only
    then. `refusal` is what torch said when it refused the write. `unknown` maps a field that is None (or empty) to the reason.
    """

    id: str
    fingerprint: str
    code: str
    frame: str
    input: str
    kind: str
    effects: tuple[Mapping[str, str], ...]
    bytes_touched: int | None
    bytes_written_back: int | None
    no_grad: bool | None
    static: bool | None
    aliases: tuple[str, ...]
    sites: tuple[Mapping[str, Any], ...]
    advice: tuple[Advice, ...] = ()
    frames: tuple[str, ...] = ()
    graph: str | None = None
    where: str | None = None
    requires_grad: bool | None = None
    overlaps: tuple[str, ...] = ()
    refusal: str | None = None
    doubts: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def worst(self) -> str | None:
        """The worst effect that holds without a condition, or None when nothing is known."""
        return next((effect["kind"] for effect in self.effects if "condition" not in effect), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReport:
    """The guards of one frame: how many, of which kinds, what a check costs, the most expensive and unusual sources, those that failed."""

    id: str
    frame: str
    count: int
    by_kind: Mapping[str, int]
    latency_us: float | None
    dearest: tuple[Guard, ...]
    odd: tuple[Guard, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTime:
    """Compile time of one frame by phase; phases are torch's names, `thrown_away_s` is what restarts cost."""

    frame: str
    total_s: float
    phases: Mapping[str, float]
    thrown_away_s: float | None
    caches: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileTime:
    """Compile time of the whole run; `phases` never overlap, so they add up to `total_s` less what torch did not time."""

    total_s: float | None
    phases: Mapping[str, float]
    thrown_away_s: float | None
    caches: Mapping[str, Mapping[str, int]]
    frames: tuple[FrameTime, ...]
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDifference:
    """One thing that is not the same on every rank, the value on each, and which rank differs."""

    id: str
    what: str
    values: Mapping[str, str]
    odd_ranks: tuple[int, ...]
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One entry of the ranked list. `rank` orders it (smaller is first) and is derived from the numbers that the text shows.

    `clauses` are what it claims, the most important first; `why` is the same in sentences.
    """

    id: str
    fingerprint: str
    code: str
    severity: Severity
    title: str
    where: Location | None
    clauses: tuple[Clause, ...]
    fix: tuple[Advice, ...]
    cost: Cost | None
    evidence: tuple[str, ...]
    rank: tuple[float, ...] = ()

    @property
    def why(self) -> str:
        """What it claims, in sentences."""
        return sentences(self.clauses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The counts of the headline. A site is a user line, an event one record of it."""

    frames: int
    frames_compiled: int
    frames_skipped: int
    graphs: int
    graph_break_sites: int
    graph_break_events: int
    recompiles: int
    fallbacks: int
    mutations: int | None
    compile_s: float | None
    processes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """What one pass found; `report` concatenates these. `left_out` counts by kind what is not among its entries.

    `failed` names the pass where an error of dynadiag's own cost its findings.
    """

    graph_breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    transitions: tuple[Transition, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    guards: tuple[GuardReport, ...] = ()
    compile_time: CompileTime | None = None
    ranks: tuple[RankDifference, ...] = ()
    parity: Parity | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole diagnosis: what `report.json` holds and every renderer shows.

    `changed_sources` are files of the user's that are no longer as they were recorded; all lines shown are the recorded ones.
    `not_written` names those of its own files that the run directory did not take.
    """

    run: Run
    summary: Summary
    graph_breaks: tuple[GraphBreak, ...]
    recompiles: tuple[Recompile, ...]
    transitions: tuple[Transition, ...]
    fallbacks: tuple[Fallback, ...]
    mutations: tuple[Mutation, ...]
    guards: tuple[GuardReport, ...]
    compile_time: CompileTime | None
    ranks: tuple[RankDifference, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    pictures: Mapping[str, str] = field(default_factory=dict)
    parity: Parity | None = None
    replayed: Replayed | None = None
    failed_passes: tuple[str, ...] = ()
    changed_sources: tuple[str, ...] = ()
    not_written: tuple[str, ...] = ()
