"""`report.html`: the whole report as one page, in the order in which a person looks for a cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import dynadiag
from dynadiag.facts.compiled_work import compiled_work
from dynadiag.facts.lookups import is_from_text
from dynadiag.model.report import GraphBreak, Report
from dynadiag.render import markdown, wording
from dynadiag.render import mutation_words as words
from dynadiag.render.articles import change_paragraphs, finding_article
from dynadiag.render.document import Article, Paragraph
from dynadiag.render.html import compilations, page, tables
from dynadiag.render.html.code import coloured
from dynadiag.render.html.compilations import calls
from dynadiag.render.html.filters import Filters
from dynadiag.render.html.graphs import graphs as graphs_of
from dynadiag.render.html.graphs import guards
from dynadiag.render.html.tables import OURS, ROWS_AT_MOST, own_id
from dynadiag.render.html.timeline import times
from dynadiag.render.ladder import STATES, Ladder, Rung, bars_legend
from dynadiag.render.ladder_builder import ladder
from dynadiag.render.sanitise import clean, clean_block
from dynadiag.render.summary import circumstances, cut_short, failures, present
from dynadiag.render.verdict import verdict
from dynadiag.rules.rule import page_address

FINDINGS_AT_MOST = 200
_BEFORE_GRAPHS = ("Recompiles", "Ran eagerly")
_MARKS = {"graph": "", "break": "◆", "eager": "", "unseen": "", "plain": ""}


def render(report: Report, directory: Path | None = None) -> str:
    """The page. `directory` is where the report's pictures are; without it, or where one cannot be read, there is none."""
    base = wording.base_folder(report.run)
    found = ladder(report)
    listed = tables.tables(report)
    placed = _placed(listed)
    graphs, graph_notes = graphs_of(report, _rows_of(found), directory)
    filters, changed = Filters(report), frozenset(report.changed_sources)
    parts: dict[str, Any] = {
        "findings": [
            {
                **article_entry(finding_article(one, report, base=base)),
                "of": filters.of_finding(one),
                "changed": one.where is not None and one.where.file in changed,
            }
            for one in report.findings[:FINDINGS_AT_MOST]
        ],
        "functions": list(_functions(found, base, changed, _tips(report))),
        "breaks": [
            {**_break(graph_break, base), "of": filters.of_break(graph_break)} for graph_break in report.graph_breaks[:ROWS_AT_MOST]
        ],
        "choices": filters.choices(),
        "matrices": list(tables.matrices(report)),
        "bars": tables.bars(report),
        "calls": calls(report),
        "times": times(report),
        "graphs": graphs,
        "guards": guards(report),
        "stacks": compilations.stacks(report),
        "shapes": compilations.shapes(report),
        "caches": compilations.caches(report),
        "metrics": compilations.metrics(report),
    }
    anchors = _anchors(parts, listed)
    return page(
        "report.html",
        title=f"dynadiag: {wording.command(report)}",
        version=dynadiag.__version__,
        sections=list(_sections(parts, placed)),
        verdict=headline(report),
        command=wording.command(report),
        facts=" · ".join(circumstances(report)),
        warnings=[text for text in (wording.failed_passes(report), cut_short(report), *wording.changed_sources(report)) if text],
        tiles=[{"name": name, "value": value} for name, value in _tiles(report)],
        issue=markdown.render(report),
        hidden_findings=max(0, len(report.findings) - FINDINGS_AT_MOST),
        legend=list(STATES.items()),
        bars_legend=bars_legend(found),
        bars_named=found.bars[1:],
        ladder_notes=found.notes,
        tables={place: [tables.linked(record, anchors) for record in some] for place, some in placed.items()},
        graph_notes=graph_notes,
        anchors=anchors,
        environment=tables.environment(report),
        options=tables.options(report),
        notes=[clean_block(note, limit=1200) for note in wording.notes(report)],
        **parts,
    )


# -- the head


def headline(report: Report) -> str:
    """What the terminal says first: that next to nothing was compiled, else how much of a call was, else the counts."""
    work = compiled_work(report.run)
    told = verdict(report) or (wording.compiled_work(work) if work is not None and work.operators else "")
    return told or ", ".join(list(present(report, told=False)) or failures(report)) or "No graph breaks, recompiles or fallbacks"


def _tiles(report: Report) -> Iterator[tuple[str, str]]:
    """The counts, without those that are zero but for graphs."""
    summary = report.summary
    if report.run.graphs or not is_from_text(report.run):
        yield "graphs", wording.graphs_count(report)
    since = wording.recompiles_since(report)
    counts = (
        ("graph break site", f" ({wording.plural(summary.graph_break_events, 'event')})", summary.graph_break_sites),
        ("recompile", f" ({since})" if since else "", summary.recompiles),
        ("fallback", " to eager", summary.fallbacks),
        ("mutation", " with a cost", words.costly(report)),
    )
    yield from ((f"{noun}{'' if count == 1 else 's'}{more}", f"{count:,}") for noun, more, count in counts if count)
    if summary.compile_s is not None:
        yield "compile time", wording.seconds(summary.compile_s)


def _anchors(parts: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> Set[str]:
    """The ids of entries that are in the page: of many only the first are."""
    entries = [part["id"] for name in ("findings", "breaks", "graphs") for part in parts[name]]
    return {*entries, *(row["id"] for table in (*tables, *parts["matrices"]) for row in table["rows"])}


def _placed(listed: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The tables by where they stand: what was compiled again or not at all, what else was found, the list of all frames."""
    places = {record["anchor"]: "before_graphs" if record["title"] in _BEFORE_GRAPHS else "after_guards" for record in listed} | {
        "frames": "last"
    }
    return {
        place: [mapping for mapping in listed if places[mapping["anchor"]] == place] for place in ("before_graphs", "after_guards", "last")
    }


def _sections(parts: Mapping[str, Any], placed: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[tuple[str, str]]:
    """The links at the top, in the order of the page: that of a person who looks for a cause."""

    def listed(place: str) -> Iterator[tuple[str, str]]:
        return ((mapping["anchor"], mapping["title"]) for mapping in placed[place])

    def known(*names: tuple[str, str]) -> Iterator[tuple[str, str]]:
        return ((name, title) for name, title in names if parts[name])

    yield from (("source", "Source"), ("findings", "Findings"))
    yield from known(("breaks", "Graph breaks"))
    if parts["bars"] or parts["times"] or parts["calls"]:
        yield "time", "Time"
    if parts["matrices"]:
        yield "versions", "Versions"
    yield from listed("before_graphs")
    yield from known(("graphs", "Graphs"), ("guards", "Guards"))
    yield from listed("after_guards")
    yield from known(("stacks", "Stacks"), ("shapes", "Shapes"), ("caches", "Caches"), ("metrics", "Metrics"))
    yield from listed("last")
    yield "environment", "Environment"


# -- findings and breaks


def article_entry(told: Article) -> dict[str, Any]:
    """What a template shows of an article."""
    return {
        "id": own_id(told.id, "n"),
        "severity": told.severity if told.severity in ("error", "warning", "note") else "note",
        "code": clean(told.code, limit=40),
        "title": clean(told.title),
        "place": told.place,
        "source": coloured([told.source])[0] if told.source else "",
        "paragraphs": [_paragraph(one) for one in told.paragraphs if one.kind != "fact"],
        "facts": [_paragraph(one) for one in told.paragraphs if one.kind == "fact"],
    }


def _paragraph(told: Paragraph) -> dict[str, Any]:
    before, after = (clean_block(text, lines=60).split("\n") if text else [] for text in (told.before, told.after))
    return {
        "label": "" if told.kind == "reason" else told.label.capitalize(),
        "text": clean_block(told.text, limit=2000),
        "code": clean(told.code),
        "imports": [clean(text) for text in told.imports],
        "before": before,
        "after": after,
        "ids": [name for name in told.ids if OURS.match(name)],
    }


def _break(graph_break: GraphBreak, base: Path | None) -> dict[str, Any]:
    where = graph_break.own_frame or graph_break.torch_frame
    inner = graph_break.torch_frame if graph_break.torch_frame is not None and not graph_break.torch_frame.is_same_line(where) else None
    return {
        "id": own_id(graph_break.id, "b"),
        "gb": clean(graph_break.gb_id or "no id", limit=20),
        "address": page_address(graph_break.gb_id or ""),
        "reason": clean(graph_break.reason),
        "place": wording.place(where, base),
        "inner": wording.place(inner, base) if inner else "",
        "events": wording.plural(graph_break.events, "event"),
        "explanation": clean_block(graph_break.explanation or ""),
        "hints": [clean_block(hint) for hint in graph_break.hints[:12]],
        "fix": [_paragraph(each) for each in change_paragraphs(graph_break.advice)],
        "unadvised": clean(graph_break.unadvised or "").rstrip("."),
        "doubts": [clean_block(doubt) for doubt in graph_break.doubts],
        "graphs": [name for name in dict.fromkeys((*graph_break.graphs_before, *graph_break.graphs_after)) if OURS.match(name)][:20],
        "context": clean(graph_break.context or "", limit=400),
        "stack": "\n".join(f"{wording.place(place, base)}\n    {clean(place.code or '')}" for place in graph_break.stack[-40:]),
    }


# -- the ladder


def _tips(report: Report) -> dict[str, str]:
    """What a pointer over the name of a graph shows, by its id."""
    frames = {frame.id: wording.frame_label(report, frame.id) for frame in report.run.frames}
    return {
        graph.id: f"graph of {frames.get(graph.frame, 'an unknown frame')}, {wording.plural(graph.size or 0, 'operator')}"
        f"{': ' if graph.ops else ''}{wording.top_ops(graph.ops, 6)}"
        for graph in report.run.graphs
    }


def _functions(found: Ladder, base: Path | None, changed: Set[str], tips: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for number, function in enumerate(found.functions):
        if not function.rungs:
            continue
        texts = coloured([rung.code for rung in function.rungs])
        yield {
            "name": clean(function.name, limit=100),
            "place": wording.path(function.file, base) + ("" if function.line is None else f":{function.line}"),
            "said": clean(function.said),
            "changed": function.file in changed,
            "depth": function.depth,
            "matters": function.matters,
            "rows": [
                {
                    "at": f"{number}-{rung.line}",
                    "line": rung.line,
                    "state": rung.state,
                    "means": STATES[rung.state],
                    "mark": _MARKS[rung.state],
                    "thin": [(state, STATES[state]) for state in rung.bars],
                    "broke": rung.broke and rung.state != "break",
                    "code": text,
                    "said": clean(" · ".join(_without_graph(rung)), limit=240),
                    "graphs": [(name, tips.get(name, "")) for name in rung.graphs[:3] if OURS.match(name)],
                    "breaks": _chips(rung.breaks, rung.marks),
                }
                for rung, text in zip(function.rungs, texts, strict=True)
            ],
        }


def _without_graph(rung: Rung) -> Iterator[str]:
    """The notes without the name of the graph, which stands before them as a link."""
    for note in rung.notes:
        head, comma, rest = note.partition(", ")
        if head not in rung.graphs:
            yield note
        elif comma:
            yield rest


def _chips(names: Sequence[str], marks: Sequence[str]) -> list[tuple[str, str]]:
    """Each break of a line with its mark; equal marks are written once."""
    shown = list(marks) + [""] * (len(names) - len(marks))
    return [(own_id(name, "b"), clean(mark or name, limit=20)) for name, mark in zip(names, shown, strict=False)]


def _rows_of(found: Ladder) -> dict[tuple[str, int], str]:
    return {
        (function.file, rung.line): f"{number}-{rung.line}" for number, function in enumerate(found.functions) for rung in function.rungs
    }
