"""The comparison as text, Markdown, JSON and a page. Texts from logs are cleaned here, and escaped as each format wants it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import dynadiag
from dynadiag.diff.result import Change, DiffResult, GraphChange, Place
from dynadiag.facts.wording import plural
from dynadiag.render import finite_json
from dynadiag.render.html import page
from dynadiag.render.markdown_text import code, prose, table
from dynadiag.render.sanitise import clean, clean_code, json_escaped

_MOST_SHOWN = 20
_NAMES = {
    "break": ("Graph breaks", "graph break"),
    "recompile": ("Recompiles", "recompiled function"),
    "fallback": ("Fallbacks to eager", "fallback"),
    "mutation": ("Mutations with a cost", "mutation"),
    "other": ("Other findings", "finding"),
}
_MARKS = {"gained": "+", "lost": "-", "worse": "!", "better": "~", "changed": "~", "moved": "="}
_COUNTS = {
    "graphs": "graphs",
    "graph_break_sites": "graph breaks",
    "graph_break_events": "break events",
    "recompiles": "recompiles",
    "fallbacks": "fallbacks to eager",
    "mutations": "mutations",
    "frames": "compilations",
    "frames_skipped": "skipped frames",
}


class Part(NamedTuple):
    """A section: its title, a sentence, and its rows, each a mark, a text and perhaps a line of source."""

    title: str
    said: str
    rows: Sequence[tuple[str, str, str]]


def headline(result: DiffResult) -> str:
    """Whether the new run is worse, on one line."""
    if result.regressions:
        gained: Counter[str] = Counter(one.kind for one in result.regressions if one.what == "gained")
        more = sum(one.what == "worse" for one in result.regressions)
        told = [f"{', '.join(plural(gained[kind], noun) for kind, (_, noun) in _NAMES.items() if gained[kind])} came"] if gained else []
        told += [f"{plural(more, 'function')} recompiled more often"] if more else []
        return f"Worse: {'; '.join(told)}"
    lost = sum(one.what in ("lost", "better") for one in result.changes)
    if lost:
        return f"Better: {lost} of what was found before {'is' if lost == 1 else 'are'} gone or less"
    return "No difference in what was found" if not result.graphs else "Nothing is worse; graphs differ"


def parts(result: DiffResult) -> Iterator[Part]:
    """The sections that have something to say."""
    for kind, (title, _) in _NAMES.items():
        changes = [one for one in result.changes if one.kind == kind]
        if changes:
            yield Part(title, _said(changes, result.same[kind]), [_row(one) for one in changes])
    if result.graphs or result.same_graphs:
        counts = [f"{result.same_graphs} the same"]
        counts += [
            f"{n} {words}"
            for what, words in (("changed", "changed"), ("moved", "in another function"), ("gained", "new"), ("lost", "gone"))
            if (n := sum(one.what == what for one in result.graphs))
        ]
        yield Part("Graphs", ", ".join(counts), [(_MARKS[one.what], _graph(one), "") for one in result.graphs])
    if result.guards:
        rows = [("~", f"{clean(one.function)}: {one.old} -> {one.new} ({_kinds(one.kinds)})", "") for one in result.guards]
        yield Part("Guards", f"{plural(len(rows), 'function')} with other guards", rows)
    if result.times:
        shown = [one for one in result.times if one.old_s is not None and one.new_s is not None][:5]
        rows = [("~", f"{clean(one.function)}: {_seconds(one.old_s)} -> {_seconds(one.new_s)}", "") for one in shown]
        was, now = result.compile_s
        yield Part("Compile time", f"{_seconds(was)} -> {_seconds(now)}, each measured once, so no regression by itself", rows)


def _said(changes: Sequence[Change], same: int) -> str:
    words = (("gained", "came"), ("lost", "gone"), ("worse", "more"), ("better", "less"))
    counts = [f"{n} {word}" for what, word in words if (n := sum(one.what == what for one in changes))]
    return ", ".join([*counts, f"{same} as before"])


def _row(change: Change) -> tuple[str, str, str]:
    place = change.new or change.old
    counts = "" if change.counts is None else f"{change.counts[0]} -> {change.counts[1]}: "
    source = "" if place is None else clean_code(place.source or "")
    return _MARKS[change.what], f"{clean(change.code)} {_place(place)}: {counts}{clean(change.title)}", source


def _place(place: Place | None) -> str:
    if place is None:
        return "no place"
    at = place.file if place.line is None else f"{place.file}:{place.line}"
    return clean(at if not place.function else f"{at} in {place.function}")


def _graph(change: GraphChange) -> str:
    names = " -> ".join(name for name in (change.old, change.new) if name)
    if change.what == "moved":
        return f"{clean(change.function)} {names}: the same graph, now in {clean(change.moved_to or '')}"
    if change.what != "changed":
        count = sum((change.came or change.went).values())
        return f"{clean(change.function)} {names}: {plural(count, 'operator')}"
    came = [f"+{n} {clean(name)}" for name, n in change.came.items()]
    went = [f"-{n} {clean(name)}" for name, n in change.went.items()]
    told = ", ".join([*came, *went])
    if not told and change.calls is not None:
        told = f"the same operators, but {change.calls[0]} became {change.calls[1]}"
    told = told or "the same operators with other inputs, order or wiring"
    return clean(f"{change.function} {names}: {told}", limit=600)


def _kinds(kinds: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{clean(kind)} {old} -> {new}" for kind, (old, new) in kinds.items())


def _seconds(value: float | None) -> str:
    return "not recorded" if value is None else f"{value:.2f} s"


def _sides(result: DiffResult) -> list[tuple[str, str, str, str]]:
    return [
        (name, clean(side.path), clean(side.torch or "unknown"), clean(side.program))
        for name, side in (("old", result.old), ("new", result.new))
    ]


def _counts(result: DiffResult) -> list[tuple[str, str, str]]:
    rows = [(_COUNTS[name], _number(old), _number(new)) for name, (old, new) in result.counts.items()]
    was, now = result.compile_s
    return [*rows, ("compile time", _seconds(was), _seconds(now))]


def _number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def as_text(result: DiffResult, *, quiet: bool = False) -> str:
    """Lines of plain text; `quiet` leaves the headline and what cannot be compared."""
    lines = [headline(result)]
    lines += [f"  {name}  {path}  torch {torch}  {program}".rstrip() for name, path, torch, program in _sides(result)]
    lines += [f"note: {clean(doubt, limit=600)}" for doubt in result.doubts]
    if quiet:
        return "\n".join(lines) + "\n"
    lines += ["", *(f"  {name:<20} {old:>12} {new:>12}" for name, old, new in (("", "old", "new"), *_counts(result)))]
    for part in parts(result):
        lines += ["", f"{part.title}: {part.said}"]
        for mark, text, source in part.rows[:_MOST_SHOWN]:
            lines += [f"  {mark} {text}", *([f"      {source}"] if source else [])]
        if len(part.rows) > _MOST_SHOWN:
            lines.append(f"    {len(part.rows) - _MOST_SHOWN} more: --format json")
    return "\n".join(lines) + "\n"


def as_markdown(result: DiffResult) -> str:
    """For a pull request: the headline, the totals, and a table a section."""
    out = [f"### dynadiag diff: {prose(headline(result))}"]
    out.append(
        table(
            ["", "run", "torch", "program"],
            [[name, code(path), prose(torch), code(program)] for name, path, torch, program in _sides(result)],
        )
    )
    out += [f"> {prose(doubt, limit=600)}" for doubt in result.doubts]
    out.append(table(["", "old", "new"], [list(row) for row in _counts(result)]))
    for part in parts(result):
        rows = [[code(mark), prose(text, limit=600), code(source)] for mark, text, source in part.rows[:_MOST_SHOWN]]
        more = len(part.rows) - len(rows)
        out.append(f"**{part.title}**: {prose(part.said)}")
        out += [table(["", "what", "source"], rows)] if rows else []
        out += [f"{more} more: `--format json`"] if more > 0 else []
    return "\n\n".join(out) + "\n"


def as_json(result: DiffResult) -> str:
    """All of it (`docs/diff.schema.json`)."""
    document: dict[str, Any] = {
        "schema_version": 1,
        "dynadiag": dynadiag.__version__,
        "worse": bool(result.regressions),
        "exit_status": result.exit_status,
        **asdict(result),
    }
    return json_escaped(finite_json.dumps(document, indent=1)) + "\n"


def as_page(result: DiffResult) -> str:
    """One offline page, old and new side by side."""
    sections = [("summary", "Summary"), *((f"part{n}", part.title) for n, part in enumerate(parts(result)))]
    text = page(
        "diff.html",
        title="dynadiag diff",
        version=dynadiag.__version__,
        sections=sections,
        headline=headline(result),
        sides=_sides(result),
        doubts=[clean(doubt, limit=600) for doubt in result.doubts],
        counts=_counts(result),
        parts=[_beside(n, part, result) for n, part in enumerate(parts(result))],
    )
    return f"{text}\n"


def _beside(number: int, part: Part, result: DiffResult) -> dict[str, Any]:
    """A section with a column for each run; of changes each side has its own place and source."""
    changes = [one for one in result.changes if _NAMES[one.kind][0] == part.title]
    rows: list[dict[str, Any]] = []
    for one in changes:
        title = f"{clean(one.code)} {clean(one.title)}" + (f": {one.counts[0]} -> {one.counts[1]}" if one.counts else "")
        sides = [None if side is None else (_place(side), clean_code(side.source or "")) for side in (one.old, one.new)]
        rows.append({"mark": _MARKS[one.what], "title": title, "sides": sides, "worse": one.regression})
    plain = [] if changes else [{"mark": mark, "title": text} for mark, text, _ in part.rows]
    return {"id": f"part{number}", "title": part.title, "said": part.said, "rows": rows, "plain": plain}
