"""What is known of single compilations: under which stack, with which symbolic shapes, what the caches said, torch's own metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from dynadiag.facts.guard_sources import readable
from dynadiag.facts.user_frames import callers, is_generated, is_torchs_file, own_frame
from dynadiag.model.location import Location
from dynadiag.model.report import Report
from dynadiag.model.run import CompileMetrics, Frame
from dynadiag.render import wording
from dynadiag.render.html.tables import OURS, ROWS_AT_MOST, plain_table
from dynadiag.render.html.timeline import PROCESSES_AT_MOST, WIDTH, process_name
from dynadiag.render.sanitise import clean

NODES_AT_MOST = 1500
DEEPEST = 24


# -- the stack trie


@dataclass(slots=True)
class _Place:
    """A line of a stack: what was called from it, and the compilations that began under it."""

    location: Location | None
    inside: dict[tuple[str, int | None, str | None], _Place] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)


def stacks(report: Report) -> dict[str, Any] | None:
    """All compilations below the stack that led to them; lines of torch's own are left out."""
    root, nodes, left = _Place(None), 0, 0
    for frame in report.run.frames:
        at = root
        for place in callers(frame)[-200:]:
            if is_torchs_file(place.file) or is_generated(place):
                continue
            key = (place.file, place.line, place.function)
            if key not in at.inside:
                nodes += 1
                if nodes > NODES_AT_MOST:
                    break
                at.inside[key] = _Place(place)
            at = at.inside[key]
        if nodes > NODES_AT_MOST:
            left += 1
        else:
            at.frames.append(frame)
            nodes += 1
    if not root.inside:
        return None
    said = f"{left:,} more compilations are in report.json, with their stacks." if left else ""
    linked = frozenset(frame.id for frame in report.run.frames[:ROWS_AT_MOST] if OURS.match(frame.id))
    return {"html": Markup("").join(_stack_list(root, report, linked)), "left": said}


def _stack_list(node: _Place, report: Report, linked: frozenset[str], depth: int = 0) -> Iterator[Markup]:
    yield Markup('<ul class="tree">')
    for frame in node.frames:
        label = Markup.escape(wording.frame_label(report, frame.id))
        if frame.id in linked:
            label = Markup('<a href="#{}">{}</a>').format(frame.id, label)
        yield Markup('<li><span class="chip plain">{}</span> {}</li>\n').format(clean(frame.outcome, limit=20), label)
    for item in node.inside.values():
        lines = [item]
        while not lines[-1].frames and len(lines[-1].inside) == 1 and len(lines) < 200:
            lines.append(next(iter(lines[-1].inside.values())))
        yield Markup("<li>{}").format(Markup("<br>").join(_stack_line(line.location, report) for line in lines))
        if depth < DEEPEST:
            yield from _stack_list(lines[-1], report, linked, depth + 1)
        else:
            yield Markup("<p>Deeper calls are in report.json.</p>")
        yield Markup("</li>\n")
    yield Markup("</ul>")


def _stack_line(place: Location | None, report: Report) -> Markup:
    code = "" if place is None or not place.code else clean(place.code, limit=160)
    return Markup("<span class='dim'>{}</span> <code>{}</code>").format(wording.place(place, wording.base_folder(report.run)), code)


# -- symbolic shapes


def shapes(report: Report) -> list[dict[str, Any]]:
    """The symbols of each compilation, where they became constants, and the conditions that the code relies on."""
    facts = report.run.shape_facts
    constants = {(fact.frame, fact.text): fact for fact in facts if fact.kind == "specialized"}
    symbols = [
        (
            wording.frame_label(report, symbol.frame),
            symbol.symbol,
            readable(symbol.source),
            symbol.value or "not known",
            symbol.range or "not known",
            _constant(report, symbol.specialized, constants.get((symbol.frame, symbol.symbol))),
        )
        for symbol in report.run.symbols
    ]
    known = {(item.frame, item.symbol) for item in report.run.symbols}
    rest = [
        (
            wording.frame_label(report, fact.frame),
            fact.text,
            ", ".join(map(readable, fact.sources)) or ("depends on data" if fact.kind == "unbacked" else "not known"),
            "none: it depends on data" if fact.kind == "unbacked" else "not known",
            fact.value if fact.kind == "unbacked" and fact.value else "not known",
            _constant(report, True, fact) if fact.kind == "specialized" else _made(report, fact.stack),
        )
        for fact in facts
        if fact.kind != "guard" and (fact.frame, fact.text) not in known
    ]
    headings = ("compilation", "symbol", "of", "value then", "range", "became a constant, or made, at")
    conditions = [
        (wording.frame_label(report, fact.frame), fact.text, _asked(report, fact.stack)) for fact in facts if fact.kind == "guard"
    ]
    found = (
        _cut("Symbols", headings, [*symbols, *rest]),
        _cut("Conditions on symbols", ("compilation", "condition", "asked for at"), conditions),
    )
    return [record for record in found if record["rows"]]


def _cut(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    left = len(rows) - ROWS_AT_MOST
    return {**plain_table(title, headings, rows[:ROWS_AT_MOST]), "left": f"{left:,} more rows are in the log." if left > 0 else ""}


def _constant(report: Report, specialized: bool, fact: Any) -> str:
    if not specialized:
        return ""
    if fact is None:
        return "it did; the log does not say where"
    return f"{fact.value} at {_asked(report, fact.stack)}{f' ({fact.why})' if fact.why else ''}"


def _made(report: Report, stack: Sequence[Location]) -> str:
    return f"made at {_asked(report, stack)}" if stack else "made: no line recorded"


def _asked(report: Report, stack: Sequence[Location]) -> str:
    """The innermost own line of a user stack with its code; torch records none for what its back end asks for."""
    place = own_frame(list(stack), report.run) or (stack[-1] if stack else None)
    if place is None:
        return "no line of the program"
    return f"{wording.place(place, wording.base_folder(report.run))}{f': {place.code}' if place.code else ''}"


# -- caches and metrics


def caches(report: Report) -> dict[str, Any] | None:
    """The look-ups in compile caches by compilation, in the order of the log."""
    counts = Counter((event.frame, event.cache, event.result, event.why) for event in report.run.caches)
    rows = [
        ("none" if frame is None else wording.frame_label(report, frame), cache.replace("_", " "), result, f"{count:,}", why or "")
        for (frame, cache, result, why), count in counts.items()
    ]
    return _cut("Compile caches", ("compilation", "cache", "result", "times", "why it was passed by"), rows) if rows else None


_METRICS: tuple[tuple[str, str], ...] = (
    ("total_s", "in all"),
    ("dynamo_s", "Dynamo"),
    ("aot_s", "AOTAutograd with back end"),
    ("inductor_s", "Inductor"),
    ("code_gen_s", "code generation"),
    ("backward_s", "backward"),
    ("before_restart_s", "before the last restart"),
    ("graph_ops", "calls"),
    ("graph_nodes", "nodes"),
    ("graph_inputs", "inputs"),
    ("guard_count", "guards (torch's count)"),
    ("shape_guard_count", "guards on shapes"),
    ("guard_latency_us", "one check, µs"),
    ("cache_size", "versions before"),
    ("accumulated_cache_size", "versions of all objects before"),
    ("fail_type", "ended by"),
)


def metrics(report: Report) -> dict[str, Any] | None:
    """Torch's `compilation_metrics`, a row for each compilation; columns without a value are left out."""
    known = [(frame, frame.metrics) for frame in report.run.frames if frame.metrics is not None]
    used = [(name, heading) for name, heading in _METRICS if any(getattr(found, name) is not None for _, found in known[:ROWS_AT_MOST])]
    if not used:
        return None
    rows = [(wording.frame_label(report, frame.id), *(_value(found, name) for name, _ in used)) for frame, found in known]
    return _cut("Metrics", ("compilation", *(heading for _, heading in used)), rows)


def _value(found: CompileMetrics, name: str) -> str:
    value = getattr(found, name)
    if value is None:
        return ""
    if name.endswith("_s"):
        return wording.seconds(value)
    return wording.number(value) if isinstance(value, int | float) else str(value)


# The calls of compiled functions in a page: in which of them something was compiled, compiled again, or left to eager.

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
