"""The report in a terminal: headline, ranked findings, and the tables behind them.

Colours are the sixteen of the terminal's own palette, so that they read on light and dark. Without a tty, under NO_COLOR or on a dumb
terminal rich drops them and the text says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dynadiag.model import codes
from dynadiag.model.report import Report
from dynadiag.render import mutation_words as words
from dynadiag.render import wording
from dynadiag.render.completeness import completeness
from dynadiag.render.json_report import NO_COMPILE_TIME, NO_MUTATION_PASS
from dynadiag.render.page import Page, View
from dynadiag.render.sanitise import clean, clean_block
from dynadiag.render.terminal_findings import print_finding
from dynadiag.render.terminal_mutations import only_mutations, print_mutations
from dynadiag.render.terminal_tables import (
    print_compile_time,
    print_fallbacks,
    print_graphs,
    print_parity,
    print_ranks,
    print_transitions,
)

DEFAULT_LIMIT = 10
NOTES_LIMIT = 8


def print_report(
    report: Report,
    console: Console,
    *,
    limit: int | None = DEFAULT_LIMIT,
    verbose: bool = False,
    base: Path | None = None,
    directory: Path | None = None,
    show_free: bool = False,
    mutations_only: bool = False,
) -> None:
    """Print the whole report.

    Args:
        report: the diagnosis; every text in it is sanitised here.
        console: a rich console; no line gets wider than it.
        limit: how many findings (and rows a table) are shown, None for all. What is folded is counted and said.
        verbose: also torch's own explanation, the stacks and full library paths.
        base: paths below this absolute folder are shown relative to it; the current folder when None.
        directory: where report.json, report.md and graphs/ were written; the run directory when None.
        show_free: list mutations that cost nothing one by one.
        mutations_only: only the headline and what is said of mutations.
    """
    view = View(limit=limit, verbose=verbose, base=base or _current_folder(), show_free=show_free, mutations_only=mutations_only)
    page = Page(console)
    if mutations_only:
        report = only_mutations(report)
    _headline(report, page)
    _findings(report, page, view)
    for title, section in _SECTIONS:
        if not mutations_only or section is print_mutations:
            section(report, page, view, title)
    _notes(report, page, view)
    _files(report, page, view, directory)


def _current_folder() -> Path:
    """What paths are shown relative to; a folder that was deleted meanwhile is none."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


_SECTIONS = (
    ("Recompiles", print_transitions),
    ("Ran eagerly", print_fallbacks),
    ("Mutations", print_mutations),
    ("Parity", print_parity),
    ("Captured graphs", print_graphs),
    ("Compile time", print_compile_time),
    ("Ranks", print_ranks),
)


def _headline(report: Report, page: Page) -> None:
    page.line(wording.command(report), style="bold", prefix=Text("dynadiag  ", style="bold cyan"))
    facts = wording.environment(report.run.processes)
    parts = [
        wording.ending(report) or "exit status not known (foreign log)",
        f"torch {facts.torch or 'version not known'}",
        facts.python and f"Python {facts.python}",
        facts.device,
        wording.plural(facts.processes, "process", "processes"),
        wording.plural(facts.ranks, "rank") if facts.ranks else None,
    ]
    page.line(" | ".join(part for part in parts if part))
    complete, why = completeness(report.run)
    if complete is False:
        page.line(f"The recording is cut short: {clean(why or '')}. Everything up to that point is below.", style="yellow")
    _loud(report, page)
    page.blank()
    for label, value in _counts(report):
        page.line(value, prefix=Text(f"  {label:<14}", style="bold"))


def _loud(report: Report, page: Page) -> None:
    if not wording.nothing_compiled(report):
        return
    page.blank()
    page.line(wording.nothing_words(report).upper(), style="bold red")
    reasons = [f"{wording.FALLBACK_KINDS.get(item.kind, clean(item.kind))}: {clean(item.reason)}" for item in report.fallbacks]
    reasons = reasons or [clean(finding.why.removesuffix(".")) for finding in report.findings if finding.code == codes.NOTHING_COMPILED]
    if not report.run.compile_calls and not reasons:
        reasons = ["no call of torch.compile was recorded"]
    for reason in dict.fromkeys(reasons):
        page.line(reason, prefix="  ")


def _counts(report: Report) -> Sequence[tuple[str, str]]:
    summary = report.summary
    time_why = report.compile_time.why if report.compile_time else None
    return (
        ("frames", wording.frames_count(report)),
        ("graphs", wording.graphs_count(report)),
        ("graph breaks", wording.breaks_count(summary)),
        ("recompiles", f"{summary.recompiles:,}"),
        ("ran eagerly", wording.plural(summary.fallbacks, "fallback")),
        ("mutations", words.count(report) if summary.mutations is not None else f"not known: {NO_MUTATION_PASS}"),
        (
            "compile time",
            wording.seconds(summary.compile_s) if summary.compile_s is not None else f"not known: {clean(time_why or NO_COMPILE_TIME)}",
        ),
    )


def _findings(report: Report, page: Page, view: View) -> None:
    page.blank()
    if not report.findings:
        text = "No findings." if not wording.nothing_compiled(report) else "No findings, since nothing was compiled."
        page.line(text, style="bold" if wording.nothing_compiled(report) else "bold green")
        return
    page.line(_severities(report), style="bold")
    shown = report.findings[: view.limit]
    for finding in shown:
        page.blank()
        print_finding(finding, report, page, verbose=view.verbose, base=view.base)
    hidden = len(report.findings) - len(shown)
    if hidden:
        page.blank()
        page.line(f"{wording.plural(hidden, 'more finding')} not shown: use --limit 0 for all, or see report.json.", style="bold")


def _severities(report: Report) -> str:
    order = ("error", "warning", "note")
    counts = {name: sum(finding.severity == name for finding in report.findings) for name in order}
    parts = ", ".join(wording.plural(count, name) for name, count in counts.items() if count)
    return f"{wording.plural(len(report.findings), 'finding')}, most expensive first ({parts})"


def _notes(report: Report, page: Page, view: View) -> None:
    notes = tuple(dict.fromkeys((*report.notes, *report.run.notes)))
    if not notes:
        return
    page.blank()
    page.line("Notes", style="bold")
    shown = notes if view.verbose or view.limit is None else notes[:NOTES_LIMIT]
    for note in shown:
        for number, row in enumerate(clean_block(note, limit=4000 if view.verbose else 600, lines=40 if view.verbose else 3).split("\n")):
            page.line(row, prefix="    " if number else "  - ")
    if len(shown) < len(notes):
        page.line(f"{wording.plural(len(notes) - len(shown), 'more note')} in report.json", prefix="  ")


def _files(report: Report, page: Page, view: View, directory: Path | None) -> None:
    where = str(directory) if directory else report.run.info.directory
    if where is None:
        return
    folder = wording.path(where, view.base)
    pictures = f", graphs/ ({wording.plural(len(report.pictures), 'picture')})" if report.pictures else ""
    page.blank()
    page.line(f"report.json, report.md{pictures}", prefix=Text(f"Files in {folder}/: ", style="bold"), hang="  ")
