"""A `FixResult` as text for a terminal and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.facts.wording import short_place
from dynadiag.fix.result import Changed, FixResult
from dynadiag.model.report import Finding, Summary
from dynadiag.render.markdown_text import fenced, prose
from dynadiag.render.sanitise import clean
from dynadiag.render.wording import plural

_WIDTH = 400
_MARGIN = re.compile(r" *(?:[+-] +)?")


def as_text(result: FixResult) -> str:
    """What was changed and proven, what is left and why, and the counts before and after."""
    return "".join(f"{_clean(line)}\n" for line in _text(result))


def _clean(line: str) -> str:
    """The line as it may be printed, its indentation and that of code behind a plus or minus kept."""
    margin = _MARGIN.match(line)
    start = "" if margin is None else margin[0]
    return f"{start}{clean(line[len(start) :], limit=_WIDTH)}".rstrip()


def _text(result: FixResult) -> Iterator[str]:
    yield headline(result)
    for number, change in enumerate(result.kept, start=1):
        yield ""
        yield f"change {number} {change.slug}: {change.text}"
        yield from (f"    {line}" for line in _about(change, result))
    others = [one for one in result.findings if one.fingerprint in result.left]
    if others:
        yield ""
        yield "Left"
    for finding in others:
        yield f"  {finding.severity} {finding.code} {_place(finding)}"
        yield f"      {result.left[finding.fingerprint]}"
    yield ""
    if result.after is not None:
        yield f"before {counts(result.before)}"
        yield f"after {counts(result.after)}"
    yield _cost(result)


def headline(result: FixResult) -> str:
    """What came of it in one line."""
    if not result.findings:
        return "nothing to fix: there are no warnings"
    found = f"{result.cured} of {plural(len(result.findings), 'finding')} cured and proven"
    if result.not_proven is not None:
        return f"nothing is proven: {result.not_proven}"
    return f"{found}, {plural(len(result.kept), 'change')}" if result.kept else f"{found}: no change is proven"


def _about(change: Changed, result: FixResult) -> Iterator[str]:
    names = {one.fingerprint: one for one in result.findings}
    found = [names[cure] for cure in change.cures if cure in names]
    yield from (f"cures {one.code} at {_place(one)}" for one in found)
    if not found:  # a site in a library, which has a name of its own
        yield f"changes {change.places[0]}"
    yield from (f"- {row}" for row in change.before)
    yield from (f"+ {row}" for row in change.after)
    yield f"proven {plural(change.calls, 'call')} compared with the original in eager: {', '.join(change.runs)}"
    if change.gives_up is not None:
        yield f"gives up: {change.gives_up}"


def _place(finding: Finding) -> str:
    return "unknown place" if finding.where is None else short_place(finding.where)


def counts(summary: Summary) -> str:
    """The counts of a run in one line."""
    breaks = f"{plural(summary.graph_break_sites, 'graph break')} ({plural(summary.graph_break_events, 'event')})"
    rest = f"{plural(summary.recompiles, 'recompile')}, {plural(summary.fallbacks, 'fallback')}, {plural(summary.graphs, 'graph')}"
    return f"{breaks}, {rest}"


def _cost(result: FixResult) -> str:
    times = f", {result.cpu_s / result.script_cpu_s:.1f} times the script's own" if result.script_cpu_s else ""
    return f"{plural(result.runs, 'run')} of the script to prove it, {result.cpu_s:.0f} CPU seconds{times}"


def as_markdown(result: FixResult) -> str:
    """The same as Markdown, with the patch."""
    lines = ["# Fixes", "", prose(headline(result), limit=_WIDTH), ""]
    for number, change in enumerate(result.kept, start=1):
        lines.append(f"- **change {number}** {prose(f'{change.slug}: {change.text}', limit=_WIDTH)}")
        lines += [f"  - {prose(line, limit=_WIDTH)}" for line in _about(change, result) if line[:2] not in ("- ", "+ ")]
    left = [one for one in result.findings if one.fingerprint in result.left]
    if left:
        lines += ["", "## Left", ""]
    for finding in left:
        why = f"{finding.code} at {_place(finding)}: {result.left[finding.fingerprint]}"
        lines.append(f"- {prose(why, limit=_WIDTH)}")
    if result.after is not None:
        lines += ["", f"- before: {prose(counts(result.before))}", f"- after: {prose(counts(result.after))}"]
    lines += ["", prose(_cost(result)), ""]
    if result.patch:
        lines += ["## Patch", "", fenced(result.patch, language="diff", lines=400), ""]
    return "\n".join(lines)
