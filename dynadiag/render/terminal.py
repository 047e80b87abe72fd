"""The report in a terminal: in brief what matters most, in full the headline, all findings and the tables behind them.

Colours are the sixteen of the terminal's own palette, so that they read on light and dark. Without a tty, under NO_COLOR or on a dumb
terminal rich drops them and the text says the same.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dynadiag.model.report import Report
from dynadiag.render import wording
from dynadiag.render.articles import finding_article
from dynadiag.render.brief import BRIEF_LIMIT, BRIEF_LINES, write_summary
from dynadiag.render.ladder import that_matter
from dynadiag.render.ladder_builder import ladder
from dynadiag.render.ladder_text import print_ladder
from dynadiag.render.page import Page
from dynadiag.render.sanitise import clean_block
from dynadiag.render.sections import Detail, mutations, sections
from dynadiag.render.summary import (
    circumstances,
    no_findings,
    severities,
    write_cut_short,
    write_failed_passes,
    write_files,
    write_opening,
    write_verdict,
)
from dynadiag.render.verdict import counts, not_in_text, verdict

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
    links: bool = False,
) -> None:
    """Print the whole report.

    Args:
        report: the diagnosis; every text in it is sanitised here.
        console: a rich console; no line is wider than it.
        limit: how many findings (and rows per table) are shown, None for all. The number of hidden ones is printed.
        verbose: also torch's own explanation, the stacks and full library paths.
        base: paths below this absolute folder are shown relative to it; the current folder when None.
        directory: where report.json, report.md and graphs/ were written; the run directory when None.
        show_free: list mutations that cost nothing one by one.
        mutations_only: only the headline and what concerns mutations.
        links: torch's ids are links to torch's pages (OSC 8), for a terminal.
    """
    base = base or _current_folder()
    detail = Detail(base=base, verbose=verbose, show_free=show_free, mutation_advice=mutations_only)
    page = Page(console, links=links)
    if mutations_only:
        known = {mutation.id for mutation in report.mutations}
        report = replace(report, findings=tuple(finding for finding in report.findings if known.intersection(finding.evidence)))
    _headline(report, page)
    if not mutations_only:
        found = ladder(report)
        if that_matter(found):
            page.blank()
        print_ladder(found, page, base=base, functions=limit, rows=None)
    _findings(report, page, limit, detail)
    for section in (mutations if mutations_only else sections)(report, detail):
        page.section(section, limit=limit)
    _notes(report, page, limit, verbose)
    write_files(report, page, _folder(report, base, directory))


def print_summary(
    report: Report,
    console: Console,
    *,
    limit: int | None = BRIEF_LIMIT,
    lines: int | None = BRIEF_LINES,
    base: Path | None = None,
    directory: Path | None = None,
    links: bool = False,
    log: Path | None = None,
    before: Path | None = None,
    can_bench: bool = True,
) -> None:
    """Print what to know first: the counts that are not zero, the most expensive findings, what is left out, and what to type next.

    The parameters are those of `print_report`; `lines`: how many in all; `log`: what was read; `before`: the run of the same
    command before this one; `can_bench`: whether `dynadiag bench` knows the recorded torch.
    """
    base = base or _current_folder()
    folder = _folder(report, base, directory)
    earlier = None if before is None else wording.path(str(before), base)
    page = Page(console, links=links)
    write_summary(report, page, limit=limit, lines=lines, base=base, folder=folder, log=log, before=earlier, can_bench=can_bench)


def print_verdict(report: Report, console: Console) -> None:
    """Print only what was compiled, the counts that are not zero, how the program ended, and how many findings there are."""
    page = Page(console)
    write_opening(report, page)
    if report.findings:
        page.line(severities(report))
    else:
        no_findings(report, page)


def _current_folder() -> Path:
    """What paths are shown relative to; a folder that was deleted meanwhile is none."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _headline(report: Report, page: Page) -> None:
    page.line(wording.command(report), style="bold", prefix=Text("dynadiag  ", style="bold cyan"))
    page.line(" | ".join(circumstances(report)))
    write_cut_short(report, page)
    write_failed_passes(report, page)
    if verdict(report) is not None:
        page.blank()
        write_verdict(report, page)
    page.blank()
    if (missing := not_in_text(report)) is not None:
        page.line(missing)
    for label, value in counts(report):
        page.line(value, prefix=Text(f"  {label:<14}", style="bold"))


def _findings(report: Report, page: Page, limit: int | None, detail: Detail) -> None:
    page.blank()
    if not report.findings:
        no_findings(report, page)
        return
    page.line(severities(report), style="bold")
    shown = report.findings[:limit]
    for finding in shown:
        page.blank()
        page.article(finding_article(finding, report, base=detail.base, length="verbose" if detail.verbose else "full"))
    hidden = len(report.findings) - len(shown)
    if hidden:
        page.blank()
        page.line(f"{wording.plural(hidden, 'more finding')} not shown: use --limit 0 for all, or see report.json.", style="bold")


def _notes(report: Report, page: Page, limit: int | None, verbose: bool) -> None:
    notes = wording.notes(report)
    if not notes:
        return
    page.blank()
    page.line("Notes", style="bold")
    shown = notes if verbose or limit is None else notes[:NOTES_LIMIT]
    for note in shown:
        for number, row in enumerate(clean_block(note, limit=4000 if verbose else 600, lines=40 if verbose else 3).split("\n")):
            page.line(row, prefix="    " if number else "  - ")
    if len(shown) < len(notes):
        page.line(f"{wording.plural(len(notes) - len(shown), 'more note')} in report.json", prefix="  ")


def _folder(report: Report, base: Path, directory: Path | None) -> str | None:
    """Where the files of the report are, for people; None where none were written."""
    where = str(directory) if directory else report.run.info.directory
    return None if where is None else wording.path(where, base)
