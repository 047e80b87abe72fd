"""One finding in a terminal: title, the line it is about, why, what to change, what it costs."""

from __future__ import annotations

import re
from pathlib import Path

from rich.style import Style
from rich.text import Text

from dynadiag.facts.wording import short_place
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Finding, GraphBreak, Report
from dynadiag.render import wording
from dynadiag.render.page import Page
from dynadiag.render.sanitise import clean, clean_block, clean_code
from dynadiag.rules.rule import page_address

SEVERITY_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_LABEL_WIDTH = 6
_STACK_LIMIT = 12
_EVIDENCE_LIMIT = 8
_SITE_LIMIT = 6
_BRIEF_SITES = 2
_BRIEF_WHY = 160
_NO_CHANGE = re.compile(r"\b(?:[Nn]othing is advised: |No change is needed|Nothing has to change).*", re.DOTALL)
_LISTS_GRAPHS = re.compile(r"^(?:graphs before it|after it): ")


def print_brief(finding: Finding, report: Report, page: Page, *, base: Path | None) -> None:
    """Print what to know first of a finding: its line, the beginning of why, what to change, and the cost where it was measured."""
    _head(finding, report, page, base=base, limit=_BRIEF_SITES, said=finding.why)
    _labelled(page, "why", clean_block(_beginning(finding.why), lines=6))
    for label, advice in wording.advice_labels(finding.fix):
        _advice(label, advice, page)
    if finding.cost is not None and finding.cost.is_time:
        _labelled(page, "cost", wording.cost(finding.cost))


def print_head(finding: Finding, page: Page, *, base: Path | None, fix: bool = False) -> None:
    """Print what a finding is and where, and what to `fix`, for one whose rest has no room."""
    page.line(_title(finding, page), hang="    ")
    _source_line(finding.where, page, base, code=False)
    for label, advice in wording.advice_labels(finding.fix) if fix else ():
        _advice(label, advice, page)


def _beginning(why: str) -> str:
    """As many whole clauses as have room, at least the first, none that lists graphs; then why nothing is advised, which ends a reason."""
    end = _NO_CHANGE.search(why)
    clauses = [item for item in re.split(r"(?<=[.;])\s+", why[: end.start()] if end else why) if not _LISTS_GRAPHS.search(item)]
    kept = clauses[:1]
    for clause in clauses[1:]:
        if len(" ".join([*kept, clause])) > _BRIEF_WHY:
            break
        kept.append(clause)
    said = " ".join(kept).strip().rstrip(".;")
    return " ".join(part for part in (said and f"{said}.", end and end[0][:1].upper() + end[0][1:]) if part)


def print_finding(finding: Finding, report: Report, page: Page, *, verbose: bool, base: Path | None) -> None:
    """Print one finding with the code line it is about and, when it rests on a graph break elsewhere, torch's own frame."""
    _head(finding, report, page, base=base, limit=None if verbose else _SITE_LIMIT, verbose=verbose)
    site = _site(finding, report)
    _labelled(page, "why", clean_block(finding.why, lines=40 if verbose else 12))
    for label, advice in wording.advice_labels(finding.fix):
        _advice(label, advice, page)
    for doubt in site.doubts if site is not None else ():
        _labelled(page, "unsure", clean_block(doubt, lines=6))
    if finding.cost is not None:
        _labelled(page, "cost", wording.cost(finding.cost))
    _labelled(page, "see", _evidence(finding, report))
    if verbose and site is not None:
        _details(site, page)


def _head(
    finding: Finding, report: Report, page: Page, *, base: Path | None, limit: int | None, verbose: bool = False, said: str = ""
) -> None:
    """Title, line, and the lines of libraries that are not `said` elsewhere."""
    page.line(_title(finding, page), hang="    ")
    _source_line(finding.where, page, base)
    _inner_sites(finding, report, page, base=None if verbose else base, limit=limit, said=said)


def _title(finding: Finding, page: Page) -> Text:
    style = SEVERITY_STYLES.get(finding.severity, "bold")
    address = page_address(finding.code) if page.links else None
    code = Text(clean(finding.code, limit=40), style=Style.parse(style) + Style(link=address))
    return Text.assemble((f"{clean(finding.severity, limit=20)} ", style), code, "  ", (clean(finding.title), "bold"))


def _site(finding: Finding, report: Report) -> GraphBreak | None:
    known = wording.evidence_breaks(report)
    return next((known[name] for name in finding.evidence if name in known), None)


def _inner_sites(finding: Finding, report: Report, page: Page, *, base: Path | None, limit: int | None, said: str) -> None:
    """The lines of libraries where Dynamo stopped, with torch's ids and counts where they are several; none that was `said`."""
    known = wording.evidence_breaks(report)
    sites = [known[name] for name in finding.evidence if name in known]
    inner = [
        site
        for site in sites
        if site.torch_frame is not None and not _same_place(site.torch_frame, finding.where) and short_place(site.torch_frame) not in said
    ]
    for site in inner[:limit]:
        where = site.torch_frame
        if where is not None:
            told = f" ({clean(site.gb_id or 'no id', limit=40)}, {wording.plural(site.events, 'event')})" if len(inner) > 1 else ""
            _labelled(page, "in", f"{wording.place(where, base)}{told}")
            if where.code:
                page.line(clean_code(where.code), prefix=" " * (_LABEL_WIDTH + 6), style="dim")
    if limit is not None and len(inner) > limit:
        _labelled(page, "", f"and {len(inner) - limit} more sites: see report.json")


def _same_place(location: Location | None, other: Location | None) -> bool:
    return location is not None and other is not None and (location.file, location.line) == (other.file, other.line)


def _source_line(where: Location | None, page: Page, base: Path | None, *, code: bool = True) -> None:
    if where is None:
        return
    page.line(Text(wording.place(where, base), style="cyan"), prefix=Text("  --> ", style="dim"))
    if where.code and code:
        number = "" if where.line is None else str(where.line)
        page.line(clean_code(where.code), prefix=Text(f"{number:>{_LABEL_WIDTH}} | ", style="dim"), hang=" " * _LABEL_WIDTH + " | ")


def _labelled(page: Page, label: str, text: str) -> None:
    if not text:
        return
    prefix = Text(f"{label:>{_LABEL_WIDTH}}   ", style="bold")
    for number, row in enumerate(text.split("\n")):
        page.line(row, prefix=" " * prefix.cell_len if number else prefix)


def _advice(label: str, advice: Advice, page: Page) -> None:
    _labelled(page, label, clean_block(advice.text, lines=12))
    margin = " " * (_LABEL_WIDTH + 3)
    for statement in advice.imports:
        page.whole(clean(statement), style="green", prefix=Text.assemble((f"{'needs':>{_LABEL_WIDTH}}", "bold"), ("   + ", "green")))
    for sign, code, style in (("- ", advice.before, "red"), ("+ ", advice.after, "green")):
        for row in clean_block(code, lines=20).split("\n") if code else ():
            page.whole(row, style=style, prefix=Text(margin + sign, style=style))


def _evidence(finding: Finding, report: Report) -> str:
    names = [clean(name, limit=20) for name in finding.evidence]
    more = len(names) - _EVIDENCE_LIMIT
    text = ", ".join(names[:_EVIDENCE_LIMIT]) + (f" and {more} more" if more > 0 else "")
    pictures = [clean(report.pictures[name], limit=120) for name in finding.evidence if name in report.pictures]
    return f"{text} ({pictures[0]})" if pictures else text


def _details(site: GraphBreak, page: Page) -> None:
    if site.explanation:
        _labelled(page, "torch", clean_block(site.explanation, lines=20))
    for hint in site.hints:
        _labelled(page, "hint", clean_block(hint, lines=8))
    if site.context:
        _labelled(page, "data", clean_block(site.context, lines=8))
    if site.skip_reason:
        _labelled(page, "skip", clean_block(site.skip_reason, lines=8))
    stack = "\n".join(wording.place(location, None) for location in site.stack[-_STACK_LIMIT:])
    _labelled(page, "stack", stack)
