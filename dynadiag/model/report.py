"""What we say about a run: `Report` and its parts, as passes fill and renderers show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

from dynadiag.model.clauses import Clause, Happened
from dynadiag.model.json_keys import NOT_WRITTEN, Bounds, Count, ReasonIn, WrittenAs
from dynadiag.model.location import Location
from dynadiag.model.parity import Parity, Replayed
from dynadiag.model.run import Guard, Run
from dynadiag.model.sentences import sentences

SCHEMA_VERSION = 1

Certainty = Literal["measured", "counted", "observed", "derived", "predicted"]
"""How sure what a finding says is, the surest first: a time that was taken, records that were counted, what was seen to happen in this run,
what follows from what was recorded, and what another back end or device would do. The `basis` of every cost and effect is one of them."""
Severity = Literal["error", "warning", "note"]
HowSure = Literal["established", "idea"]
"""How sure a piece of advice is: its rule is tested and its conditions are plainly shown, or it is what an experienced engineer would try
first, and the recording does not show all of its conditions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One concrete change: `text` for a person, optional code before and after, and the torch options that it names.

    `follows`: it is needed as well as the advice before it in the list; else it is another way to the same end. `imports` are the
    statements that `after` needs and that the program's recorded source does not show to be there. `clauses` are what is claimed of it
    besides: what else it serves, how much it ends; `words` has them in sentences. `how_sure` is `idea` where the conditions, which the
    text names, are left to the reader. `entry` is what the atlas of libraries calls the entry that it comes from: `package/name`.
    """

    slug: str
    text: str
    before: str | None = None
    after: str | None = None
    options: tuple[str, ...] = ()
    follows: Annotated[bool, "true: needed as well as the advice before it; false: another way to the same end"] = False
    imports: Annotated[tuple[str, ...], "what `after` needs and the recorded source does not show to be there"] = ()
    clauses: Annotated[tuple[Clause, ...], NOT_WRITTEN] = ()
    how_sure: Annotated[HowSure, "established: tested, and its conditions are shown; idea: to be tried, not all are; open enum"] = (
        "established"
    )
    entry: Annotated[str | None, "the entry of the atlas of libraries that it comes from, as `package/name`; null for all other advice"] = (
        None
    )

    @property
    def words(self) -> str:
        """The change and what is claimed of it, for a person."""
        return sentences((Happened(self.text), *self.clauses)) if self.clauses else self.text

    @property
    def change(self) -> tuple[str | None, str | None]:
        """What makes two pieces of advice one: the code before and after, else what is done in words."""
        return (self.before, self.after) if self.after else (self.slug, self.text)


def distinct_advice(given: Iterable[Advice]) -> tuple[Advice, ...]:
    """Each change once, in the order in which they came."""
    found: dict[tuple[str | None, str | None], Advice] = {}
    for advice in given:
        found.setdefault(advice.change, advice)
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a finding is ranked by: a value, its unit, how it was obtained, and what else there is to say of it.

    Where it is only known to lie between two ends, these are `low` and `high`, and `value` is the low one.
    """

    value: Annotated[float, float | None]
    unit: str
    basis: Annotated[Certainty, "how the value was obtained: measured, counted or derived"]
    remark: Annotated[str, "what else there is to say of it"] = ""
    low: Annotated[float | None, "where the value is only known to lie between two ends, the lower one (it is the value)"] = None
    high: Annotated[float | None, "the upper end; null where the value is known"] = None

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

    id: Annotated[str, Bounds(pattern="^b[0-9]+$")]
    fingerprint: str
    gb_id: Annotated[str | None, "torch's id of the kind of break"]
    category: str
    reason: str
    explanation: str | None
    hints: tuple[str, ...]
    own_frame: Annotated[Location | None, "innermost frame outside site-packages and the standard library"]
    torch_frame: Annotated[Location | None, "torch's user frame: where Dynamo stopped"]
    stack: tuple[Location, ...]
    events: Annotated[Count, "records of this site"]
    frames: tuple[str, ...]
    skipped_frames: tuple[str, ...] = ()
    resume_frames: tuple[str, ...] = ()
    graphs_before: tuple[str, ...] = ()
    graphs_after: tuple[str, ...] = ()
    skip_reason: str | None = None
    cached: Annotated[bool, "replayed from a compile cache entry"] = False
    fullgraph: Annotated[bool, "taken from the exception under fullgraph=True"] = False
    processes: tuple[Count, ...] = ()
    context: str | None = None
    cost: Cost | None = None
    advice: tuple[Advice, ...] = ()
    other_reasons: tuple[str, ...] = ()
    own_frames: tuple[Location, ...] = ()
    doubts: tuple[str, ...] = ()
    unadvised: Annotated[str | None, "why nothing is advised"] = None


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

    id: Annotated[str, Bounds(pattern="^r[0-9]+$")]
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
    entries: Count
    limit: int | None
    limit_hit: bool
    became_dynamic: bool
    why: str | None
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Something that ran eagerly without being asked to, in which `processes` (none where that is not known)."""

    id: Annotated[str, Bounds(pattern="^x[0-9]+$")]
    fingerprint: str
    kind: Annotated[
        str,
        "skipped_frame, recompile_limit, suppressed_error, aot_rejected, no_graph, disabled, stance, env_disabled; open enum",
    ]
    frame: str | None
    reason: str
    own_frame: Location | None
    events: Count = 1
    breaks: tuple[str, ...] = ()
    processes: Annotated[tuple[Count, ...], "indices into run.processes; empty where it is not known in which ones"] = ()
    advice: tuple[Advice, ...] = ()


class _EveryEffectKeys(TypedDict):
    kind: str
    basis: Certainty
    detail: str


class EffectKeys(_EveryEffectKeys, total=False):
    """One effect of a mutation."""

    condition: str


class SiteKeys(TypedDict):
    """One place that writes."""

    file: str | None
    line: int | None
    code: str | None
    function: str | None
    op: str | None
    own: Annotated[bool, "whether the line is the user's"]
    library: Annotated[str | None, "where the write really is, when that is in a library"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One mutated input of a function: of all compilations of it (`frames`), `frame` being the first.

    `where` says who writes the result back: in_graph, epilogue or rejected. `effects` are worst first; one with a `condition` comes only
    then. `refusal` is what torch said when it refused the write. `unknown` maps a field that is None (or empty) to the reason.
    """

    id: Annotated[str, Bounds(pattern="^m[0-9]+$")]
    fingerprint: str
    code: str
    frame: str
    input: str
    kind: str
    effects: Annotated[tuple[Mapping[str, str], ...], list[EffectKeys]]
    bytes_touched: int | None
    bytes_written_back: int | None
    no_grad: bool | None
    static: bool | None
    aliases: tuple[str, ...]
    sites: Annotated[tuple[Mapping[str, Any], ...], list[SiteKeys]]
    advice: tuple[Advice, ...] = ()
    frames: tuple[str, ...] = ()
    graph: str | None = None
    where: str | None = None
    requires_grad: bool | None = None
    overlaps: tuple[str, ...] = ()
    refusal: str | None = None
    doubts: tuple[str, ...] = ()
    unknown: Annotated[Mapping[str, str], NOT_WRITTEN] = field(default_factory=dict)

    @property
    def worst(self) -> str | None:
        """The worst effect that holds without a condition, or None when nothing is known."""
        return next((effect["kind"] for effect in self.effects if "condition" not in effect), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReport:
    """The guards of one frame: how many, of which kinds, what a check costs, the most expensive and unusual sources, those that failed."""

    id: str
    frame: str
    count: Count
    by_kind: Mapping[str, Count]
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

    total_s: Annotated[float | None, ReasonIn("why")]
    phases: Mapping[str, float]
    thrown_away_s: float | None
    caches: Mapping[str, Mapping[str, Count]]
    frames: tuple[FrameTime, ...]
    why: Annotated[str | None, "why total_s is null"] = None


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
    severity: Annotated[Severity, "error, warning, note; open enum"]
    title: str
    where: Location | None
    clauses: Annotated[tuple[Clause, ...], str, WrittenAs("why")]
    fix: tuple[Advice, ...]
    cost: Cost | None
    evidence: Annotated[tuple[str, ...], "ids of frames, graphs, breaks, ..."]
    rank: Annotated[tuple[float, ...], tuple[float | None, ...], "what the list is sorted by, smaller first"] = ()
    behind: Annotated[tuple[str, ...], "ids of the findings of graph breaks because of which this code is compiled by itself"] = ()

    @property
    def why(self) -> str:
        """What it claims, in sentences."""
        return sentences(self.clauses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The counts of the headline. A site is a user line, an event one record of it."""

    frames: Count
    frames_compiled: Count
    frames_skipped: Count
    graphs: Count
    graph_break_sites: Count
    graph_break_events: Count
    recompiles: Count
    fallbacks: Count
    mutations: int | None
    compile_s: float | None
    processes: Count = 0


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
