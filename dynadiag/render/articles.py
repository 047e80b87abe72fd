"""A finding as an article: once for the terminal, Markdown, pages and notebooks, which print every article in the same way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from dynadiag.facts.lookups import is_from_text
from dynadiag.facts.wording import short_place, unique
from dynadiag.model.clauses import Clause, GraphsAround, Settled, Unadvised, VersionsUsed
from dynadiag.model.report import Advice, Finding, GraphBreak, Report
from dynadiag.model.sentences import sentences
from dynadiag.render import wording
from dynadiag.render.document import Article, Paragraph
from dynadiag.rules.hint_trials import with_trials
from dynadiag.rules.rule import page_address

Length = Literal["head", "fix", "brief", "full", "verbose"]
"""How much of a finding is told: title and place; these with what to change; the first reasons too; all; and torch's own explanation."""

_STACK_LIMIT = 12
_EVIDENCE_LIMIT = 8
_SITES = {"brief": 2, "full": 6, "verbose": None}
_REASON_LINES = {"brief": 6, "full": 12, "verbose": 40}
_BRIEF_REASON = 160
_HINTS = 2
_NAMES_TORCH = re.compile(r"`[^`]*\btorch\.\w")


def finding_article(finding: Finding, report: Report, *, base: Path | None, length: Length = "full") -> Article:
    """What is told of a finding in so much room; places are written relative to `base`."""
    where = finding.where
    shown: Iterable[Paragraph] = ()
    if length != "head":
        shown = change_paragraphs(_first_ideas(finding.fix)) if length == "fix" else _paragraphs(finding, report, base, length)
    return Article(
        id=finding.id,
        severity=finding.severity,
        code=finding.code,
        address=page_address(finding.code),
        title=finding.title,
        place="" if where is None else wording.place(where, base),
        line=None if where is None else where.line,
        source="" if where is None or length in ("head", "fix") else where.code or "",
        paragraphs=tuple(shown),
    )


def change_paragraphs(fix: Sequence[Advice]) -> Iterator[Paragraph]:
    """Each piece of advice: `fix` (`idea`: what is not established), then `or` for another way to the same end, `then` for what is needed
    as well.
    """
    for number, advice in enumerate(fix):
        first = "idea" if advice.how_sure == "idea" else "fix"
        yield Paragraph(
            label=("then" if advice.follows else "or") if number else first,
            kind="change",
            text=advice.words,
            imports=advice.imports,
            before=advice.before,
            after=advice.after,
        )


def _first_ideas(fix: Sequence[Advice]) -> Sequence[Advice]:
    """Where there is little room, one idea: the others are for who does not like it."""
    return fix[:1] if fix and fix[0].how_sure == "idea" else fix


def _paragraphs(finding: Finding, report: Report, base: Path | None, length: Length) -> Iterator[Paragraph]:
    sites = _sites(finding, report)
    clauses = _first_clauses(finding.clauses) if length == "brief" else finding.clauses
    yield from _library_lines(finding, sites, None if length == "verbose" else base, length)
    yield Paragraph(label="why", kind="reason", text=sentences(clauses), lines=_REASON_LINES[length])
    yield from change_paragraphs(_first_ideas(finding.fix) if length == "brief" else finding.fix)
    if not finding.fix and length != "verbose" and is_from_text(report.run):
        yield from (Paragraph(label="hint", text=f"torch: {hint}", lines=4) for hint in _hints(sites))
    if length == "brief":
        if finding.cost is not None and finding.cost.is_time:
            yield Paragraph(label="cost", kind="fact", text=wording.cost(finding.cost))
        return
    yield from (Paragraph(label="unsure", text=doubt, lines=6) for doubt in (sites[0].doubts if sites else ()))
    if finding.cost is not None:
        yield Paragraph(label="cost", kind="fact", text=wording.cost(finding.cost))
    if finding.evidence:
        yield _evidence(finding, report)
    if length == "verbose" and sites:
        yield from _torchs_own(sites[0])


def _first_clauses(clauses: Sequence[Clause]) -> list[Clause]:
    """As many clauses as have room, at least the first, none that lists graphs; then that an error ended the call, and why nothing is
    advised or has to change.
    """
    last = [one for one in clauses if isinstance(one, Settled) or (isinstance(one, Unadvised) and not one.but_ideas)]
    others = [one for one in clauses if not isinstance(one, Unadvised | Settled | GraphsAround)]
    kept = others[:1]
    for clause in others[1:]:
        if len(sentences([*kept, clause])) > _BRIEF_REASON:
            break
        kept.append(clause)
    ended = [one for one in others if isinstance(one, VersionsUsed) and one.raised and one not in kept]
    return [*kept, *ended, *last[:1]]


def _sites(finding: Finding, report: Report) -> list[GraphBreak]:
    known = wording.evidence_breaks(report)
    return [known[name] for name in finding.evidence if name in known]


def _library_lines(finding: Finding, sites: Sequence[GraphBreak], base: Path | None, length: Length) -> Iterator[Paragraph]:
    """The lines of libraries where Dynamo stopped, with torch's ids and counts where they are several.

    In brief none that the reasons name already.
    """
    named = sentences(finding.clauses) if length == "brief" else ""
    inner = [
        (place, site)
        for site in sites
        if (place := site.torch_frame) is not None and not place.is_same_line(finding.where) and short_place(place) not in named
    ]
    limit = _SITES[length]
    for place, site in inner[:limit]:
        count = f" ({site.gb_id or 'no id'}, {wording.plural(site.events, 'event')})" if len(inner) > 1 else ""
        yield Paragraph(label="in", text=f"{wording.place(place, base)}{count}", code=place.code or "")
    if limit is not None and len(inner) > limit:
        yield Paragraph(label="", text=f"and {len(inner) - limit} more sites: see report.json")


def _hints(sites: Sequence[GraphBreak]) -> tuple[str, ...]:
    """What torch itself hints at, where it names something of its own to set or to call: a text may be all that there is to go by."""
    return unique(with_trials(hint) for site in sites[:1] for hint in site.hints if _NAMES_TORCH.search(hint))[:_HINTS]


def _evidence(finding: Finding, report: Report) -> Paragraph:
    more = len(finding.evidence) - _EVIDENCE_LIMIT
    picture = next((report.pictures[name] for name in finding.evidence if name in report.pictures), None)
    rest = (f"and {more} more" if more > 0 else "", "" if picture is None else f"({picture})")
    return Paragraph(label="see", kind="fact", ids=finding.evidence[:_EVIDENCE_LIMIT], text=" ".join(filter(None, rest)))


def _torchs_own(site: GraphBreak) -> Iterator[Paragraph]:
    if site.explanation:
        yield Paragraph(label="torch", text=site.explanation, lines=20)
    yield from (Paragraph(label="hint", text=with_trials(hint), lines=8) for hint in site.hints)
    if site.context:
        yield Paragraph(label="data", text=site.context, lines=8)
    if site.skip_reason:
        yield Paragraph(label="skip", text=site.skip_reason, lines=8)
    if site.stack:
        stack = "\n".join(wording.place(location, None) for location in site.stack[-_STACK_LIMIT:])
        yield Paragraph(label="stack", text=stack, lines=_STACK_LIMIT)
