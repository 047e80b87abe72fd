"""The report in a terminal: in brief what matters most, in full the headline, all findings and the tables behind them.

Colours are the sixteen of the terminal's own palette, so that they read on light and dark. Without a tty, under NO_COLOR or on a dumb
terminal rich drops them and the text says the same.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.text import Text

from dynadiag.facts.wording import script_arguments
from dynadiag.masking import MASK
from dynadiag.model import codes
from dynadiag.model.report import Finding, Report, Severity
from dynadiag.render import mutation_words as words
from dynadiag.render import parity_words, wording
from dynadiag.render.completeness import completeness
from dynadiag.render.json_report import NO_COMPILE_TIME, NO_MUTATION_PASS
from dynadiag.render.ladder_builder import ladder
from dynadiag.render.ladder_text import print_ladder
from dynadiag.render.page import Page
from dynadiag.render.sanitise import clean, clean_block
from dynadiag.render.sections import Detail, mutations, sections
from dynadiag.render.terminal_findings import print_brief, print_finding

DEFAULT_LIMIT = 10
BRIEF_LIMIT = 3
BRIEF_LINES = 30
NOTES_LIMIT = 8
_BRIEF_NOTES = 2


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
        console: a rich console; no line is wider than it.
        limit: how many findings (and rows per table) are shown, None for all. The number of hidden ones is printed.
        verbose: also torch's own explanation, the stacks and full library paths.
        base: paths below this absolute folder are shown relative to it; the current folder when None.
        directory: where report.json, report.md and graphs/ were written; the run directory when None.
        show_free: list mutations that cost nothing one by one.
        mutations_only: only the headline and what concerns mutations.
    """
    base = base or _current_folder()
    detail = Detail(base=base, verbose=verbose, show_free=show_free, mutation_advice=mutations_only)
    page = Page(console)
    if mutations_only:
        known = {one.id for one in report.mutations}
        report = replace(report, findings=tuple(one for one in report.findings if known.intersection(one.evidence)))
    _headline(report, page)
    if not mutations_only:
        page.blank()
        print_ladder(ladder(report), page, base=base, functions=limit, rows=None)
    _findings(report, page, limit, detail)
    for one in (mutations if mutations_only else sections)(report, detail):
        page.section(one, limit=limit)
    _notes(report, page, limit, verbose)
    _files(report, page, _folder(report, base, directory))


def print_summary(
    report: Report,
    console: Console,
    *,
    limit: int | None = BRIEF_LIMIT,
    lines: int | None = BRIEF_LINES,
    base: Path | None = None,
    directory: Path | None = None,
) -> None:
    """Print what to know first: the counts that are not zero, the most expensive findings, what is left out, and what to type next.

    The parameters are those of `print_report`, and `lines`: after so many lines no further finding begins.
    """
    base = base or _current_folder()
    page = Page(console)
    _opening(report, page)
    page.line(", ".join(_present(report)) or "no graph breaks, recompiles or fallbacks", style="bold")
    page.blank()
    if print_ladder(ladder(report), page, base=base):
        page.blank()
    if not report.findings:
        _no_findings(report, page)
    else:
        page.line(_severities(report), style="bold")
    shown = 0
    for finding in report.findings[:limit]:
        if shown and lines is not None and page.lines > lines:
            break
        page.blank()
        print_brief(finding, report, page, base=base)
        shown += 1
    page.blank()
    if report.parity is not None:
        page.line(clean(f"Parity: {parity_words.verdict(report.parity)}"))
    if report.replayed is not None:
        page.line(clean(f"Could happen: {parity_words.could_happen(report.replayed)}"))
    notes = wording.notes(report)
    for note in notes[:_BRIEF_NOTES]:
        page.line(clean(note, limit=240), prefix="note: ")
    folder = _folder(report, base, directory)
    _files(report, page, folder)
    hidden = list(_hidden(report, shown, len(notes) - _BRIEF_NOTES))
    if hidden:
        full = "--full" if folder is None else f"`{shlex.join(('dynadiag', 'explain', '--full', folder))}`"
        page.line(f"{full} also shows {', '.join(hidden)}.")
    _next(report, page)


def _present(report: Report) -> Iterator[str]:
    """The counts that are not zero."""
    summary = report.summary
    graphs = wording.graphs_count(report)
    if graphs != "0":
        yield f"{graphs} {'graph' if summary.graphs == 1 else 'graphs'}{wording.graphs_size(report)}"
    if summary.graph_break_sites:
        sites = wording.plural(summary.graph_break_sites, "graph break")
        yield f"{sites} ({wording.plural(summary.graph_break_events, 'event')})"
    if summary.recompiles:
        yield wording.plural(summary.recompiles, "recompile")
    if summary.fallbacks:
        yield wording.plural(summary.fallbacks, "fallback to eager", "fallbacks to eager")
    costly = sum(not words.is_folded(one) for one in report.mutations)
    if costly:
        yield wording.plural(costly, "mutation with a cost", "mutations with a cost")
    if summary.compile_s is not None:
        yield f"{wording.seconds(summary.compile_s)} of compile time"


def _hidden(report: Report, shown: int, notes: int) -> Iterator[str]:
    """What the summary leaves out, each kind with its count."""
    yield from (wording.plural(count, f"more {name}") for name, count in _by_severity(report.findings[shown:]))
    tables = {
        "recompiled value": len(report.transitions),
        "fallback": len(report.fallbacks),
        "mutation": len(report.mutations),
        "graph": len(report.run.graphs),
        "rank difference": len(report.ranks),
        "note": max(0, notes),
    }
    yield from (wording.plural(count, name) for name, count in tables.items() if count)


def _next(report: Report, page: Page) -> None:
    """The command to type after the findings were read; nothing where the recorded command line is not known, or not shown as it is."""
    command = script_arguments(report.run)
    script = shlex.join(command or ())
    if not script or MASK in script or not report.findings or clean_block(script) != script:
        return
    if any(advice.slug == "minify" for finding in report.findings for advice in finding.fix):
        page.whole(f"dynadiag minify {script}", prefix=Text("next  ", style="bold"))
    elif any(finding.fix for finding in report.findings):
        page.whole(f"change a line, then dynadiag explain {script}", prefix=Text("next  ", style="bold"))


def _current_folder() -> Path:
    """What paths are shown relative to; a folder that was deleted meanwhile is none."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _opening(report: Report, page: Page) -> None:
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
    if failed := wording.failed_passes(report):
        page.line(failed, style="bold red")
    _loud(report, page)


def _headline(report: Report, page: Page) -> None:
    _opening(report, page)
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
        ("graphs", wording.graphs_count(report) + wording.graphs_size(report)),
        ("graph breaks", wording.breaks_count(summary)),
        ("recompiles", f"{summary.recompiles:,}"),
        ("ran eagerly", wording.plural(summary.fallbacks, "fallback")),
        ("mutations", words.count(report) if summary.mutations is not None else f"not known: {NO_MUTATION_PASS}"),
        (
            "compile time",
            wording.seconds(summary.compile_s) if summary.compile_s is not None else f"not known: {clean(time_why or NO_COMPILE_TIME)}",
        ),
    )


def _findings(report: Report, page: Page, limit: int | None, detail: Detail) -> None:
    page.blank()
    if not report.findings:
        _no_findings(report, page)
        return
    page.line(_severities(report), style="bold")
    shown = report.findings[:limit]
    for finding in shown:
        page.blank()
        print_finding(finding, report, page, verbose=detail.verbose, base=detail.base)
    hidden = len(report.findings) - len(shown)
    if hidden:
        page.blank()
        page.line(f"{wording.plural(hidden, 'more finding')} not shown: use --limit 0 for all, or see report.json.", style="bold")


def _no_findings(report: Report, page: Page) -> None:
    text = "No findings." if not wording.nothing_compiled(report) else "No findings, because nothing was compiled."
    page.line(text, style="bold" if wording.nothing_compiled(report) else "bold green")


def _by_severity(findings: Sequence[Finding]) -> Iterator[tuple[str, int]]:
    """The severities that occur, worst first, with their counts."""
    counts = Counter(finding.severity for finding in findings)
    return ((name, counts[name]) for name in get_args(Severity) if counts[name])


def _severities(report: Report) -> str:
    parts = ", ".join(wording.plural(count, name) for name, count in _by_severity(report.findings))
    return f"{wording.plural(len(report.findings), 'finding')}, most expensive first ({parts})"


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


def _files(report: Report, page: Page, folder: str | None) -> None:
    if folder is None:
        return
    pictures = f", graphs/ ({wording.plural(len(report.pictures), 'picture')})" if report.pictures else ""
    page.blank()
    page.line(f"report.html, report.json, report.md{pictures}", prefix=Text(f"Files in {folder}/: ", style="bold"), hang="  ")
