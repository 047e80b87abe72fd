"""What a recorded run of a candidate showed besides exceptions, as failures to compare: breaks, recompiles, fallbacks. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dynadiag import report, trace
from dynadiag.model import BreakEvent, Fallback, Location, Recompile, Run
from dynadiag.reduce.failure import Failure, without_accidents

KINDS = ("graph_break", "recompile", "fallback", "cudagraph_skip")


def phenomena(directory: Path) -> tuple[Failure, ...]:
    """Everything of these kinds that a run directory tells, in the order in which it happened, each signature once."""
    run = trace.load(directory)
    found = report.build(run)
    everything = [
        *map(_of_break, run.breaks),
        *map(_of_recompile, found.recompiles),
        *map(_of_fallback, found.fallbacks),
        *_cudagraph_skips(run),
    ]
    return tuple({one.signature(): one for one in reversed(everything)}.values())[::-1]


def _of_break(event: BreakEvent) -> Failure:
    """By its id and what Dynamo says of the place; a break without an id by its reason."""
    place = event.torch_frame or (event.stack[-1] if event.stack else None)
    what = f"{event.gb_id} {event.gb_type}" if event.gb_id else event.gb_type
    context = without_accidents(event.context or "")
    detail = "\n".join(filter(None, (what, _place(place), event.explanation, event.context, event.skip_reason)))
    return Failure(kind="graph_break", phase="trace", message=f"{what}\n{context}".strip(), detail=detail)


def _of_recompile(event: Recompile) -> Failure:
    """By the kinds of what changed: names and sizes change while a script shrinks."""
    kinds = sorted({change.kind for change in event.changed})
    said = ", ".join(kinds) or without_accidents("\n".join(event.reasons))
    detail = "\n".join(filter(None, (_place(event.own_frame), *event.reasons, *(f"{one.kind} of {one.source}" for one in event.changed))))
    return Failure(kind="recompile", phase="guards", message=f"changed: {said}", detail=detail)


def _of_fallback(event: Fallback) -> Failure:
    """By its kind; what torch says of it names functions, which go while a script shrinks."""
    detail = "\n".join(filter(None, (event.kind, _place(event.own_frame), event.reason)))
    return Failure(kind="fallback", phase=event.kind, message=event.kind, detail=detail)


def _cudagraph_skips(run: Run) -> Iterator[Failure]:
    for frame in run.frames:
        reason = frame.metrics.cudagraph_skip_reason if frame.metrics is not None else None
        if reason is not None and "mutat" in reason:
            yield Failure(kind="cudagraph_skip", phase="compile", message=without_accidents(reason.splitlines()[0]), detail=reason)


def _place(location: Location | None) -> str | None:
    if location is None:
        return None
    return f"{Path(location.file).name}:{location.line} {location.code or ''}".strip()
