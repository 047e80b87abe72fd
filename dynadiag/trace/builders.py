"""The run while it is being read: frames and processes that can still change, the lists that grow; and the finished `Run` of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from dynadiag.model.compiled import CacheEvent, CompiledTime, CompiledWork, GuardCost, Listing, ShapeFact
from dynadiag.model.digest import RankComparison
from dynadiag.model.graph import Graph, MutationRecord, TracedInput
from dynadiag.model.location import Location, PayloadRef
from dynadiag.model.parity import ParityCall, WholeCall
from dynadiag.model.run import (
    BREAK_ERRORS,
    LIMIT_ERRORS,
    SOFT_ERRORS,
    UNFINISHED,
    BreakEvent,
    CallProfile,
    CompileCall,
    CompileKey,
    CompileMetrics,
    Frame,
    GuardSet,
    Outcome,
    Problem,
    Process,
    RecompileEvent,
    RegionCost,
    RegistryEntry,
    Run,
    SourceFunction,
    Symbol,
    UnguardedState,
)
from dynadiag.trace.break_text import BreakText, parse_reason
from dynadiag.trace.metrics import PhaseClock
from dynadiag.trace.room import MOST_BYTES, LeftOutError, Room, size_of
from dynadiag.trace.sources import Sources
from dynadiag.trace.stacks import printed_stack
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
    libraries: dict[str, str] = field(default_factory=dict)
    hooks: dict[str, str] = field(default_factory=dict)
    tensors: dict[tuple[int | None, int | None], tuple[TensorLayout, int | None]] = field(default_factory=dict)
    contexts: dict[tuple[int, bytes], FrameBuilder] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    key_parts: dict[str, PayloadRef] = field(default_factory=dict)
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
            libraries=self.libraries,
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
    whole_calls: list[WholeCall] = field(default_factory=list)
    unguarded: list[UnguardedState] = field(default_factory=list)
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


_REFUSED = "Backend compiler exception"
_OF_OPERATOR = re.compile(r"^ *(?:Original traceback|Found from ?): ?\n", re.MULTILINE)
_LIMIT_TITLES = ("Dynamo recompile limit exceeded", "Dynamo cache limit exceeded", "cache_size_limit reached")


def finish(run: RunBuilder, sources: Sources) -> Run:
    """The run as plain data."""
    _name_from_siblings(run)
    seen = {(problem.frame, problem.kind) for problem in run.problems}
    for builder in run.frames:
        _complete(run, builder, seen)
    return Run(
        info=sources.info,
        processes=(*(process.done() for process in run.processes), *run.alike),
        ranks=run.ranks,
        frames=tuple(_frame(run, builder) for builder in run.frames),
        graphs=tuple(run.graphs),
        breaks=tuple(_at_refused_operator(_outside_default_device(event)) for event in run.breaks if event is not None),
        recompiles=_recompiles(run),
        symbols=_symbols(run),
        phases=tuple(phase for process in run.processes for phase in process.clock.phases()),
        caches=tuple(run.caches),
        problems=tuple(run.problems),
        costs=tuple(run.costs),
        profiles=tuple(run.profiles.values()),
        compile_calls=tuple(run.compile_calls),
        legacy=tuple(run.legacy),
        mutation_records=tuple(run.mutation_records),
        traced_inputs=tuple(run.traced_inputs),
        parity=tuple(run.parity),
        whole_calls=tuple(run.whole_calls),
        unguarded=tuple(run.unguarded),
        notes=(*(text if count == 1 else f"{text} ({count} times)" for text, count in run.notes.items()), *run.room.notes()),
        left_out=dict(run.room.left),
        site_prefixes=tuple(run.site_prefixes),
        project=dict(run.project),
        around=tuple(run.around),
        libraries=tuple(run.libraries),
        blocks=run.blocks,
        functions=tuple(run.functions.values()),
        library_functions=tuple(run.library_functions.values()),
        listings=tuple(run.listings),
        spans=tuple(span for process in run.processes for span in process.clock.timed(process.index)),
        shape_facts=_shape_facts(run),
        work=tuple(run.work),
        work_times=tuple(run.work_times),
        guard_costs=tuple(run.guard_costs),
    )


def _complete(run: RunBuilder, builder: FrameBuilder, seen: set[tuple[str | None, str]]) -> None:
    """What is said of a frame only in its metrics: a recompile limit that was hit, a break that was raised (`fullgraph=True`)."""
    _flush_latency(builder)
    if _hit_limit(builder):
        _add_problem(run, builder, "recompile_limit", _why_failed(builder), seen)
    elif _fail_type(builder) in BREAK_ERRORS and not _events(run, builder):
        _add_raised_break(run, builder)
    elif (kind := _problem_kind(run, builder)) is not None:
        _add_problem(run, builder, kind, _why_failed(builder), seen)
    if _outcome(run, builder) == "skipped" and (_fail_type(builder) is None or _fail_type(builder) in SOFT_ERRORS):
        for position in builder.breaks:
            event = run.breaks[position]
            if event is not None and not event.skips_frame:
                run.breaks[position] = replace(event, skips_frame=True)


def _flush_latency(builder: FrameBuilder) -> None:
    """Older torch prints the latency of the guards, but does not put it into the metrics."""
    if builder.latency_us is not None and builder.metrics is not None and builder.metrics.guard_latency_us is None:
        builder.metrics = replace(builder.metrics, guard_latency_us=builder.latency_us)


def _fail_type(builder: FrameBuilder) -> str | None:
    return (builder.metrics.fail_type if builder.metrics else None) or builder.error_type


def _outside_default_device(event: BreakEvent) -> BreakEvent:
    """The event without the frames that `torch.set_default_device` puts between a line and the function of torch that it calls.

    Each call of torch then passes through `DeviceContext.__torch_function__` (torch/utils/_device.py, 2.6 to 2.15): it is no place of a
    library where tracing stopped.
    """
    if not any(map(_is_default_device, (*event.stack, event.torch_frame))):
        return event
    stack = tuple(place for place in event.stack if not _is_default_device(place))
    place = stack[-1] if stack and _is_default_device(event.torch_frame) else event.torch_frame
    return replace(event, stack=stack, torch_frame=place)


def _at_refused_operator(event: BreakEvent) -> BreakEvent:
    """The event of a graph that its back end refused, at the line of the operator that it names.

    Torch records the line at which the graph ends, or the first of the function. What the back end raised has the line of the operator
    (`Interpreter.run_node` in `torch/fx/interpreter.py`, `LoweringException` in `torch/_inductor/exc.py`, 2.11 to 2.15).
    """
    said = _OF_OPERATOR.search(event.context or "") if event.gb_type == _REFUSED else None
    operator = () if said is None else printed_stack(takewhile(str.strip, said.string[said.end() :].split("\n")))
    if not operator:
        return event
    first = (operator[0].file, operator[0].function)
    begins = next((number for number, place in enumerate(event.stack) if (place.file, place.function) == first), len(event.stack))
    return replace(event, stack=(*event.stack[:begins], *operator), torch_frame=operator[-1])


def _is_default_device(place: Location | None) -> bool:
    return (
        place is not None and place.function == "__torch_function__" and place.file.replace("\\", "/").endswith("/torch/utils/_device.py")
    )


def _why_failed(builder: FrameBuilder) -> str:
    return (builder.metrics.fail_reason if builder.metrics else None) or builder.error or ""


def _events(run: RunBuilder, builder: FrameBuilder) -> list[BreakEvent]:
    return [event for event in (run.breaks[position] for position in builder.breaks) if event is not None]


def _hit_limit(builder: FrameBuilder) -> bool:
    return _fail_type(builder) in LIMIT_ERRORS or _why_failed(builder).startswith(_LIMIT_TITLES)


def _name_from_siblings(run: RunBuilder) -> None:
    """A compilation that never started (a limit, a text log) has the code object of the other compilations of its frame."""
    named = {_code_key(builder): builder for builder in reversed(run.frames) if builder.name is not None}
    for builder in run.frames:
        other = named.get(_code_key(builder)) if builder.name is None and builder.key.frame is not None else None
        if other is not None:
            builder.name, builder.file, builder.line = other.name, other.file, other.line


def _code_key(builder: FrameBuilder) -> tuple[int | None, ...]:
    return builder.key.process, builder.key.epoch, builder.key.frame, builder.key.autograd


def _problem_kind(run: RunBuilder, builder: FrameBuilder) -> str | None:
    failed = _fail_type(builder)
    if failed is None or failed in SOFT_ERRORS:
        return None
    if builder.suppressed:
        return "suppressed_error"
    return "backend_error" if failed == "BackendCompilerFailed" else "error"


def _add_problem(run: RunBuilder, builder: FrameBuilder, kind: str, text: str, seen: set[tuple[str | None, str]]) -> None:
    """Unless the recorder saw the same thing happen."""
    if (builder.id, kind) in seen:
        return
    place = (builder.metrics.fail_location if builder.metrics else None) or _code_place(builder)
    stack = (*_callers(builder), *builder.user_stack)
    problem = Problem(
        kind=kind, process=builder.key.process, text=text, frame=builder.id, location=place, stack=stack, record=builder.record
    )
    run.problems.append(problem)


def _callers(builder: FrameBuilder) -> tuple[Location, ...]:
    return builder.callers or builder.stack


def _code_place(builder: FrameBuilder) -> Location | None:
    return Location(builder.file, builder.line, builder.name) if builder.file else None


def _add_raised_break(run: RunBuilder, builder: FrameBuilder) -> None:
    """With `fullgraph=True` torch raises the break and records none: the exception is the break."""
    reason, second = parse_reason(_why_failed(builder))
    place = (builder.user_stack[-1] if builder.user_stack else None) or (builder.metrics.fail_location if builder.metrics else None)
    builder.breaks.append(len(run.breaks))
    run.breaks.append(
        BreakEvent(
            frame=builder.id,
            attempt=builder.attempts - 1,
            gb_id=reason.gb_id,
            gb_type=reason.gb_type,
            explanation=reason.explanation,
            hints=reason.hints,
            context=reason.context,
            stack=(*_callers(builder), *builder.user_stack) or ((place,) if place else ()),
            torch_frame=place or _code_place(builder),
            skip_reason=(f"{second.gb_type}: {second.explanation}" if second.explanation else second.gb_type) if second else None,
            source="metrics" if builder.metrics is not None and builder.metrics.fail_type else "exception",
            record=builder.record,
        )
    )


def _outcome(run: RunBuilder, builder: FrameBuilder) -> Outcome:
    """How a frame ended, from evidence, strongest first.

    1. An exception: `skipped` when torch lets it fall back (a break that was logged, the recompile limit, `suppress_errors`), else
       `failed`.
    2. `has_guarded_code` of the metrics: False is `skipped`; True is `broke` when a break was recorded, else `compiled` (also without a
       graph, when there was nothing to capture).
    3. Without metrics (a log that was cut, a text log): a break that was recorded, guards, or a graph where no frame has metrics.
    """
    events = _events(run, builder)
    if _fail_type(builder) is not None:
        return _outcome_of_error(run, builder, events)
    guarded = builder.metrics.has_guarded_code if builder.metrics else None
    if guarded is False or (guarded is None and any(event.skips_frame for event in events)) or (events and _left_unguarded(builder)):
        return "skipped"
    if events:
        return "broke"
    if guarded or builder.guards or builder.start is None or (builder.graphs and not _is_unfinished(run, builder)):
        return "compiled"
    return "failed"


def _left_unguarded(builder: FrameBuilder) -> bool:
    """True for a break after which no code was made: torch 2.8 to 2.10 say `has_guarded_code` of such a frame too, but count no guards."""
    metrics = builder.metrics
    if metrics is None or builder.guards or builder.graphs:
        return False
    return bool(metrics.has_guarded_code) and metrics.total_s is not None and metrics.guard_count is None and metrics.graph_ops is None


def _is_unfinished(run: RunBuilder, builder: FrameBuilder) -> bool:
    """True for a frame without metrics in a process that has them for others, or that we recorded: the back end had not come back."""
    process = run.processes[builder.key.process]
    return builder.metrics is None and ("argv" in process.facts or process.has_metrics)


def _outcome_of_error(run: RunBuilder, builder: FrameBuilder, events: list[BreakEvent]) -> Outcome:
    failed = _fail_type(builder)
    if failed in LIMIT_ERRORS and str(failed).startswith("FailOn"):
        return "failed"
    if _hit_limit(builder) or (builder.suppressed and failed not in BREAK_ERRORS):
        return "skipped"
    logged = any(event.source in ("artifact", "text") for event in events)
    if failed in SOFT_ERRORS and (logged or failed not in BREAK_ERRORS or builder.id in run.left_silently):
        return "skipped"
    return "failed"


def _frame(run: RunBuilder, builder: FrameBuilder) -> Frame:
    outcome = _outcome(run, builder)
    cut = outcome == "failed" and _fail_type(builder) is None
    return Frame(
        id=builder.id,
        key=builder.key,
        attempts=builder.attempts,
        name=builder.name,
        file=builder.file,
        line=builder.line,
        outcome=outcome,
        stack=builder.stack,
        callers=builder.callers,
        call=builder.call,
        metrics=builder.metrics,
        guards=builder.guards,
        error=UNFINISHED if cut else builder.error,
        record=builder.record,
    )


def _recompiles(run: RunBuilder) -> tuple[RecompileEvent, ...]:
    """The events with the stack of their frame: torch writes the reasons before the frame starts."""
    stacks = {builder.id: _callers(builder) for builder in run.frames}
    return tuple(
        event
        if event.stack or not stacks.get(event.frame)
        else RecompileEvent(frame=event.frame, reasons=event.reasons, stack=stacks[event.frame], record=event.record)
        for event in run.recompiles
    )


def _symbols(run: RunBuilder) -> tuple[Symbol, ...]:
    """The symbols of each frame's last attempt: an attempt that is thrown away makes them again."""
    last = _last_attempts((frame, attempt) for frame, attempt, _ in run.symbols)
    return tuple(found for (frame, attempt, _), found in run.symbols.items() if attempt == last[frame])


def _shape_facts(run: RunBuilder) -> tuple[ShapeFact, ...]:
    """The facts of each frame's last attempt that has some."""
    last = _last_attempts((fact.frame, fact.attempt) for fact in run.shape_facts)
    return tuple(fact for fact in run.shape_facts if fact.attempt == last[fact.frame])


def _last_attempts(attempts: Iterable[tuple[str, int]]) -> dict[str, int]:
    last: dict[str, int] = {}
    for frame, attempt in attempts:
        last[frame] = max(attempt, last.get(frame, 0))
    return last
