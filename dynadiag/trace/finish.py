"""Turns what was read into the finished `Run`: outcomes of frames, breaks known only from metrics, problems, notes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from dynadiag.model.compiled import ShapeFact
from dynadiag.model.location import Location
from dynadiag.model.run import (
    BREAK_ERRORS,
    LIMIT_ERRORS,
    SOFT_ERRORS,
    UNFINISHED,
    BreakEvent,
    Frame,
    Outcome,
    Problem,
    RecompileEvent,
    Run,
    Symbol,
)
from dynadiag.trace.break_text import parse_reason
from dynadiag.trace.builders import FrameBuilder, RunBuilder
from dynadiag.trace.sources import Sources
from dynadiag.trace.stacks import printed_stack

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
