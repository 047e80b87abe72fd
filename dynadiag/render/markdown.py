"""`report.md`: the report to paste into an issue. Short enough for GitHub, tables folded away, nothing in it is live."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from dynadiag.facts.wording import rank_numbers
from dynadiag.model.report import Advice, Finding, Report
from dynadiag.model.run import Location
from dynadiag.render import mutation_words as words
from dynadiag.render import parity_words, wording
from dynadiag.render.completeness import completeness
from dynadiag.render.json_report import DEVICE_WHY, NO_COMPILE_TIME, NO_MUTATION_PASS
from dynadiag.render.markdown_mutations import mutation_table
from dynadiag.render.markdown_text import code, details, fenced, prose, table

MAX_CHARACTERS = 60_000
"""GitHub refuses an issue body over 65,536 characters."""

_ROW_LIMITS = (60, 25, 10, 4, 1)
Row = TypeVar("Row")


def render(report: Report) -> str:
    """The Markdown text, ending in a line break; long lists are cut (and said to be) until it fits into a GitHub issue."""
    text = ""
    for rows in _ROW_LIMITS:
        text = "\n\n".join(_blocks(report, rows)) + "\n"
        if len(text) <= MAX_CHARACTERS:
            break
    return text


def _blocks(report: Report, rows: int) -> Iterator[str]:
    yield "# dynadiag report"
    yield _headline(report)
    if wording.nothing_compiled(report):
        yield f"**{wording.nothing_words(report)}.**"
    yield _counts(report)
    yield "## Findings"
    yield from _findings(report, rows)
    yield from _tables(report, rows)
    yield from _closing(report, rows)


def _headline(report: Report) -> str:
    info, facts = report.run.info, wording.environment(report.run.processes)
    complete, why = completeness(report.run)
    lines = {
        "command": code(wording.command(report)),
        "ended": prose(wording.ending(report) or "not known (foreign log)"),
        "torch": prose(facts.torch or "not known"),
        "Python": prose(facts.python or "not known"),
        "device": prose(facts.device or f"not known: {DEVICE_WHY}"),
        "processes": f"{facts.processes}" + (f", {wording.plural(facts.ranks, 'rank')}" if facts.ranks else ""),
        "recorded by": f"dynadiag {prose(info.dynadiag)}" if info.dynadiag else "not known (foreign log)",
        "complete": "yes" if complete else prose(f"no: {why}" if complete is False else why or "not known"),
    }
    return "\n".join(f"- {name}: {value}" for name, value in lines.items())


def _counts(report: Report) -> str:
    summary = report.summary
    time_why = report.compile_time.why if report.compile_time else None
    rows = [
        ("frames", wording.frames_count(report)),
        ("graphs", wording.graphs_count(report)),
        ("graph breaks", wording.breaks_count(summary)),
        ("recompiles", f"{summary.recompiles:,}"),
        ("fallbacks (ran eagerly)", f"{summary.fallbacks:,}"),
        ("mutations", prose(words.count(report)) if summary.mutations is not None else f"not known: {NO_MUTATION_PASS}"),
        (
            "compile time",
            wording.seconds(summary.compile_s) if summary.compile_s is not None else f"not known: {prose(time_why or NO_COMPILE_TIME)}",
        ),
    ]
    return table(("what", "count"), rows)


def _findings(report: Report, rows: int) -> Iterator[str]:
    if not report.findings:
        yield "None."
    for number, finding in enumerate(report.findings[:rows], 1):
        yield from _finding(number, finding, report)
    yield from _hidden(report.findings, rows, "finding")


def _finding(number: int, finding: Finding, report: Report) -> Iterator[str]:
    yield f"### {number}. {prose(finding.severity)} {prose(finding.code, limit=40)}: {prose(finding.title)}"
    if finding.where is not None:
        yield f"at {_place(finding.where, report)}"
        if finding.where.code:
            yield fenced(finding.where.code, language="python", lines=3)
    yield prose(finding.why, limit=1200)
    for advice in finding.fix:
        yield from _advice(advice)
    cost = prose(wording.cost(finding.cost)) if finding.cost else "not known"
    more = "" if len(finding.evidence) <= 8 else f" and {len(finding.evidence) - 8} more"
    yield f"Cost: {cost}. Evidence: {', '.join(code(name) for name in finding.evidence[:8]) or 'none'}{more}."


def _advice(advice: Advice) -> Iterator[str]:
    yield f"**Fix:** {prose(advice.text, limit=1200)}"
    change = [f"{sign} {line}" for sign, text in (("-", advice.before), ("+", advice.after)) for line in (text or "").splitlines()]
    if change:
        yield fenced("\n".join(change), language="diff")


def _place(location: Location | None, report: Report) -> str:
    base = Path(report.run.info.cwd) if report.run.info.cwd else None
    return code(wording.place(location, base)) if location else "no line known"


def _hidden(items: Sequence[object], rows: int, what: str) -> Iterator[str]:
    if len(items) > rows:
        yield f"{wording.plural(len(items) - rows, f'more {what}')} in `report.json`."


def _folded(title: str, heading: Sequence[str], items: Sequence[Row], rows: int, cells: Callable[[Row], Sequence[str]]) -> Iterator[str]:
    """A folded table of the first `rows` items, nothing when there are none."""
    if items:
        body = [table(heading, [cells(item) for item in items[:rows]]), *_hidden(items, rows, "row")]
        yield details(f"{title} ({len(items):,})", "\n\n".join(body))


def _tables(report: Report, rows: int) -> Iterator[str]:
    yield from _folded(
        "Graph breaks",
        ("id", "torch id", "category", "own line", "torch's line", "events", "reason"),
        report.graph_breaks,
        rows,
        lambda site: (
            code(site.id),
            code(site.gb_id) if site.gb_id else "none",
            prose(site.category, limit=60),
            _place(site.own_frame, report),
            _place(site.torch_frame, report),
            f"{site.events:,}" + (" (cached)" if site.cached else ""),
            prose(site.reason, limit=160),
        ),
    )
    yield from _folded(
        "Recompiles by source",
        ("frame", "own line", "changed", "values", "entries"),
        report.transitions,
        rows,
        lambda row: (
            code(wording.frame_name(row.frame_name), limit=100),
            _place(row.own_frame, report),
            code(row.source, limit=120),
            " -> ".join(code(value, limit=60) for value in row.values[:8]) + (", became dynamic" if row.became_dynamic else ""),
            f"{row.entries}" + ("" if row.limit is None else f" of {row.limit}") + (" (limit hit)" if row.limit_hit else ""),
        ),
    )
    yield from _folded(
        "Ran eager",
        ("id", "kind", "where", "reason", "events"),
        report.fallbacks,
        rows,
        lambda item: (
            code(item.id),
            prose(wording.FALLBACK_KINDS.get(item.kind, item.kind), limit=60),
            _place(item.own_frame, report) if item.own_frame else _frame(report, item.frame),
            prose(item.reason, limit=200),
            f"{item.events:,}",
        ),
    )
    yield from mutation_table(report, rows, _folded)
    if report.parity is not None:
        yield prose(". ".join([f"Parity: {parity_words.verdict(report.parity)}", *parity_words.details(report.parity)]), limit=2000)
    if report.replayed is not None:
        yield prose(f"Could happen: {parity_words.could_happen(report.replayed)}", limit=2000)
    yield from _graphs_and_times(report, rows)


def _graphs_and_times(report: Report, rows: int) -> Iterator[str]:
    yield from _folded(
        "Captured graphs",
        ("id", "kind", "frame", "nodes", "most common ops"),
        report.run.graphs,
        rows,
        lambda graph: (
            code(graph.id),
            prose(graph.kind, limit=40),
            _frame(report, graph.frame),
            "not known" if graph.nodes is None else f"{graph.nodes:,}",
            prose(wording.top_ops(graph.ops, 4) or graph.why_not or "", limit=160),
        ),
    )
    times = report.compile_time.frames if report.compile_time else ()
    yield from _folded(
        "Compile time by frame",
        ("frame", "total", "by phase", "thrown away by restarts"),
        sorted(times, key=lambda row: -row.total_s),
        rows,
        lambda row: (
            _frame(report, row.frame),
            wording.seconds(row.total_s),
            ", ".join(f"{prose(name, limit=40)} {wording.seconds(value)}" for name, value in sorted(row.phases.items())),
            wording.seconds(row.thrown_away_s),
        ),
    )
    yield from _folded(
        "Differences between ranks",
        ("what", "where", "values", "odd ranks"),
        report.ranks,
        rows,
        lambda row: (
            prose(row.what, limit=160),
            _place(row.location, report),
            ", ".join(f"{prose(rank, limit=60)}: {prose(value, limit=80)}" for rank, value in row.values.items()),
            rank_numbers(row.odd_ranks) or "none",
        ),
    )


def _frame(report: Report, frame_id: str | None) -> str:
    return code(wording.frame_label(report, frame_id), limit=120)


def _closing(report: Report, rows: int) -> Iterator[str]:
    config = next((process.config for process in report.run.processes if process.config), {})
    options = [(f"{area}.{name}", str(value)) for area, names in config.items() for name, value in sorted(names.items())]
    settings = [one for one in options if one != ("torch.grad_mode", "True")]  # always recorded, and that is its default
    yield from _folded(
        "Non-default options", ("option", "value"), settings, rows, lambda item: (code(item[0], limit=100), code(item[1], limit=160))
    )
    notes = tuple(dict.fromkeys((*report.notes, *report.run.notes)))
    if notes:
        body = "\n".join(f"- {prose(note, limit=500)}" for note in notes[:rows])
        yield details(f"Notes ({len(notes):,})", "\n\n".join([body, *_hidden(notes, rows, "note")]))
    if report.pictures:
        yield f"Pictures beside this file: {', '.join(code(name) for name in sorted(report.pictures.values())[:8])}" + (
            f" and {len(report.pictures) - 8} more" if len(report.pictures) > 8 else ""
        )
