"""The report in brief: the verdict, the most expensive findings, what is left out, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.text import Text

from dynadiag.facts.compiled_work import compiled_work
from dynadiag.facts.wording import script_arguments, unique
from dynadiag.masking import MASK
from dynadiag.model import codes
from dynadiag.model.applied_advice import OPTIONS, REWRITES
from dynadiag.model.report import Finding, Report
from dynadiag.render import mutation_words as words
from dynadiag.render import parity_words, wording
from dynadiag.render.completeness import completeness
from dynadiag.render.ladder_builder import ladder
from dynadiag.render.ladder_text import ROWS_SHOWN, print_ladder
from dynadiag.render.page import Page
from dynadiag.render.sanitise import clean, clean_block
from dynadiag.render.terminal_findings import print_brief, print_head
from dynadiag.render.verdict import ending, verdict
from dynadiag.rules.rule import is_known

BRIEF_LIMIT = 3
BRIEF_LINES = 45
_BRIEF_NOTES = 2
_FEWEST_ROWS = 8
_BETWEEN = 6  # heads of the ladder's functions, what it leaves out, blank lines and the count of findings
_LABEL = "bold"


def write_summary(
    report: Report,
    page: Page,
    *,
    limit: int | None = BRIEF_LIMIT,
    lines: int | None = BRIEF_LINES,
    base: Path,
    folder: str | None,
    log: Path | None = None,
) -> None:
    """Write the parts in their order; after the first finding only those with which all of it has at most so many `lines`.

    `folder` is where the report's files are; where there are none, `log` is the log that was read.
    """
    write_opening(report, page)
    page.blank()
    left = (
        None
        if lines is None
        else lines
        - page.measured(lambda rest: _closing(report, rest, shown=[(one, True) for one in report.findings[:1]], folder=folder, log=log))
    )
    if print_ladder(ladder(report), page, base=base, rows=_rows(report, page, left, base)):
        page.blank()
    shown = _findings(report, page, limit=limit, lines=left, base=base)
    _closing(report, page, shown=shown, folder=folder, log=log)


def _rows(report: Report, page: Page, left: int | None, base: Path) -> int:
    """How many rows the ladder may have, so that with the first finding no more lines than are left are written."""
    if left is None or not report.findings:
        return ROWS_SHOWN
    finding = page.measured(partial(print_brief, report.findings[0], report, base=base))
    return max(_FEWEST_ROWS, min(ROWS_SHOWN, left - page.lines - finding - _BETWEEN))


def write_opening(report: Report, page: Page) -> None:
    """The verdict, the counts that are not zero, and how the program ended."""
    write_failed_passes(report, page)
    write_verdict(report, page)
    told = verdict(report) is not None
    work = None if told else compiled_work(report.run)
    if work is not None and work.operators:
        page.line(wording.compiled_work(work), style="bold")
    counts = list(present(report, told=told))
    if counts or not wording.nothing_compiled(report):
        page.parts(counts or ["no graph breaks, recompiles or fallbacks"], ", ", style="bold")
    _circumstances(report, page)


def write_verdict(report: Report, page: Page) -> None:
    """That nothing or next to nothing was compiled, where that is so, and why where no finding says it."""
    loudly = verdict(report)
    if loudly is None:
        return
    page.line(loudly, style="bold red")
    if not wording.nothing_compiled(report) or any(finding.code == codes.NOTHING_COMPILED for finding in report.findings):
        return
    told = {name for finding in report.findings for name in finding.evidence}
    left = [item for item in report.fallbacks if item.id not in told]
    reasons = [f"{wording.FALLBACK_KINDS.get(item.kind, clean(item.kind))}: {clean(item.reason)}" for item in left]
    if not report.run.compile_calls and not reasons:
        reasons = ["no call of torch.compile was recorded"]
    for reason in dict.fromkeys(reasons):
        page.line(reason, prefix="  ")


def _circumstances(report: Report, page: Page) -> None:
    """What ran and how it ended, in one line."""
    command = script_arguments(report.run)
    name = clean(" ".join(command)) if command else wording.command(report)
    page.parts(circumstances(report), " | ", prefix=Text.assemble((name, "bold cyan"), "  "), hang="  ")
    write_cut_short(report, page)


def write_cut_short(report: Report, page: Page) -> None:
    """That the recording is incomplete, and why."""
    if said := cut_short(report):
        page.line(said, style="yellow")


def cut_short(report: Report) -> str | None:
    """That the recording is incomplete, and why; None where it is not, or where that is not known."""
    complete, why = completeness(report.run)
    return f"The recording is cut short: {clean(why or '')}. Everything up to that point is below." if complete is False else None


def write_failed_passes(report: Report, page: Page) -> None:
    """That findings are missing, because an error of dynadiag's own cost them."""
    if failed := wording.failed_passes(report):
        page.line(failed, style="bold red")


def circumstances(report: Report) -> Iterator[str]:
    """How the program ended and with which exception, the versions, the device and how many processes there were."""
    facts = wording.environment(report.run.processes)
    yield ending(report) or "exit status not known (foreign log)"
    yield f"torch {facts.torch or 'version not known'}"
    yield from (part for part in (facts.python and f"Python {facts.python}", facts.device) if part)
    yield wording.plural(facts.processes, "process", "processes")
    if facts.ranks:
        yield wording.plural(facts.ranks, "rank")


def present(report: Report, *, told: bool) -> Iterator[str]:
    """The counts that are not zero, without what the verdict has told: the graphs, and the functions that a break left to Python."""
    summary = report.summary
    count = wording.graphs_count(report)
    if not told and count != "0":
        yield f"{count} {'graph' if summary.graphs == 1 else 'graphs'}{wording.graphs_size(report)}"
    if summary.graph_break_sites:
        sites = wording.plural(summary.graph_break_sites, "graph break")
        yield f"{sites} ({wording.plural(summary.graph_break_events, 'event')})"
    if summary.recompiles:
        since = wording.recompiles_since(report)
        yield wording.plural(summary.recompiles, "recompile") + (f" ({since})" if since else "")
    if summary.fallbacks and not (told and report.fallbacks and all(one.breaks for one in report.fallbacks)):
        yield wording.plural(summary.fallbacks, "fallback to eager", "fallbacks to eager")
    costly = sum(not words.is_folded(one) for one in report.mutations)
    if costly:
        yield wording.plural(costly, "mutation with a cost", "mutations with a cost")
    if summary.compile_s is not None:
        yield f"{wording.seconds(summary.compile_s)} of compile time"


def _findings(report: Report, page: Page, *, limit: int | None, lines: int | None, base: Path) -> Sequence[tuple[Finding, bool]]:
    """The most expensive ones; gives those that were written, and whether in whole: of one without room for that, title and place are."""
    if not report.findings:
        no_findings(report, page)
        return ()
    page.line(severities(report), style="bold")
    shown: list[tuple[Finding, bool]] = []
    for finding in report.findings[:limit]:
        brief, head = partial(print_brief, finding, report, base=base), partial(print_head, finding, base=base)
        room = None if lines is None or not shown else lines - page.lines - 1
        write = next((one for one in (brief, head) if room is None or page.measured(one) <= room), None)
        if write is None:
            break
        page.blank()
        write(page)
        shown.append((finding, write is brief))
    return shown


def no_findings(report: Report, page: Page) -> None:
    """That there are none, which is good news only where something was compiled."""
    nothing = wording.nothing_compiled(report)
    page.line("No findings, because nothing was compiled." if nothing else "No findings.", style="bold" if nothing else "bold green")


def severities(report: Report) -> str:
    """`3 findings, most expensive first (1 error, 2 warnings)`."""
    parts = ", ".join(wording.plural(count, name) for name, count in wording.by_severity(report.findings))
    return f"{wording.plural(len(report.findings), 'finding')}, most expensive first ({parts})"


def _closing(report: Report, page: Page, *, shown: Sequence[tuple[Finding, bool]], folder: str | None, log: Path | None) -> None:
    notes = wording.notes(report)
    rows = [("", clean(row)) for row in _parity(report)] + [("note: ", clean(note, limit=240)) for note in notes[:_BRIEF_NOTES]]
    if rows:
        page.blank()
    for label, row in rows:
        page.line(row, prefix=label)
    write_files(report, page, folder)
    hidden = list(_hidden(report, shown, len(notes) - _BRIEF_NOTES))
    looked_up = tuple(unique(finding.code for finding, _ in shown if is_known(finding.code)))
    if looked_up:
        page.whole(f"dynadiag rule {' '.join(looked_up)}", prefix="more on a code: ")
    if hidden:
        read = folder if log is None else str(log)
        full = "--full" if read is None or clean_block(read) != read else f"`{shlex.join(('dynadiag', 'explain', '--full', read))}`"
        page.line(f"{full} also shows {', '.join(hidden)}.")
    _next(report, page)
    if folder is None and log is not None and clean_block(str(log)) == str(log):
        page.whole(shlex.join(("dynadiag", "explain", "--open", str(log))), prefix=Text("page  ", style=_LABEL))


def _parity(report: Report) -> Iterator[str]:
    if report.parity is not None:
        yield f"Parity: {parity_words.verdict(report.parity)}"
    if report.replayed is not None:
        yield f"Could happen: {parity_words.could_happen(report.replayed)}"


def _hidden(report: Report, shown: Sequence[tuple[Finding, bool]], notes: int) -> Iterator[str]:
    """What the summary leaves out, each kind with its count."""
    yield from (wording.plural(count, f"more {name}") for name, count in wording.by_severity(report.findings[len(shown) :]))
    if titles := unique(finding.code for finding, whole in shown if not whole):
        yield f"the rest of {', '.join(clean(code, limit=40) for code in titles)}"
    tables = {
        "recompiled value": len(report.transitions),
        "fallback": len(report.fallbacks),
        "mutation": len(report.mutations),
        "graph": len(report.run.graphs),
        "rank difference": len(report.ranks),
        "note": max(0, notes),
    }
    yield from (wording.plural(count, name) for name, count in tables.items() if count)


def write_files(report: Report, page: Page, folder: str | None) -> None:
    """Which files were written, and where."""
    if folder is None:
        return
    pictures = f", graphs/ ({wording.plural(len(report.pictures), 'picture')})" if report.pictures else ""
    page.blank()
    page.line(f"report.html, report.json, report.md{pictures}", prefix=Text(f"Files in {folder}/: ", style=_LABEL), hang="  ")


def _next(report: Report, page: Page) -> None:
    """The command to type after the findings were read; nothing where the recorded command line is not known, or not shown as it is."""
    command = script_arguments(report.run)
    script = shlex.join(command or ())
    if not script or MASK in script or not report.findings or clean_block(script) != script:
        return
    if _advised(report.findings, "minify"):
        page.whole(f"dynadiag minify {script}", prefix=Text("next  ", style=_LABEL))
    elif not script.startswith("-") and _is_applied(report):
        page.whole(f"dynadiag fix {script}", prefix=Text("next  ", style=_LABEL))
    elif any(finding.fix for finding in report.findings):
        page.whole(f"change a line, then dynadiag explain {script}", prefix=Text("next  ", style=_LABEL))


def _is_applied(report: Report) -> bool:
    """Whether `dynadiag fix` would try something: it applies an advice for a warning, and the program compiles in one process."""
    slugs = {advice.slug for finding in report.findings if finding.severity != "note" for advice in finding.fix}
    return report.summary.processes == 1 and not slugs.isdisjoint(REWRITES | OPTIONS)


def _advised(findings: Sequence[Finding], slug: str) -> bool:
    return any(advice.slug == slug for finding in findings for advice in finding.fix)
