"""The calls of compiled functions in a page: in which of them something was compiled, compiled again, or left to eager."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynadiag.model.report import Report
from dynadiag.model.run import Frame
from dynadiag.render import wording
from dynadiag.render.html.tables import plain_table
from dynadiag.render.html.timeline import PROCESSES_AT_MOST, WIDTH, process_name

MARKS_AT_MOST = 400
_TRACK, _STEP, _ABOVE = 16, 38, 18
_WORST = ("failed", "gone", "again", "first")
_KINDS = {"first": "compiled for the first time", "again": "recompiled", "gone": "left to eager", "failed": "compilation failed"}


def calls(report: Report) -> dict[str, Any] | None:
    """One track a process, as long as its calls, with a mark where Dynamo was at work in one; None where they were not counted."""
    counted = {process.index: process.calls for process in report.run.processes if process.calls}
    kinds = _kinds(report)
    events = {index: _events(report, index, total, kinds) for index, total in counted.items()}
    shown = [index for index in counted if events[index]][:PROCESSES_AT_MOST]
    if not shown:
        return None
    tracks: list[dict[str, Any]] = []
    table = []
    for number, index in enumerate(shown):
        total, y = counted[index] or 1, number * _STEP + _ABOVE
        width = max(3.0, WIDTH / total - 1)
        marks = []
        for call, found in list(events[index].items())[:MARKS_AT_MOST]:
            kind = next(text for text in _WORST if any(kind == text for kind, _ in found))
            told = "; ".join(f"{_KINDS[kind]}: {name}" for kind, name in found)
            x = min(WIDTH - width, (call - 1) * WIDTH / total)
            marks.append({"x": round(x, 1), "width": round(width, 1), "kind": kind, "tip": f"call {call:,} of {total:,}: {told}"})
            table.append((process_name(report, index), f"{call:,} of {total:,}", told))
        name = f"{process_name(report, index)}: {wording.plural(total, 'call')}"
        tracks.append({"y": y, "name": name, "marks": marks, "left": max(0, len(events[index]) - MARKS_AT_MOST)})
    used = {mark["kind"] for track in tracks for mark in track["marks"]}
    return {
        "tracks": tracks,
        "height": len(shown) * _STEP + 2,
        "track": _TRACK,
        "kinds": [(kind, words) for kind, words in _KINDS.items() if kind in used],
        "left": sum(track["left"] for track in tracks),
        "table": plain_table("Calls in which Dynamo was at work", ("process", "call", "what happened"), table),
    }


def _kinds(report: Report) -> Mapping[str, str]:
    """What became of each frame, by its id; a failure that torch suppressed left it to eager."""
    kinds = {frame.id: {"skipped": "gone", "failed": "failed"}.get(frame.outcome, "first") for frame in report.run.frames}
    again = {recompile.frame: "again" for recompile in report.recompiles if kinds.get(recompile.frame) == "first"}
    return (
        kinds | again | {fallback.frame: "gone" for fallback in report.fallbacks if fallback.kind != "disabled" and fallback.frame in kinds}
    )


def _events(report: Report, process: int, total: int, kinds: Mapping[str, str]) -> Mapping[int, Sequence[tuple[str, str]]]:
    """By call what happened in it, each function once."""
    found: dict[int, dict[tuple[str, str], None]] = defaultdict(dict)
    for call, frame in _in_calls(report, process, total):
        found[call][kinds[frame.id], wording.frame_label(report, frame.id)] = None
    return {call: tuple(found[call]) for call in sorted(found)}


def _in_calls(report: Report, process: int, total: int) -> Iterator[tuple[int, Frame]]:
    for frame in report.run.frames:
        if frame.key.process == process and frame.call is not None and 0 < frame.call <= total:
            yield frame.call, frame
