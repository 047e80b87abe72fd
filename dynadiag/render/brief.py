"""The report in brief: as much as fits a screen of the ladder and the most expensive findings, what is left out, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from rich.text import Text

from dynadiag.changes.kinds import CAPTURES, kind_of
from dynadiag.facts.user_frames import is_own_branch, is_own_file
from dynadiag.facts.wording import script_arguments, unique
from dynadiag.masking import MASK
from dynadiag.model.report import Finding, Report
from dynadiag.render import parity_words, wording
from dynadiag.render.articles import finding_article
from dynadiag.render.ladder import Ladder
from dynadiag.render.ladder_builder import ladder
from dynadiag.render.ladder_text import ROWS_SHOWN, print_ladder
from dynadiag.render.page import Page
from dynadiag.render.sanitise import clean, clean_block
from dynadiag.render.summary import LABEL, no_findings, severities, write_files, write_opening
from dynadiag.rules.rule import is_known

BRIEF_LIMIT = 3
BRIEF_LINES = 45
_NOTES = 2
_TIMED_CALL = 3
"""Which call `dynadiag bench` takes over."""
_FEWEST_ROWS = 8
Length = Literal["brief", "fix", "head"]
"""How much of a finding is shown, longest first, as `articles` counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What stands below the opening: so many rows of the ladder (0: none) and notes, and findings, each in one of three lengths."""

    rows: int = ROWS_SHOWN
    notes: int = _NOTES
    findings: tuple[tuple[Finding, Length], ...] = ()


_CHANGES: tuple[tuple[Length, ...], ...] = (("fix", "fix"), ("fix", "head"), ("fix",))
_PLACES: tuple[tuple[Length, ...], ...] = (("head", "head"), ("head",))
"""How many findings stand below the first one, and how long they are at least: what is given up in turn until it fits."""
_SHORTER: tuple[tuple[int, int, Length], ...] = (
    *((rows, _NOTES, "brief") for rows in range(ROWS_SHOWN, _FEWEST_ROWS - 1, -1)),
    *((_FEWEST_ROWS, notes, "brief") for notes in range(_NOTES - 1, -1, -1)),
    *((rows, 0, "brief") for rows in range(_FEWEST_ROWS - 1, 2, -1)),
    *((rows, 0, length) for length in get_args(Length)[1:] for rows in (_FEWEST_ROWS, 3, 0)),
)
"""Rows, notes, and how long the first finding is: what is given up in turn until it fits."""


def write_summary(
    report: Report,
    page: Page,
    *,
    limit: int | None = BRIEF_LIMIT,
    lines: int | None = BRIEF_LINES,
    base: Path,
    folder: str | None,
    log: Path | None = None,
    before: str | None = None,
    can_bench: bool = True,
) -> None:
    """Write the parts in their order, no more `lines` than asked for and at most `limit` findings (None for either: all).

    `folder` is where the report's files are; where there are none, `log` is the log that was read. `before` is the folder of the last run,
    and `can_bench` says whether `dynadiag bench` knows the torch of this one.
    """
    write_opening(report, page)
    page.blank()
    below = _Below(report=report, found=ladder(report), base=base, folder=folder, log=log, before=before, can_bench=can_bench)
    whole = _Plan(findings=tuple((finding, "brief") for finding in report.findings[:limit]))
    below.write(whole if lines is None else below.fitting(page, limit=limit, lines=lines - page.lines), page)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Below:
    """All that stands below the opening of one report. The last four are those of `write_summary`."""

    report: Report
    found: Ladder
    base: Path
    folder: str | None
    log: Path | None
    before: str | None
    can_bench: bool

    def write(self, plan: _Plan, page: Page) -> None:
        """The ladder, the findings and the closing lines of a plan."""
        if plan.rows and print_ladder(self.found, page, base=self.base, rows=plan.rows):
            page.blank()
        if self.report.findings:
            page.line(severities(self.report), style="bold")
        else:
            no_findings(self.report, page)
        for finding, length in plan.findings:
            page.blank()
            page.article(finding_article(finding, self.report, base=self.base, length=length))
        self._closing(plan, page)

    def fitting(self, page: Page, *, limit: int | None, lines: int) -> _Plan:
        """The plan with the most in so many lines: the first finding in whole, and of the next ones first what to change, then why.

        The next ones take rows of the ladder down to `_FEWEST_ROWS`, the first one all that it needs.
        """

        def fits(plan: _Plan) -> bool:
            return page.measured(partial(self.write, plan)) <= lines

        wanted = self.report.findings[:limit]
        plan = self._plan(wanted, fits)
        for at in range(1, len(plan.findings)):
            findings: tuple[tuple[Finding, Length], ...] = (*plan.findings[:at], (wanted[at], "brief"), *plan.findings[at + 1 :])
            plan = next(filter(fits, (replace(plan, notes=notes, findings=findings) for notes in (plan.notes, 0))), plan)
        for finding in wanted[len(plan.findings) :]:
            lengths: tuple[tuple[Length, int], ...] = (("brief", plan.notes), ("fix", plan.notes), ("fix", 0), ("head", plan.notes))
            more = [replace(plan, notes=notes, findings=(*plan.findings, (finding, length))) for length, notes in lengths]
            wider = next(filter(fits, more), None)
            if wider is None:
                break
            plan = wider
        return plan

    def _plan(self, wanted: Sequence[Finding], fits: Callable[[_Plan], bool]) -> _Plan:
        """As many of the findings as have room beside a ladder that is not too short; the two worst with what to do before a ladder."""
        below = [self._with_others(wanted, lengths, fits) for lengths in _CHANGES]
        below.append(self._two(wanted, "brief", fits))
        below += [self._with_others(wanted, lengths, fits) for lengths in _PLACES]
        below.append(self._two(wanted, "fix", fits))
        if (plan := next(filter(None, below), None)) is not None:
            return plan
        alone = [
            _Plan(rows=rows, notes=notes, findings=tuple((finding, length) for finding in wanted[:1])) for rows, notes, length in _SHORTER
        ]
        return next(filter(fits, alone), alone[-1])

    def _with_others(self, wanted: Sequence[Finding], lengths: Sequence[Length], fits: Callable[[_Plan], bool]) -> _Plan | None:
        """The first finding in brief and others in these lengths, beside a ladder that is not too short."""
        if len(lengths) >= len(wanted):
            return None
        others = tuple(zip(wanted[1:], lengths, strict=False))
        plans = (
            _Plan(rows=rows, notes=notes, findings=((wanted[0], length), *others))
            for rows, notes, length in _SHORTER
            if rows >= _FEWEST_ROWS and length == "brief"
        )
        return next(filter(fits, plans), None)

    def _two(self, wanted: Sequence[Finding], first: Length, fits: Callable[[_Plan], bool]) -> _Plan | None:
        """The two worst findings with what to do, which the ladder makes room for."""
        if len(wanted) < 2 or wanted[1].severity == "note" or not wanted[1].fix:
            return None
        plans = (_Plan(rows=rows, notes=0, findings=((wanted[0], first), (wanted[1], "fix"))) for rows in (_FEWEST_ROWS, 3, 0))
        return next(filter(fits, plans), None)

    def _closing(self, plan: _Plan, page: Page) -> None:
        notes = wording.notes(self.report)
        rows = [("", clean(row)) for row in _parity(self.report)] + [("note: ", clean(note, limit=240)) for note in notes[: plan.notes]]
        if rows:
            page.blank()
        for label, row in rows:
            page.line(row, prefix=label)
        write_files(self.report, page, self.folder)
        hidden = list(_hidden(self.report, plan.findings, len(notes) - plan.notes))
        looked_up = tuple(unique(finding.code for finding, _ in plan.findings if is_known(finding.code)))
        if looked_up:
            page.whole(f"dynadiag rule {' '.join(looked_up)}", prefix="more on a code: ")
        if hidden:
            read = self.folder if self.log is None else str(self.log)
            known = read is not None and clean_block(read) == read
            page.line(f"{', '.join(hidden)}{'' if known else ': --full'}", prefix="not shown: ")
            if read is not None and known:
                page.whole(shlex.join(("dynadiag", "explain", "--full", read)), prefix="all of it: ")
        if self.folder is not None and self.before is not None and clean_block(self.before + self.folder) == self.before + self.folder:
            page.whole(shlex.join(("dynadiag", "diff", self.before, self.folder)), prefix="against the run before: ")
        if (said := _next(self.report, self.can_bench)) and MASK not in said and clean_block(said) == said:
            page.whole(said, prefix=Text("next  ", style=LABEL))
        if self.folder is None and self.log is not None and clean_block(str(self.log)) == str(self.log):
            page.whole(shlex.join(("dynadiag", "explain", "--open", str(self.log))), prefix=Text("page  ", style=LABEL))


def _parity(report: Report) -> Iterator[str]:
    if report.parity is not None:
        yield f"Parity: {parity_words.verdict(report.parity)}"
    if report.replayed is not None:
        yield f"Could happen: {parity_words.could_happen(report.replayed)}"


def _hidden(report: Report, shown: Sequence[tuple[Finding, Length]], notes: int) -> Iterator[str]:
    """What the summary leaves out, each kind with its count."""
    for name, count in wording.by_severity(report.findings[len(shown) :]):
        # The notes of a report are no findings, and are told below.
        yield f"{wording.plural(count, 'more finding')} (note)" if name == "note" else wording.plural(count, f"more {name}")
    if titles := unique(finding.code for finding, length in shown if length != "brief"):
        yield f"the rest of {', '.join(clean(code, limit=40) for code in titles)}"
    told = {name for finding, length in shown if length == "brief" for name in finding.evidence}
    dynamos = sum(graph.kind == "dynamo" for graph in report.run.graphs)
    tables = {
        "recompiled value": len(report.transitions),
        "fallback": sum(fallback.id not in told for fallback in report.fallbacks),
        "mutation": len(report.mutations),
        "graph": dynamos or len(report.run.graphs),
        "rank difference": len(report.ranks),
        "note": max(0, notes),
    }
    yield from (wording.plural(count, name) for name, count in tables.items() if count)


def _next(report: Report, can_bench: bool) -> str | None:
    """The command to type after the findings were read; None where the recorded command line is not known, or nothing is left to do."""
    command, launched = script_arguments(report.run), report.run.info.command
    script = shlex.join(command)
    if script and any(advice.slug == "minify" for finding in report.findings for advice in finding.fix):
        minify = f"dynadiag minify {script}"
        return None if any(minify in advice.text for finding in report.findings for advice in finding.fix) else minify
    if script and not script.startswith("-") and _is_applied(report):
        return f"dynadiag fix {script}"
    if (script or launched) and any(finding.fix for finding in report.findings):
        return f"change a line, then dynadiag explain {script or shlex.join(('--', *(launched or ())))}"
    if script and not script.startswith("-") and can_bench and _can_be_timed(report):
        return f"dynadiag bench {shlex.join((*command[:1], *(('--', *command[1:]) if command[1:] else ())))}"
    return None


def _can_be_timed(report: Report) -> bool:
    """Whether `dynadiag bench` would time a call of it: one process that ended well and calls what was compiled often enough."""
    (process, *others) = report.run.processes or (None,)
    if process is None or others or report.run.info.exit_status != 0 or not report.summary.graphs:
        return False
    return (process.calls or 0) >= _TIMED_CALL and not any(finding.severity == "error" for finding in report.findings)


def _is_applied(report: Report) -> bool:
    """Whether `dynadiag fix` would try something: it applies an advice for a warning, writes an `if` on a tensor without a branch, or lets
    the graph have what is read of tensors. The program compiles in one process.
    """
    slugs = {advice.slug for finding in report.findings if finding.severity != "note" for advice in finding.fix}
    branches = (site.gb_id == "GB0170" and is_own_branch(site.torch_frame, report.run) for site in report.graph_breaks)
    own = (site for site in report.graph_breaks if site.torch_frame is not None and is_own_file(site.torch_frame.file, report.run))
    tried = (any(kind_of(slug).is_safe_advice for slug in slugs), *branches, *(site.category in CAPTURES for site in own))
    return report.summary.processes == 1 and any(tried)
