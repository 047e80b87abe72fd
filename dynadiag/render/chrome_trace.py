"""The timed phases of a run in Chrome's trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dynadiag
from dynadiag.model.compiled import PhaseSpan
from dynadiag.model.report import Report
from dynadiag.model.run import Frame
from dynadiag.render import wording
from dynadiag.render.sanitise import clean


def dumps(report: Report) -> str:
    """The trace as JSON: a track for each process, times in microseconds from the first phase on."""
    start = min((span.began_us for span in report.run.spans), default=0.0)
    spans: dict[int, list[PhaseSpan]] = defaultdict(list)
    for span in report.run.spans:
        spans[span.process].append(span)
    numbers = _numbers(report)
    frames = {frame.id: frame for frame in report.run.frames}
    events: list[dict[str, Any]] = []
    for process, found in sorted(spans.items()):
        events += _process(report, process, numbers.get(process, process), found, start, frames)
    whole = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"written_by": f"dynadiag {dynadiag.__version__}"}}
    return json.dumps(whole, ensure_ascii=True, allow_nan=False)


def _numbers(report: Report) -> Mapping[int, int]:
    """By process its pid, or its number where pids are unknown or repeat (ranks of several machines)."""
    pids = Counter(process.pid for process in report.run.processes)
    own = all(count == 1 and pid is not None for pid, count in pids.items())
    return {process.index: process.pid if own and process.pid is not None else process.index for process in report.run.processes}


def _process(
    report: Report, process: int, number: int, spans: Sequence[PhaseSpan], start: float, frames: Mapping[str, Frame]
) -> Iterator[dict[str, Any]]:
    known = report.run.processes[process] if 0 <= process < len(report.run.processes) else None
    rank = None if known is None else known.rank
    pid = "" if known is None or known.pid is None else f" (pid {known.pid})"
    label = f"rank {rank}{pid}" if rank is not None else f"torch.compile{pid}"
    yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": label}}
    if rank is not None:
        yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": rank}}
    recompiles = {recompile.frame: recompile for recompile in report.recompiles}
    lanes = 0
    for span, lane in _lanes(spans):
        lanes = max(lanes, lane + 1)
        begin, end = (round(at - start, 3) for at in (span.began_us, span.began_us + span.took_us))
        where = {"pid": number, "tid": lane, "ts": begin}
        frame = frames.get(span.frame or "")
        name = clean(span.name, limit=200)
        yield {"ph": "X", "cat": "dynamo_timed", "name": name, "dur": round(end - begin, 3), **where, "args": _told(frame)}
        again = recompiles.pop(span.frame or "", None) if span.depth == 0 else None
        if again is not None:
            why = [clean(reason, limit=300) for reason in again.reasons[:3]]
            yield {"ph": "i", "s": "t", "cat": "recompile", "name": f"recompile {clean(again.id, limit=20)}", **where, "args": {"why": why}}
    for lane in range(lanes):
        name = "compilation" if lane == 0 else f"compilation at the same time ({lane + 1})"
        yield {"ph": "M", "name": "thread_name", "pid": number, "tid": lane, "args": {"name": name}}


def _told(frame: Frame | None) -> dict[str, str]:
    if frame is None:
        return {}
    return {
        "frame": frame.id,
        "compile_id": frame.key.text,
        "function": clean(wording.frame_name(frame.name), limit=200),
        "outcome": frame.outcome,
    }


def _lanes(spans: Sequence[PhaseSpan]) -> Iterator[tuple[PhaseSpan, int]]:
    """Each phase with the first track on which it lies inside what is open there; torch does not record which thread it was."""
    lanes: list[list[float]] = []
    for span in sorted(spans, key=lambda pair: (pair.began_us, -pair.took_us)):
        end = span.began_us + span.took_us
        for number in range(len(lanes) + 1):
            if number == len(lanes):
                lanes.append([])
            ends = lanes[number]
            while ends and ends[-1] <= span.began_us:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                yield span, number
                break
