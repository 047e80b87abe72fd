"""What opens a report (verdict, counts that are not zero, how the program ended), and the lines that brief and full reports share."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from dynadiag.changes.smaller_calls import COMPILE_CALLED
from dynadiag.changes.train_step import COMPILE_APART
from dynadiag.facts.compiled_work import compiled_work
from dynadiag.facts.failed_attempts import failed_attempts
from dynadiag.facts.lookups import is_from_text
from dynadiag.facts.wording import script_arguments, unique
from dynadiag.model import codes
from dynadiag.model.report import Report
from dynadiag.render import mutation_words as words
from dynadiag.render import wording
from dynadiag.render.completeness import completeness
from dynadiag.render.page import Page
from dynadiag.render.sanitise import clean
from dynadiag.render.verdict import ending, not_in_text, verdict

LABEL = "bold"
_REASONS = 3
_SMALLER = frozenset((COMPILE_CALLED, COMPILE_APART))
NOTHING_IN_TEXT = "the text shows no graph break, recompile or fallback"


def write_opening(report: Report, page: Page) -> None:
    """The verdict, the counts that are not zero, and how the program ended."""
    write_failed_passes(report, page)
    write_verdict(report, page)
    told = verdict(report) is not None
    work = None if told else compiled_work(report.run)
    if work is not None and work.operators:
        limited = not work.compiled and any(fallback.kind == "recompile_limit" for fallback in report.fallbacks)
        page.line(f"{wording.compiled_work(work)}{'; the recompile limit was hit' if limited else ''}", style="bold")
    for row in (never_compiled(report), try_first(report)):
        if row is not None:
            page.line(row)
    counts = list(present(report, told=told))
    if is_from_text(report.run):
        page.parts(counts or [NOTHING_IN_TEXT], ", ", prefix="the text shows: " if counts else "", style="bold")
        if (missing := not_in_text(report)) is not None:
            page.line(missing)
    elif counts or not wording.nothing_compiled(report):
        page.parts(counts or failures(report) or ["no graph breaks, recompiles or fallbacks"], ", ", style="bold")
    _circumstances(report, page)


def never_compiled(report: Report) -> str | None:
    """What Dynamo tried to compile several times and never did, which the counts of compiled calls leave out."""
    tried = [f"{clean(name)} ({count} attempts)" for name, count in failed_attempts(report.run).items()]
    return f"never compiled, but tried again and again: {', '.join(tried[:_REASONS])}" if tried else None


def try_first(report: Report) -> str | None:
    """To compile what a compiled driver calls instead of it, where that is the first thing to change for a finding."""
    first = (finding.fix[0] for finding in report.findings if finding.fix and finding.severity != "note")
    change = next((advice for advice in first if advice.slug in _SMALLER), None)
    if change is None or change.after is None:
        return None
    rows = [clean(row) for row in change.after.splitlines() if ".compile(" in row]
    instead = f" instead of `{clean(change.before)}`" if change.before else " instead of the function around it"
    return f"try first: `{'; '.join(rows)}`{instead}" if rows else None


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
    if not report.run.compile_calls and not reasons and not report.run.info.stopped:
        reasons = ["no call of torch.compile was recorded"]
    different = list(dict.fromkeys(reasons))
    for reason in different[:_REASONS]:
        page.line(reason, prefix="  ")
    if len(different) > _REASONS:
        page.line(f"and {wording.plural(len(different) - _REASONS, 'more reason')}: --full", prefix="  ")


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
    return f"The recording is cut short: {clean(why or '')}. The report covers everything before that." if complete is False else None


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
    if facts.ranks_in_words is not None:
        yield facts.ranks_in_words


def failures(report: Report) -> list[str]:
    """The titles of what failed, for a report whose counts are all zero: an export, say."""
    return list(unique(clean(finding.title) for finding in report.findings if finding.severity == "error"))[:_REASONS]


def present(report: Report, *, told: bool) -> Iterator[str]:
    """The counts that are not zero, each thing in one of them, without what the verdict has told: the graphs, and what ran in Python."""
    summary = report.summary
    count = wording.graphs_count(report)
    if not told and count != "0":
        yield f"{count} {'graph' if summary.graphs == 1 else 'graphs'}{wording.graphs_size(report)}"
    if summary.graph_break_sites:
        sites = wording.plural(summary.graph_break_sites, "graph break")
        yield f"{sites} ({wording.plural(summary.graph_break_events, 'event')})"
    if summary.recompiles:
        yield wording.plural(summary.recompiles, "recompile") + wording.recompiles_note(report)
    in_verdict = {name for finding in report.findings if finding.code == codes.NOTHING_COMPILED for name in finding.evidence}
    if summary.fallbacks and not (
        told and report.fallbacks and all(fallback.breaks or fallback.id in in_verdict for fallback in report.fallbacks)
    ):
        yield wording.plural(summary.fallbacks, "fallback to eager", "fallbacks to eager")
    if costly := words.costly(report):
        yield wording.plural(costly, "mutation with a cost", "mutations with a cost")
    if summary.compile_s is not None:
        yield f"{wording.seconds(summary.compile_s)} of compile time"


def no_findings(report: Report, page: Page) -> None:
    """That there are none, which is good news only where something was compiled."""
    if is_from_text(report.run):
        page.line("No findings in what the text shows.", style="bold")
        return
    if not wording.nothing_compiled(report):
        page.line("No findings.", style="bold green")
        return
    words = wording.nothing_words(report)
    page.line(f"No findings, because {words[:1].lower()}{words[1:]}.", style="bold")


def severities(report: Report) -> str:
    """`3 findings, most expensive first (1 error, 2 warnings)`."""
    parts = ", ".join(wording.plural(count, name) for name, count in wording.by_severity(report.findings))
    return f"{wording.plural(len(report.findings), 'finding')}, most expensive first ({parts})"


def write_files(report: Report, page: Page, folder: str | None) -> None:
    """Which files were written, and where."""
    files = [name for name in ("report.html", "report.json", "report.md") if name not in report.not_written]
    files += [f"graphs/ ({wording.plural(len(report.pictures), 'picture')})"] if report.pictures else []
    if folder is None or not files:
        return
    page.blank()
    page.parts(files, ", ", prefix=Text(f"Files in {folder}/: ", style=LABEL), hang="  ")
