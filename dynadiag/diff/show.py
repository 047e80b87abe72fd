"""The comparison as the document that terminal, Markdown and page show, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Literal, TypedDict

import dynadiag
from dynadiag.diff.result import CacheChange, DiffResult, FindingChange, GraphChange, Side, SourceLine
from dynadiag.facts.wording import plural
from dynadiag.render import finite_json
from dynadiag.render.document import Cell, Column, Document, Headline, Part, Section, Tone, cells
from dynadiag.render.sanitise import json_escaped

_MOST_SHOWN = 20
_MOST_PARTS = 4
_WIDTH = 600
_KINDS = {
    "break": ("Graph breaks", "graph break"),
    "recompile": ("Recompiles", "recompiled function"),
    "fallback": ("Fallbacks to eager", "fallback"),
    "mutation": ("Mutations with a cost", "mutation"),
    "other": ("Other findings", "finding"),
}
_WORDS = {"gained": "new", "lost": "gone", "worse": "more", "better": "less"}
_GRAPH_WORDS = {"changed": "changed", "moved": "in another function", "gained": "new", "lost": "gone"}
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
_NEUTRAL = "graphs", "frames"


class DiffKeys(TypedDict):
    """What `dynadiag diff` found: this before all of `DiffResult`."""

    schema_version: Literal[1]
    dynadiag: str
    worse: bool
    exit_status: int


def document_of(result: DiffResult, *, beside: bool = False) -> Document:
    """All that was compared; `beside` has what changed in tables with a column for each run, for a medium that has the room."""
    return Document(
        title="dynadiag diff",
        facts=(_side("old", result.old), _side("new", result.new)),
        headlines=(
            headline(result),
            *(Headline(word="note", said=said, tone="unclear") for said in (*filter(None, (result.ranks,)), *result.doubts)),
        ),
        sections=tuple(_sections(result, beside)),
        name="--format json",
    )


def headline(result: DiffResult) -> Headline:
    """Whether the new run is worse; a run that is not complete is not judged, and a program that failed is never better."""
    cut = [f"the {name} run is not complete" for name, side in (("old", result.old), ("new", result.new)) if side.cut_short]
    if cut:
        return Headline(word="Not judged", what=" and ".join(cut), tone="unclear")
    if result.new.failed is not None:
        more = f"; {_regressions(result)}" if result.regressions else ""
        too = "" if result.old.failed is None else f", and the old one {result.old.failed}"
        word = "Worse" if result.old.failed is None else "Failed"
        return Headline(word=word, what=f"the new program {result.new.failed}{too}{more}", tone="bad")
    if result.regressions:
        return Headline(word="Worse", what=_regressions(result), tone="bad")
    lost = sum(change.what in ("lost", "better") for change in result.changes)
    if lost:
        return Headline(word="Better", what=f"{plural(lost, 'earlier finding')} gone or less frequent", tone="good")
    return Headline(word="No difference in the findings" if not result.graphs else "Nothing is worse; graphs differ")


def _regressions(result: DiffResult) -> str:
    gained: Counter[str] = Counter(regression.kind for regression in result.regressions if regression.what == "gained")
    more = sum(change.what == "worse" for change in result.regressions)
    told = [plural(gained[kind], f"new {noun}") for kind, (_, noun) in _KINDS.items() if gained[kind]]
    return ", ".join([*told, *([f"{plural(more, 'function')} recompiled more often"] if more else [])])


def _side(name: str, side: Side) -> str:
    return f"{name}: {side.path}, torch {side.torch or 'unknown'}" + (f", {side.program}" if side.program else "")


def _sections(result: DiffResult, beside: bool) -> Iterator[Section]:
    sides = Column("old", numeric=True), Column("new", numeric=True)
    rows = [
        cells(_COUNTS[name], _number(old), Part(_number(new), tone="plain" if name in _NEUTRAL else _tone(old, new)))
        for name, (old, new) in result.counts.items()
    ]
    rows.append(cells("compile time", *map(_seconds, result.compile_s)))
    yield Section(title="Totals", columns=(Column(""), *sides), items=rows)
    columns = Column("", fold=False), Column("finding"), Column("old", label="old  "), Column("new", label="new  ")
    for kind, (title, _) in _KINDS.items():
        if changes := [change for change in result.changes if change.kind == kind]:
            counts: Counter[str] = Counter(item.what for item in changes)
            said = [f"{counts[what]} {word}" for what, word in _WORDS.items() if counts[what]]
            entries = _by_place(changes)
            yield Section(
                title=title,
                said=", ".join([*said, f"{result.same[kind]} unchanged"]),
                columns=columns[1:] if beside else columns,
                items=entries if beside else entries[:_MOST_SHOWN],
                row=_beside if beside else _change,
                as_entries=not beside,
                closing="" if beside or len(entries) <= _MOST_SHOWN else f"{len(entries) - _MOST_SHOWN} more: --format json",
            )
    if result.graphs or result.same_graphs:
        kinds: Counter[str] = Counter(graph.what for graph in result.graphs)
        said = [f"{result.same_graphs} the same", *(f"{kinds[what]} {words}" for what, words in _GRAPH_WORDS.items() if kinds[what])]
        yield Section(
            title="Graphs",
            said=", ".join(said),
            columns=(Column("function"), Column("graph", fold=False), Column("difference")),
            items=result.graphs if beside else result.graphs[:_MOST_SHOWN],
            row=_graph,
            closing="" if beside or len(result.graphs) <= _MOST_SHOWN else f"{len(result.graphs) - _MOST_SHOWN} more: --format json",
        )
    if result.guards:
        rows = [cells(guard.function, f"{guard.old:,}", f"{guard.new:,}", _kinds(guard.kinds)) for guard in result.guards]
        words = f"{plural(len(rows), 'function')} whose guards changed"
        yield Section(title="Guards", said=words, columns=(Column("function"), *sides, Column("kinds")), items=rows)
    if result.caches:
        yield Section(
            title="Compile caches",
            said=f"{plural(len(result.caches), 'compilation')} that the caches did not give as before; `dynadiag start OLD NEW` says why",
            columns=(Column("function"), Column("old"), Column("new"), Column("components of the keys that differ")),
            items=result.caches if beside else result.caches[:_MOST_SHOWN],
            row=_cache,
            closing="" if beside or len(result.caches) <= _MOST_SHOWN else f"{len(result.caches) - _MOST_SHOWN} more: --format json",
        )
    if result.times:
        rows = [
            cells(time.function, _seconds(time.old_s), _seconds(time.new_s))
            for time in result.times
            if None not in (time.old_s, time.new_s)
        ]
        was, now = map(_seconds, result.compile_s)
        words = f"{was} -> {now}, each measured once, so neither better nor worse by itself"
        yield Section(title="Compile time", said=words, columns=(Column("function"), *sides), items=rows[:5])


def _by_place(changes: Sequence[FindingChange]) -> list[tuple[FindingChange, int]]:
    """The changes; of mutations that agree in code and places the first, and how many they are: an optimizer writes each parameter."""
    groups: dict[tuple[object, ...], list[FindingChange]] = {}
    for number, change in enumerate(changes):
        key = (change.what, change.code, change.old, change.new) if change.kind == "mutation" else (number,)
        groups.setdefault(key, []).append(change)
    return [(listed[0], len(listed)) for listed in groups.values()]


def _change(entry: tuple[FindingChange, int]) -> tuple[Cell, ...]:
    change, equal = entry
    tone: Tone = "bad" if change.regression else "good" if change.what in ("lost", "better") else "plain"
    counts = "" if change.counts is None else f": {change.counts[0]} -> {change.counts[1]}"
    more = f", and {equal - 1:,} more there" if equal > 1 else ""
    finding = (Part(change.code, code=True), Part(change.title, _WIDTH), Part(counts + more, before=""))
    return (Part(_WORDS[change.what], tone=tone),), finding, _line_cell(change.old), _line_cell(change.new)


def _beside(entry: tuple[FindingChange, int]) -> tuple[Cell, ...]:
    """The row of a page: one column less, so that old and new have the room."""
    what, finding, *sides = _change(entry)
    return (*what, *finding), *sides


def _line_cell(place: SourceLine | None) -> Cell:
    if place is None:
        return ()
    at = place.file if place.line is None else f"{place.file}:{place.line}"
    at = f"{at} in {place.function}" if place.function else at
    return (Part(at), Part(place.source, code=True, before=": ")) if place.source else (Part(at),)


def _graph(change: GraphChange) -> tuple[Cell, ...]:
    return cells(change.function, " -> ".join(name for name in (change.old, change.new) if name), Part(_difference(change), _WIDTH))


def _difference(change: GraphChange) -> str:
    if change.what == "moved":
        return f"the same graph, now in {change.moved_to}"
    if change.what != "changed":
        return f"{_GRAPH_WORDS[change.what]}: {plural(sum((change.came or change.went).values()), 'operator')}"
    told = [*(f"+{n} {name}" for name, n in change.came.items()), *(f"-{n} {name}" for name, n in change.went.items())]
    if told:
        return ", ".join(told)
    if change.calls is not None:
        return f"the same operators, but {change.calls[0]} became {change.calls[1]}"
    return "the same operators with other inputs, order or wiring"


def _cache(change: CacheChange) -> tuple[Cell, ...]:
    said = [f"{part.name}: {part.old or 'none'} -> {part.new or 'none'}" for part in change.parts[:_MOST_PARTS]]
    more = len(change.parts) - len(said)
    said += [f"and {more} more"] if more else []
    words = "; ".join(said) or (f"bypassed: {change.why}" if change.why else "none, or not listed in both runs")
    return cells(change.function, change.old or "not asked", change.new, Part(words, _WIDTH))


def _kinds(kinds: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{kind} {old} -> {new}" for kind, (old, new) in kinds.items())


def _seconds(value: float | None) -> str:
    return "not recorded" if value is None else f"{value:.2f} s"


def _tone(old: int | None, new: int | None) -> Tone:
    """The colour of a count of which fewer are better."""
    if old is None or new is None or old == new:
        return "plain"
    return "good" if new < old else "unclear"


def _number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def as_json(result: DiffResult) -> str:
    """All of it (`docs/diff.schema.json`)."""
    head: DiffKeys = {
        "schema_version": 1,
        "dynadiag": dynadiag.__version__,
        "worse": result.worse,
        "exit_status": result.exit_status,
    }
    return json_escaped(finite_json.dumps({**head, **asdict(result)}, indent=1)) + "\n"
