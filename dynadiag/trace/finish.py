"""Turns what was read into the finished `Run`: outcomes of frames, breaks known only from metrics, problems, notes."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.model.run import (
    BREAK_ERRORS,
    LIMIT_ERRORS,
    SOFT_ERRORS,
    UNFINISHED,
    BreakEvent,
    Frame,
    Location,
    Outcome,
    Problem,
    RecompileEvent,
    Run,
    Symbol,
)
from dynadiag.trace.break_text import parse_reason
from dynadiag.trace.drafts import FrameDraft, RunDraft
from dynadiag.trace.sources import Sources

_LIMIT_TITLES = ("Dynamo recompile limit exceeded", "Dynamo cache limit exceeded", "cache_size_limit reached")


def finish(run: RunDraft, sources: Sources) -> Run:
    """The run as plain data."""
    _name_from_siblings(run)
    seen = {(problem.frame, problem.kind) for problem in run.problems}
    for draft in run.frames:
        _complete(run, draft, seen)
    return Run(
        info=sources.info,
        processes=tuple(process.done() for process in run.processes),
        frames=tuple(_frame(run, draft) for draft in run.frames),
        graphs=tuple(run.graphs),
        breaks=tuple(event for event in run.breaks if event is not None),
        recompiles=_recompiles(run),
        symbols=_symbols(run),
        phases=tuple(phase for process in run.processes for phase in process.clock.phases()),
        caches=tuple(run.caches),
        problems=tuple(run.problems),
        costs=tuple(run.costs),
        compile_calls=tuple(run.compile_calls),
        legacy=tuple(run.legacy),
        mutation_records=tuple(run.mutation_records),
        traced_inputs=tuple(run.traced_inputs),
        parity=tuple(run.parity),
        notes=(*(text if count == 1 else f"{text} ({count} times)" for text, count in run.notes.items()), *run.room.notes()),
        left_out=dict(run.room.left),
        site_prefixes=tuple(run.site_prefixes),
        blocks=run.blocks,
    )


def _complete(run: RunDraft, draft: FrameDraft, seen: set[tuple[str | None, str]]) -> None:
    """What is said of a frame only in its metrics: a recompile limit that was hit, a break that was raised (`fullgraph=True`)."""
    _flush_latency(draft)
    if _hit_limit(draft):
        _add_problem(run, draft, "recompile_limit", _why_failed(draft), seen)
    elif _fail_type(draft) in BREAK_ERRORS and not _events(run, draft):
        _add_raised_break(run, draft)
    elif (kind := _problem_kind(run, draft)) is not None:
        _add_problem(run, draft, kind, _why_failed(draft), seen)
    if _outcome(run, draft) == "skipped" and (_fail_type(draft) is None or _fail_type(draft) in SOFT_ERRORS):
        for position in draft.breaks:
            event = run.breaks[position]
            if event is not None and not event.skips_frame:
                run.breaks[position] = replace(event, skips_frame=True)


def _flush_latency(draft: FrameDraft) -> None:
    """Older torch prints the latency of the guards, but does not put it into the metrics."""
    if draft.latency_us is not None and draft.metrics is not None and draft.metrics.guard_latency_us is None:
        draft.metrics = replace(draft.metrics, guard_latency_us=draft.latency_us)


def _fail_type(draft: FrameDraft) -> str | None:
    return (draft.metrics.fail_type if draft.metrics else None) or draft.error_type


def _why_failed(draft: FrameDraft) -> str:
    return (draft.metrics.fail_reason if draft.metrics else None) or draft.error or ""


def _events(run: RunDraft, draft: FrameDraft) -> list[BreakEvent]:
    return [event for event in (run.breaks[position] for position in draft.breaks) if event is not None]


def _hit_limit(draft: FrameDraft) -> bool:
    return _fail_type(draft) in LIMIT_ERRORS or _why_failed(draft).startswith(_LIMIT_TITLES)


def _name_from_siblings(run: RunDraft) -> None:
    """A compilation that never started (a limit, a text log) has the code object of the other compilations of its frame."""
    named = {_code_key(draft): draft for draft in reversed(run.frames) if draft.name is not None}
    for draft in run.frames:
        other = named.get(_code_key(draft)) if draft.name is None and draft.key.frame is not None else None
        if other is not None:
            draft.name, draft.file, draft.line = other.name, other.file, other.line


def _code_key(draft: FrameDraft) -> tuple[int | None, ...]:
    return draft.key.process, draft.key.epoch, draft.key.frame, draft.key.autograd


def _problem_kind(run: RunDraft, draft: FrameDraft) -> str | None:
    failed = _fail_type(draft)
    if failed is None or failed in SOFT_ERRORS:
        return None
    if draft.suppressed:
        return "suppressed_error"
    return "backend_error" if failed == "BackendCompilerFailed" else "error"


def _add_problem(run: RunDraft, draft: FrameDraft, kind: str, text: str, seen: set[tuple[str | None, str]]) -> None:
    """Unless the recorder saw the same thing happen."""
    if (draft.id, kind) in seen:
        return
    place = (draft.metrics.fail_location if draft.metrics else None) or _code_place(draft)
    stack = (*_callers(draft), *draft.user_stack)
    problem = Problem(kind=kind, process=draft.key.process, text=text, frame=draft.id, location=place, stack=stack, record=draft.record)
    run.problems.append(problem)


def _callers(draft: FrameDraft) -> tuple[Location, ...]:
    return draft.callers or draft.stack


def _code_place(draft: FrameDraft) -> Location | None:
    return Location(draft.file, draft.line, draft.name) if draft.file else None


def _add_raised_break(run: RunDraft, draft: FrameDraft) -> None:
    """With `fullgraph=True` torch raises the break and records none: the exception is the break."""
    reason, second = parse_reason(_why_failed(draft))
    place = (draft.user_stack[-1] if draft.user_stack else None) or (draft.metrics.fail_location if draft.metrics else None)
    draft.breaks.append(len(run.breaks))
    run.breaks.append(
        BreakEvent(
            frame=draft.id,
            attempt=draft.attempts - 1,
            gb_id=reason.gb_id,
            gb_type=reason.gb_type,
            explanation=reason.explanation,
            hints=reason.hints,
            context=reason.context,
            stack=(*_callers(draft), *draft.user_stack) or ((place,) if place else ()),
            torch_frame=place or _code_place(draft),
            skip_reason=(f"{second.gb_type}: {second.explanation}" if second.explanation else second.gb_type) if second else None,
            source="metrics" if draft.metrics is not None and draft.metrics.fail_type else "exception",
            record=draft.record,
        )
    )


def _outcome(run: RunDraft, draft: FrameDraft) -> Outcome:
    """How a frame ended, from evidence, strongest first.

    1. An exception: `skipped` when torch lets it fall back (a break that was logged, the recompile limit, `suppress_errors`), else
       `failed`.
    2. `has_guarded_code` of the metrics: False is `skipped`; True is `broke` when a break was recorded, else `compiled` (also without a
       graph, when there was nothing to capture).
    3. Without metrics (a log that was cut, a text log): a break that was recorded, guards, or a graph where no frame has metrics.
    """
    events = _events(run, draft)
    if _fail_type(draft) is not None:
        return _outcome_of_error(run, draft, events)
    guarded = draft.metrics.has_guarded_code if draft.metrics else None
    if guarded is False or (guarded is None and any(event.skips_frame for event in events)) or (events and _left_unguarded(draft)):
        return "skipped"
    if events:
        return "broke"
    if guarded or draft.guards or draft.start is None or (draft.graphs and not _is_unfinished(run, draft)):
        return "compiled"
    return "failed"


def _left_unguarded(draft: FrameDraft) -> bool:
    """True for a break after which no code was made: torch 2.8 to 2.10 say `has_guarded_code` of such a frame too, but count no guards."""
    metrics = draft.metrics
    if metrics is None or draft.guards or draft.graphs:
        return False
    return bool(metrics.has_guarded_code) and metrics.total_s is not None and metrics.guard_count is None and metrics.graph_ops is None


def _is_unfinished(run: RunDraft, draft: FrameDraft) -> bool:
    """True for a frame without metrics in a process that has them for others, or that we recorded: the back end had not come back."""
    process = run.processes[draft.key.process]
    return draft.metrics is None and ("argv" in process.facts or process.has_metrics)


def _outcome_of_error(run: RunDraft, draft: FrameDraft, events: list[BreakEvent]) -> Outcome:
    failed = _fail_type(draft)
    if failed in LIMIT_ERRORS and str(failed).startswith("FailOn"):
        return "failed"
    if _hit_limit(draft) or (draft.suppressed and failed not in BREAK_ERRORS):
        return "skipped"
    logged = any(event.source in ("artifact", "text") for event in events)
    if failed in SOFT_ERRORS and (logged or failed not in BREAK_ERRORS or draft.id in run.left_silently):
        return "skipped"
    return "failed"


def _frame(run: RunDraft, draft: FrameDraft) -> Frame:
    outcome = _outcome(run, draft)
    cut = outcome == "failed" and _fail_type(draft) is None
    return Frame(
        id=draft.id,
        key=draft.key,
        attempts=draft.attempts,
        name=draft.name,
        file=draft.file,
        line=draft.line,
        outcome=outcome,
        stack=draft.stack,
        callers=draft.callers,
        metrics=draft.metrics,
        guards=draft.guards,
        error=UNFINISHED if cut else draft.error,
        record=draft.record,
    )


def _recompiles(run: RunDraft) -> tuple[RecompileEvent, ...]:
    """The events with the stack of their frame: torch writes the reasons before the frame starts."""
    stacks = {draft.id: _callers(draft) for draft in run.frames}
    return tuple(event if event.stack else replace(event, stack=stacks.get(event.frame, ())) for event in run.recompiles)


def _symbols(run: RunDraft) -> tuple[Symbol, ...]:
    """The symbols of each frame's last attempt: an attempt that is thrown away makes them again."""
    last: dict[str, int] = {}
    for frame, attempt, _ in run.symbols:
        last[frame] = max(attempt, last.get(frame, 0))
    return tuple(found for (frame, attempt, _), found in run.symbols.items() if attempt == last[frame])
