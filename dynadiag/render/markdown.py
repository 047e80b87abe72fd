"""`report.md`: the report to paste into an issue. Short enough for GitHub, tables folded away, nothing in it is live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynadiag.model.report import Report
from dynadiag.render import wording
from dynadiag.render.articles import finding_article
from dynadiag.render.completeness import completeness
from dynadiag.render.json_report import DEVICE_WHY
from dynadiag.render.markdown_text import article, code, details, fitting, prose, section, table
from dynadiag.render.sections import Detail, graph_breaks, sections
from dynadiag.render.verdict import counts, ending, not_in_text, verdict


def render(report: Report) -> str:
    """The Markdown text, ending in a line break; long lists are cut (and said to be) until it fits into a GitHub issue."""
    return fitting(lambda rows: _blocks(report, rows))


def _blocks(report: Report, rows: int) -> Iterator[str]:
    yield "# dynadiag report"
    yield _headline(report)
    if failed := wording.failed_passes(report):
        yield f"**{prose(failed)}**"
    if wording.nothing_compiled(report):
        yield f"**{wording.nothing_words(report)}.**"
    elif (said := verdict(report)) is not None:
        yield f"**{prose(said)}.**"
    if (missing := not_in_text(report)) is not None:
        yield missing
    yield table(("what", "count"), [(name, prose(value)) for name, value in counts(report)])
    yield "## Findings"
    yield from _findings(report, rows)
    yield from _tables(report, rows)
    yield from _closing(report, rows)


def _headline(report: Report) -> str:
    info, facts = report.run.info, wording.environment(report.run.processes)
    complete, why = completeness(report.run)
    lines = {
        "command": code(wording.command(report)),
        "ended": prose(ending(report) or "not known (foreign log)"),
        "torch": prose(facts.torch or "not known"),
        "Python": prose(facts.python or "not known"),
        "device": prose(facts.device or f"not known: {DEVICE_WHY}"),
        "processes": f"{facts.processes}" + (f", {facts.ranks_in_words}" if facts.ranks else ""),
        "recorded by": f"dynadiag {prose(info.dynadiag)}" if info.dynadiag else "not known (foreign log)",
        "complete": "yes" if complete else prose(f"no: {why}" if complete is False else why or "not known"),
    }
    return "\n".join(f"- {name}: {value}" for name, value in lines.items())


def _findings(report: Report, rows: int) -> Iterator[str]:
    if not report.findings:
        yield "None."
    base = wording.base_folder(report.run)
    for number, finding in enumerate(report.findings[:rows], 1):
        yield from article(finding_article(finding, report, base=base), number=number)
    yield from _hidden(report.findings, rows, "finding")


def _hidden(items: Sequence[object], rows: int, what: str) -> Iterator[str]:
    if len(items) > rows:
        yield f"{wording.plural(len(items) - rows, f'more {what}')} in `report.json`."


def _tables(report: Report, rows: int) -> Iterator[str]:
    detail = Detail(base=wording.base_folder(report.run), every_graph=True)
    for graph_break in (*graph_breaks(report, detail), *sections(report, detail)):
        yield section(graph_break, rows=rows)


def _closing(report: Report, rows: int) -> Iterator[str]:
    config = next((process.config for process in report.run.processes if process.config), {})
    options = [(f"{area}.{name}", str(value)) for area, names in config.items() for name, value in sorted(names.items())]
    settings = [option for option in options if option != ("torch.grad_mode", "True")]  # always recorded, and that is its default
    if settings:
        body = table(("option", "value"), [(code(name, limit=100), code(value, limit=160)) for name, value in settings[:rows]])
        yield details(f"Non-default options ({len(settings):,})", "\n\n".join([body, *_hidden(settings, rows, "option")]))
    notes = wording.notes(report)
    if notes:
        body = "\n".join(f"- {prose(note, limit=500)}" for note in notes[:rows])
        yield details(f"Notes ({len(notes):,})", "\n\n".join([body, *_hidden(notes, rows, "note")]))
    if report.pictures:
        yield f"Pictures next to this file: {', '.join(code(name) for name in sorted(report.pictures.values())[:8])}" + (
            f" and {len(report.pictures) - 8} more" if len(report.pictures) > 8 else ""
        )
