"""The run while it is being read: frames and processes that can still change, and the lists that grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dynadiag.model.compiled import CacheEvent, CompiledTime, CompiledWork, GuardCost, Listing, ShapeFact
from dynadiag.model.digest import RankComparison
from dynadiag.model.graph import Graph, MutationRecord, TracedInput
from dynadiag.model.location import Location
from dynadiag.model.parity import ParityCall
from dynadiag.model.run import (
    BreakEvent,
    CallProfile,
    CompileCall,
    CompileKey,
    CompileMetrics,
    GuardSet,
    Problem,
    Process,
    RecompileEvent,
    RegionCost,
    RegistryEntry,
    SourceFunction,
    Symbol,
)
from dynadiag.trace.break_text import BreakText
from dynadiag.trace.phases import PhaseClock
from dynadiag.trace.room import MOST_BYTES, LeftOutError, Room, size_of
from dynadiag.trace.values import as_id

MOST_NAMES = 4096
_MOST_LEFT = 4096
_LONGEST_NAME = 200
_MOST_NOTES = 500


@dataclass(slots=True)
class FrameBuilder:
    """One compilation of one frame as far as it was read; `breaks` and `graphs` are positions in the run's lists.

    `start` is the hash of its `dynamo_start` line: only whether the same line comes again is asked.
    """

    id: str
    key: CompileKey
    attempts: int = 1
    name: str | None = None
    file: str | None = None
    line: int | None = None
    stack: tuple[Location, ...] = ()
    callers: tuple[Location, ...] = ()
    call: int | None = None
    metrics: CompileMetrics | None = None
    guards: GuardSet | None = None
    error: str | None = None
    error_type: str | None = None
    record: int | None = None
    start: int | None = None
    reasons: tuple[str, ...] = ()
    user_stack: tuple[Location, ...] = ()
    latency_us: float | None = None
    suppressed: bool | None = None
    finished: bool = False
    backward_failed: bool = False
    breaks: list[int] = field(default_factory=list)
    graphs: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """What tensors of one shape and kind have in common in `describe_tensor`; fields as those of `TracedInput`."""

    shape: tuple[int, ...] | None
    stride: tuple[int, ...] | None
    dtype: str | None
    device: str | None
    named_device: str | None
    requires_grad: bool
    is_leaf: bool
    is_parameter: bool


@dataclass(slots=True)
class ProcessBuilder:
    """One process as far as its log was read."""

    index: int
    log: str
    number: int
    facts: dict[str, Any] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    inherited: Mapping[int, str] = field(default_factory=dict)
    frames: dict[CompileKey, FrameBuilder] = field(default_factory=dict)
    latest: dict[tuple[int | None, ...], FrameBuilder] = field(default_factory=dict)
    clock: PhaseClock = field(default_factory=PhaseClock)
    skipped: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    config: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    option_names: dict[str, frozenset[str]] = field(default_factory=dict)
    registry: dict[str, RegistryEntry] = field(default_factory=dict)
    hooks: dict[str, str] = field(default_factory=dict)
    tensors: dict[tuple[int | None, int | None], tuple[TensorLayout, int | None]] = field(default_factory=dict)
    contexts: dict[tuple[int, bytes], FrameBuilder] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    eager: dict[int, int] = field(default_factory=dict)
    counters: dict[str, Mapping[str, int]] | None = None
    calls: int | None = None
    event_context: bytes | None = None
    event_epoch: int = -1
    event_frame: str | None = None
    epoch: int = 0
    records: int = 0
    ended: int = 0
    finished: bool = False
    has_metrics: bool = False

    def skip(self, reason: str) -> None:
        """A record was of no use."""
        self.skipped[reason] += 1

    def ignore(self, name: str, room: Room) -> None:
        """A record of a kind that we do not read; a hostile log cannot make the table grow without end."""
        known = name in self.unknown or (len(name) <= _LONGEST_NAME and len(self.unknown) < MOST_NAMES and room.take("settings"))
        self.unknown[name if known else "other"] += 1

    def done(self) -> Process:
        """The process as plain data. Without a device's name, its type as the graph inputs tell it: the CPU only when there is no other."""
        known = sorted(self.devices - {"cpu"}) or sorted(self.devices)
        device = self.facts.pop("device", None) or ", ".join(known) or None
        return Process(
            device=device,
            index=self.index,
            log=self.log,
            records=self.records,
            skipped=dict(self.skipped),
            unknown_artifacts=dict(self.unknown),
            config=self.config,
            option_names=self.option_names,
            registry=self.registry,
            hooks=self.hooks,
            counters=self.counters,
            calls=self.calls,
            finished=self.finished,
            **self.facts,
        )


@dataclass(slots=True)
class RunBuilder:
    """Everything read so far. A place in `breaks` that became None was merged into a later record of the same break.

    `left_silently` holds frames left because of a break that torch did not log, because the program had switched logging off; only our
    recorder sees them. Without a log of it a break was raised: under `fullgraph=True`, under `error_on_graph_break`, inside a higher
    order operator. `cut` says of which logs the end is missing.
    """

    processes: list[ProcessBuilder] = field(default_factory=list)
    frames: list[FrameBuilder] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    breaks: list[BreakEvent | None] = field(default_factory=list)
    symbols: dict[tuple[str, int, str], Symbol] = field(default_factory=dict)
    recompiles: list[RecompileEvent] = field(default_factory=list)
    caches: list[CacheEvent] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    costs: list[RegionCost] = field(default_factory=list)
    profiles: dict[int, CallProfile] = field(default_factory=dict)
    compile_calls: list[CompileCall] = field(default_factory=list)
    legacy: list[Problem] = field(default_factory=list)
    mutation_records: list[MutationRecord] = field(default_factory=list)
    traced_inputs: list[TracedInput] = field(default_factory=list)
    parity: list[ParityCall] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    site_prefixes: dict[str, None] = field(default_factory=dict)
    project: dict[str, str] = field(default_factory=dict)
    around: dict[str, None] = field(default_factory=dict)
    libraries: dict[str, None] = field(default_factory=dict)
    blocks: dict[tuple[str, int], str] = field(default_factory=dict)
    functions: dict[tuple[str, int], SourceFunction] = field(default_factory=dict)
    library_functions: dict[tuple[str, int], SourceFunction] = field(default_factory=dict)
    listings: list[Listing] = field(default_factory=list)
    shape_facts: dict[ShapeFact, None] = field(default_factory=dict)
    work: list[CompiledWork] = field(default_factory=list)
    work_times: list[CompiledTime] = field(default_factory=list)
    guard_costs: list[GuardCost] = field(default_factory=list)
    shared: dict[Any, Any] = field(default_factory=dict)
    texts: dict[tuple[str, int], int] = field(default_factory=dict)
    graphs_seen: int = 0
    room: Room = field(default_factory=Room)
    left_silently: set[str | None] = field(default_factory=set)
    left_frames: dict[CompileKey, None] = field(default_factory=dict)
    ranks: RankComparison | None = None
    alike: list[Process] = field(default_factory=list)

    def share(self, value: Any) -> Any:
        """An equal value that was seen before, so that the same stack or message is kept once."""
        known = self.shared.get(value)
        if known is not None or not value:
            return value if known is None else known
        if len(self.shared) > 200_000:
            self.shared.clear()
        self.room.used += size_of(value)
        self.shared[value] = value
        return value

    def break_event(self, text: BreakText, frame: str, attempt: int, **origin: Any) -> BreakEvent:
        """The event that a text says, its parts shared; `origin` is its `source` or its `record`."""
        reason = self.share(text.reason)
        return BreakEvent(
            frame=frame,
            attempt=attempt,
            gb_id=reason.gb_id,
            gb_type=reason.gb_type,
            explanation=reason.explanation,
            hints=reason.hints,
            context=reason.context,
            stack=self.share(text.stack),
            torch_frame=text.torch_frame,
            prefix=self.share(text.prefix),
            skip_reason=self.share(text.skip_reason),
            skips_frame=text.skips_frame,
            cause=text.cause,
            **origin,
        )

    def shared_guards(self, found: GuardSet) -> GuardSet:
        """Guards of a frame; those that other ranks and compilations have alike are kept once."""
        if self.room.used > MOST_BYTES:
            return GuardSet(count=found.count, by_kind=self.shared_counts(found.by_kind), on_modules=found.on_modules)
        examples = self.share(tuple(map(self.share, found.examples)))
        return GuardSet(
            count=found.count,
            by_kind=self.shared_counts(found.by_kind),
            examples=examples,
            watched=tuple(map(self.share, found.watched)),
            on_modules=found.on_modules,
            values=self.share(found.values),
        )

    def shared_counts(self, counts: Mapping[str, int]) -> Mapping[str, int]:
        """A table of counts, once for all that are equal."""
        key = ("counts", *counts.items())
        known: Mapping[str, int] | None = self.shared.get(key)
        if known is None:
            self.room.used += 100 * len(counts)
            self.shared[key] = known = counts
        return known

    def graph_at(self, log: str, offset: int | None) -> int | None:
        """The position of the graph whose text lies there, or None."""
        for position in range(self.graphs_seen, len(self.graphs)):
            text = self.graphs[position].text
            if text is not None:
                self.texts[text.log, text.offset] = position
        self.graphs_seen = len(self.graphs)
        return None if offset is None else self.texts.get((log, offset))

    def note(self, text: str) -> None:
        """Something the reader should know, said once however often it happens."""
        if text in self.notes or len(self.notes) < _MOST_NOTES:
            self.notes[text] = self.notes.get(text, 0) + 1

    def new_frame(self, process: ProcessBuilder, key: CompileKey) -> FrameBuilder:
        """A frame that was not seen before; LeftOutError when there is no room for it, whose key is remembered for its other records."""
        if key in self.left_frames:
            raise LeftOutError
        if not self.room.take("frames"):
            if len(self.left_frames) >= _MOST_LEFT:
                self.left_frames.clear()
            self.left_frames[key] = None
            raise LeftOutError
        frame = FrameBuilder(f"f{len(self.frames)}", key)
        self.frames.append(frame)
        process.frames[key] = frame
        process.latest[key.frame, key.compile, key.autograd] = frame
        process.contexts.clear()
        return frame

    def frame_of(self, process: ProcessBuilder, header: Mapping[str, Any], *, coming: bool = False) -> FrameBuilder:
        """The frame that a record belongs to by its compile context; made when no record of it came before.

        `coming` is for records that torch writes before a frame starts. All others may also belong to a frame from before a reset, whose
        backward is compiled late.
        """
        key = key_of(process, header)
        frame = process.frames.get(key)
        if frame is None and not coming:
            frame = process.latest.get((key.frame, key.compile, key.autograd))
        if frame is None:
            frame = self.new_frame(process, key)
        frame.attempts = max(frame.attempts, attempt_of(header) + 1)
        return frame

    def known_frame(self, process: ProcessBuilder, header: Mapping[str, Any]) -> FrameBuilder | None:
        """The frame that a record belongs to if it was seen already."""
        key = key_of(process, header)
        return process.frames.get(key) or process.latest.get((key.frame, key.compile, key.autograd))


def key_of(process: ProcessBuilder, header: Mapping[str, Any]) -> CompileKey:
    """The compile id in a record's header, in the present reset epoch."""
    return CompileKey(
        process.index,
        process.epoch,
        as_id(header.get("frame_id")),
        as_id(header.get("frame_compile_id")),
        as_id(header.get("compiled_autograd_id")),
    )


def attempt_of(header: Mapping[str, Any]) -> int:
    """The attempt in a record's header; 0 when it says none or nonsense."""
    attempt = as_id(header.get("attempt"))
    return attempt if attempt is not None and attempt < 10_000 else 0
