"""Compile time in a page: when each compilation ran, and a flame graph of what they did, each with a table that says the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynadiag.model.compiled import PhaseSpan
from dynadiag.model.report import Report
from dynadiag.render import wording
from dynadiag.render.html.tables import plain_table
from dynadiag.render.sanitise import clean

WIDTH = 1000
BARS_AT_MOST = 400
PROCESSES_AT_MOST = 16
DEEPEST = 12
_ROW, _GAP = 18, 2
_STEP = 36  # a bar with the name of its process above it
_LEAST = 1.0
_LETTER = 6.4
_KINDS = {"first": "first compilation", "again": "recompile", "gone": "gave no code (skipped or failed)"}


@dataclass(slots=True)
class _Compilation:
    """The phases of one frame without a longer pause: from the first begin to the last end (a backward is compiled later)."""

    frame: str | None
    process: int
    began: float
    ended: float
    spans: list[PhaseSpan] = field(default_factory=list)


def times(report: Report) -> dict[str, Any] | None:
    """The timeline and the flame graph; None for a log without timed phases."""
    found = list(_compilations(report))
    if not found:
        return None
    recompiled = {recompile.frame for recompile in report.recompiles}
    gone = {frame.id for frame in report.run.frames if frame.outcome in ("skipped", "failed")}
    kinds = ["gone" if item.frame in gone else "again" if item.frame in recompiled else "first" for item in found]
    return {"timeline": _timeline(report, found, kinds), "flame": _flame(report, found)}


def _compilations(report: Report) -> Iterator[_Compilation]:
    """Each run of phases that begins at the outermost level, by process and time; what belongs to no frame is left out."""
    spans = sorted(report.run.spans, key=lambda span: (span.process, span.began_us, -span.took_us))
    open_one: _Compilation | None = None
    for span in spans:
        end = span.began_us + span.took_us
        if open_one is not None and span.process == open_one.process and span.began_us < open_one.ended:
            open_one.spans.append(span)
            continue
        if open_one is not None and open_one.frame is not None:
            yield open_one
        open_one = _Compilation(span.frame, span.process, span.began_us, end, [span])
    if open_one is not None and open_one.frame is not None:
        yield open_one


# -- the timeline


def _timeline(report: Report, found: Sequence[_Compilation], kinds: Sequence[str]) -> dict[str, Any]:
    start = min(element.began for element in found)
    length = max(entry.ended for entry in found) - start or 1.0
    rows = list(dict.fromkeys(one.process for one in found))[:PROCESSES_AT_MOST]
    row_of = {process: number for number, process in enumerate(rows)}
    shown = [(one, kind) for one, kind in zip(found, kinds, strict=True) if one.process in row_of]
    longest = sorted(shown, key=lambda pair: pair[0].began - pair[0].ended)[:BARS_AT_MOST]
    bars, table = [], []
    for item, kind in sorted(longest, key=lambda pair: (pair[0].began, row_of[pair[0].process])):
        label = f"{wording.frame_label(report, item.frame)}{_backward(item)}"
        at, took = (item.began - start) / 1e6, (item.ended - item.began) / 1e6
        place = {"x": round(WIDTH * (item.began - start) / length, 1), "y": row_of[item.process] * _STEP + 16}
        width = max(1.5, round(WIDTH * (item.ended - item.began) / length, 1))
        tip = f"{label}: {_KINDS[kind]}, at {at:.2f} s, took {wording.seconds(took)}"
        bars.append({**place, "width": width, "height": _ROW, "kind": kind, "tip": tip})
        table.append((label, process_name(report, item.process), f"{at:.2f} s", wording.seconds(took), _KINDS[kind]))
    left = len(found) - len(bars)
    headings = ("compilation", "process", "began at", "took", "what")
    return {
        "bars": bars,
        "labels": [{"y": number * _STEP + 12, "text": process_name(report, process)} for process, number in row_of.items()],
        "ticks": [{"x": round(WIDTH * part / 4, 1), "text": f"{length * part / 4e6:.1f} s"} for part in range(5)],
        "height": len(rows) * _STEP + 30,
        "kinds": [(kind, words) for kind, words in _KINDS.items() if kind in kinds],
        "said": _length_words(found, length / 1e6),
        "left": f"{left:,} shorter compilations, or those of other processes, are not drawn; `dynadiag explain RUN --trace FILE` has all."
        if left
        else "",
        "table": plain_table("Compilations in order", headings, table),
    }


def _length_words(found: Sequence[_Compilation], length: float) -> str:
    backwards = sum(bool(_backward(item)) for item in found)
    later = f" and {wording.plural(backwards, 'backward')} compiled later" if backwards else ""
    return (
        f"{wording.plural(len(found) - backwards, 'compilation')}{later}, in {wording.seconds(length)} from the first to the last. "
        "When calls began and how long they took is not recorded: the gaps are whatever else the program did."
    )


def _backward(item: _Compilation) -> str:
    return ", backward" if item.spans[0].name == "entire_backward_compile" else ""


def process_name(report: Report, index: int) -> str:
    """`rank 1, pid 4243` of a process by its number."""
    process = report.run.processes[index] if 0 <= index < len(report.run.processes) else None
    if process is None:
        return f"process {index}"
    rank = f"rank {process.rank}" if process.rank is not None else ""
    pid = f"pid {process.pid}" if process.pid is not None else f"process {index}"
    return f"{rank}, {pid}" if rank else pid


# -- the flame graph


@dataclass(slots=True)
class _Flame:
    name: str
    total: float = 0.0
    count: int = 0
    inside: dict[str, _Flame] = field(default_factory=dict)


def _flame(report: Report, found: Sequence[_Compilation]) -> dict[str, Any]:
    """Phases of the same name below the same phases added up, by function: as wide as the time that they took."""
    root = _Flame("")
    names = {frame.id: clean(wording.frame_name(frame.name), limit=60) for frame in report.run.frames}
    for element in found:
        took = element.ended - element.began
        root.total += took
        _add(_entry(root, names.get(element.frame or "", "?"), took), element.spans)
    boxes: list[dict[str, Any]] = []
    _place_boxes(root, 0.0, 0, WIDTH / (root.total or 1.0), boxes)
    phases: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for phase in report.run.phases:
        if phase.frame is not None:
            sums = phases[phase.name]
            sums[0] += phase.total_s
            sums[1] += phase.self_s
            sums[2] += phase.count
    ordered = sorted(phases.items(), key=lambda item: -item[1][1])[:60]
    table = [
        (clean(name, limit=100), wording.seconds(total), wording.seconds(own), f"{count:,.0f}") for name, (total, own, count) in ordered
    ]
    return {
        "boxes": boxes,
        "height": (max((box["level"] for box in boxes), default=0) + 1) * (_ROW + _GAP),
        "table": plain_table("Phases by their own time", ("phase", "in all", "without phases inside it", "times"), table),
    }


def _entry(above: _Flame, name: str, took: float) -> _Flame:
    found = above.inside.setdefault(name, _Flame(name))
    found.total += took
    found.count += 1
    return found


def _add(top: _Flame, spans: Sequence[PhaseSpan]) -> None:
    """The spans of one compilation, in the order of their begin, below what contains them."""
    path: list[tuple[_Flame, float]] = [(top, float("inf"))]
    for span in spans:
        end = span.began_us + span.took_us
        while len(path) > 1 and path[-1][1] <= span.began_us:
            path.pop()
        if len(path) <= DEEPEST:
            path.append((_entry(path[-1][0], span.name, span.took_us), end))


def _place_boxes(node: _Flame, x: float, level: int, scale: float, boxes: list[dict[str, Any]]) -> None:
    for item in sorted(node.inside.values(), key=lambda inner: -inner.total):
        width = item.total * scale
        if width < _LEAST or len(boxes) >= 4 * BARS_AT_MOST or level > DEEPEST:
            continue
        name = clean(item.name, limit=100)
        letters = int((width - 6) / _LETTER)
        boxes.append(
            {
                "x": round(x, 1),
                "y": level * (_ROW + _GAP),
                "level": level,
                "width": round(max(0.5, width - 0.5), 1),
                "text": name if len(name) <= letters else f"{name[: letters - 1]}…" if letters > 4 else "",
                "tip": f"{name}: {wording.seconds(item.total / 1e6)}, {wording.plural(item.count, 'time')}",
                "tone": "frame" if level == 0 else f"tone{level % 3}",
            }
        )
        _place_boxes(item, x, level + 1, scale, boxes)
        x += width
