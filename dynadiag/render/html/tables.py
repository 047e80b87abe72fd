"""The tables and bars of a page: versions, frames, compile time, environment, and the sections that all renderers share."""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from dynadiag.facts.wording import rank_text
from dynadiag.model.location import Location
from dynadiag.model.report import Recompile, Report
from dynadiag.model.run import Frame
from dynadiag.render import wording
from dynadiag.render.completeness import completeness
from dynadiag.render.document import Cell, Section, Tone, without_empty
from dynadiag.render.sanitise import clean
from dynadiag.render.sections import Detail, sections

ROWS_AT_MOST = 300
BARS_AT_MOST = 40
OURS = re.compile(r"[a-z]{1,2}\d{1,9}(?:\.\d{1,9})?\Z")


def own_id(name: str, kind: str) -> str:
    """An id of ours as an anchor; what is none becomes one that nothing points to."""
    return name if OURS.match(name) else f"{kind}-other"


def matrices(report: Report) -> Iterator[dict[str, Any]]:
    """By function a row for each version and a column for each value that changed: the changed cells are marked.

    Of the first version only what the first recompile found changed is known; a cell is empty where the record says nothing.
    """
    groups: dict[tuple[int, ...], list[Recompile]] = defaultdict(list)
    known: dict[tuple[int, ...], list[Frame]] = defaultdict(list)
    for frame in report.run.frames:
        known[_code_of(frame)].append(frame)
    for recompile in report.recompiles:
        found = report.run.frame(recompile.frame)
        groups[(-1,) if found is None else _code_of(found)].append(recompile)
    for key, versions in list(groups.items())[:40]:
        sources = list(dict.fromkeys(change.source for version in versions for change in version.changed))[:12]
        if not sources:
            continue
        words = _words(report, versions)
        frames = known.get(key, [])
        name = wording.frame_name(frames[0].name if frames else None)
        rows = [_version(item, report, sources) for item in versions[:ROWS_AT_MOST]]
        if len(frames) > 1 and frames[1].id == versions[0].frame:
            before = {change.source: clean(wording.value_words(change.old or "?"), limit=60) for change in versions[0].changed}
            cells = [_cell_of(_version_name(report, frames[0].id)), *(_cell_of(before.get(source, "")) for source in sources)]
            rows.insert(0, {"id": "", "cells": cells})
        headings = ("version", *(clean(words.get(text, text), limit=80) for text in sources))
        columns = [{"heading": text, "numeric": False} for text in headings]
        yield {"title": f"{name}: {wording.plural(len(versions), 'recompile')} ({versions[0].frame})", "columns": columns, "rows": rows}


def _words(report: Report, versions: Sequence[Recompile]) -> Mapping[str, str]:
    """By source what the table of recompiles calls a value of Python's stack (`___stack0`), where it has just one name for it."""
    wanted = {version.id: [change for change in version.changed if "___stack" in change.source] for version in versions}
    found: dict[str, set[str]] = defaultdict(set)
    for row in report.transitions:
        for change in (change for name in row.recompiles for change in wanted.get(name, ())):
            if change.kind == row.kind and "computed before the" in row.source:
                found[change.source].add(row.source)
    return {source: next(iter(names)) for source, names in found.items() if len(names) == 1}


def _code_of(frame: Frame) -> tuple[int, ...]:
    """What all versions of one compiled code object have in common."""
    return tuple(-1 if part is None else part for part in (frame.key.process, frame.key.epoch, frame.key.frame, frame.key.autograd))


def _version_name(report: Report, frame_id: str) -> str:
    frame = report.run.frame(frame_id)
    return frame_id if frame is None else f"{frame.id} [{frame.key.text}]"


def _version(recompile: Recompile, report: Report, sources: Sequence[str]) -> dict[str, Any]:
    changes = {change.source: change for change in recompile.changed}
    cells = [{"parts": [_part(f"{_version_name(report, recompile.frame)} {recompile.id}", code=True)], "numeric": False, "changed": False}]
    for source in sources:
        change = changes.get(source)
        values = [] if change is None else [clean(wording.value_words(text or "?"), limit=60) for text in (change.old, change.new)]
        cells.append({"parts": [_part(" → ".join(values))], "numeric": False, "changed": change is not None})
    return {"id": own_id(recompile.id, "r"), "cells": cells}


def _part(text: str, *, code: bool = False, before: str = "", href: str = "", tone: Tone = "plain") -> dict[str, Any]:
    return {"text": text, "code": code, "before": before, "href": href, "tone": "" if tone == "plain" else tone}


def bars(report: Report) -> dict[str, Any] | None:
    """One bar a frame, in the order of compilation, as long as its compile time; what restarts threw away in another colour."""
    time = report.compile_time
    if time is None or not time.frames or not time.total_s:
        return None
    longest = max(element.total_s for element in time.frames) or 1.0
    shown = sorted(time.frames, key=lambda entry: -entry.total_s)[:BARS_AT_MOST]
    order = {frame.id: number for number, frame in enumerate(report.run.frames)}
    rows = []
    for number, frame_time in enumerate(sorted(shown, key=lambda one: order.get(one.frame, 0))):
        phases = sorted(frame_time.phases.items(), key=lambda item: -item[1])[:8]
        spent = ", ".join(f"{clean(name, limit=40)} {wording.seconds(value)}" for name, value in phases)
        label = wording.frame_label(report, frame_time.frame)
        rows.append(
            {
                "y": number * 20,
                "name": label if len(label) <= 46 else label[:45] + "…",
                "tip": f"{label}: {spent}",
                "width": round(400 * frame_time.total_s / longest, 1),
                "lost": round(400 * min(frame_time.thrown_away_s or 0, frame_time.total_s) / longest, 1),
                "said": wording.seconds(frame_time.total_s),
            }
        )
    lost = f"; {wording.seconds(time.thrown_away_s)} of it thrown away by restarts" if time.thrown_away_s else ""
    left = len(time.frames) - len(shown)
    said = f"{wording.seconds(time.total_s)} in all{lost}." + (
        f" The {BARS_AT_MOST} longest of {len(time.frames):,} are drawn." if left else ""
    )
    return {"said": said, "lost": bool(time.thrown_away_s), "rows": rows, "width": 820, "height": len(rows) * 20 + 4}


def _frames(report: Report) -> dict[str, Any]:
    """Each compilation of a frame: how it ended, in which time, with how many guards."""
    frames = report.run.frames[:ROWS_AT_MOST]
    spent = {frame_time.frame: frame_time.total_s for frame_time in report.compile_time.frames} if report.compile_time else {}
    several = len({item.key.process for item in frames}) > 1
    rows = []
    for frame in frames:
        time = wording.seconds(spent[frame.id]) if frame.id in spent else ""
        place = "" if frame.file is None else wording.place(Location(frame.file, frame.line), wording.base_folder(report.run))
        guards = f"{frame.guards.count:,}" if frame.guards else ""
        rank = [rank_text(report.run, (frame.key.process,)) or "not known"] if several else []
        rows.append(
            plain_row(frame.id, *rank, frame.key.text, wording.frame_name(frame.name), frame.outcome, place, time, guards, name=frame.id)
        )
    headings = ("id", *(["process"] if several else []), "compile id", "function", "outcome", "begins at", "compile time", "guards")
    left = len(report.run.frames) - len(frames)
    return {
        "anchor": "frames",
        "title": "Frames",
        "said": wording.frames_count(report),
        "lines": [],
        "columns": [{"heading": name, "numeric": False} for name in headings],
        "rows": rows,
        "hidden": f"{left:,} more in report.json" if left else "",
        "closing": "",
        "pictures": [],
    }


def tables(report: Report) -> list[dict[str, Any]]:
    """The frames, and the sections of the other renderers but those that the page shows in its own way."""
    detail = Detail(base=wording.base_folder(report.run), verbose=True, show_free=True)
    listed = (section for section in sections(report, detail) if section.title not in ("Captured graphs", "Compile time"))
    found = [section_table(replace(item, as_entries=False), f"table-{number}") for number, item in enumerate(listed)]
    return [*found, *([_frames(report)] if report.run.frames else [])]


def section_table(section: Section, anchor: str, *, name: str = "report.json") -> dict[str, Any]:
    """The section with its texts cleaned and its first rows; `name` is the file that has the others."""
    shown = section.items[:ROWS_AT_MOST]
    cells = [section.row(item) for item in shown]
    plain = [["x" if cell else "" for cell in row] for row in cells]
    columns, _ = without_empty(section.columns, plain) if plain else ([], [])
    used = range(len(section.columns)) if section.as_entries else [at for at, column in enumerate(section.columns) if column in columns]
    left = len(section.items) - len(shown)
    return {
        "anchor": anchor,
        "title": section.title,
        "said": clean(section.said, limit=2000),
        "lines": [clean(line, limit=2000) for line in section.lines],
        "columns": [section.columns[at] for at in used],
        "rows": [{"id": _row_id(row), "cells": [_cell(row[at], numeric=section.columns[at].numeric) for at in used]} for row in cells],
        "hidden": f"{left:,} more in {name}" if left else "",
        "closing": clean(section.closing),
        "pictures": [
            {"alt": clean(alt), "source": f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"}
            for svg, alt in section.pictures
        ],
    }


def linked(table: dict[str, Any], anchors: Set[str]) -> dict[str, Any]:
    """The table with links only to what is in the page."""

    def cell(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "parts": [part if part["href"][1:] in anchors else {**part, "href": ""} for part in record["parts"]]}

    return {
        **table,
        "rows": [{**row, "cells": [cell(item) if "plain" not in item else item for item in row["cells"]]} for row in table["rows"]],
    }


def _row_id(row: Sequence[Cell]) -> str:
    """The id of the entry that the row is about, as an anchor, where the first cell is one."""
    text = row[0][0].text if row and row[0] and row[0][0].code else ""
    return text if OURS.match(text) else ""


def _cell(cell: Cell, *, numeric: bool = False) -> dict[str, Any]:
    parts = []
    for number, part in enumerate(cell):
        text = clean(part.text, limit=part.limit)
        href = f"#{text}" if part.code and OURS.match(text) and text[0] in "bg" else ""
        parts.append(_part(text, code=part.code, before=part.before if number else "", href=href, tone=part.tone))
    return {"parts": parts, "numeric": numeric, "changed": False}


def _pairs(title: str, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return plain_table(title, ("name", "value"), pairs)


def plain_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> dict[str, Any]:
    """A table of plain texts."""
    columns = [{"heading": name, "numeric": False} for name in headings]
    return {"title": title, "columns": columns, "rows": [plain_row(*row) for row in rows]}


def plain_row(*texts: str, name: str = "") -> dict[str, Any]:
    """A row of plain texts; `name` is its anchor."""
    return {"id": name if OURS.match(name) else "", "cells": [_cell_of(text) for text in texts]}


def _cell_of(text: str) -> dict[str, Any]:
    """A cell of one plain text, which a template may show without looking at its parts."""
    shown = clean(text, limit=400)
    return {"parts": [_part(shown)], "plain": shown, "numeric": False, "changed": False}


def environment(report: Report) -> dict[str, Any]:
    """What ran, and how much of it was recorded."""
    info, facts = report.run.info, wording.environment(report.run.processes)
    complete, why = completeness(report.run)
    pairs = {
        "command": wording.command(report),
        "working directory": info.cwd,
        "started": info.started_at,
        "ended": wording.ending(report),
        "torch": facts.torch,
        "Python": facts.python,
        "device": facts.device,
        "recorded by": f"dynadiag {info.dynadiag}" if info.dynadiag else None,
        "complete": "yes" if complete else why,
        "records": f"{sum(process.records for process in report.run.processes):,}",
        "ranks": str(len(facts.ranks)) if facts.ranks else None,
    }
    return _pairs("Environment", ((name, value or "not known") for name, value in pairs.items() if name != "ranks" or value))


def options(report: Report) -> dict[str, Any]:
    """The options that were not at their defaults, of the first process that has some."""
    config = next((process.config for process in report.run.processes if process.config), {})
    options = [(f"{area}.{name}", str(value)) for area, names in config.items() for name, value in sorted(names.items())]
    return _pairs("Options", [option for option in options if option != ("torch.grad_mode", "True")][:ROWS_AT_MOST])
