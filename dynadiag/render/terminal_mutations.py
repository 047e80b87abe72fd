"""The mutations in a terminal: the verdict, those that cost something, and the free ones under one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynadiag.model.report import Mutation, Report
from dynadiag.render import mutation_words as words
from dynadiag.render import wording
from dynadiag.render.page import Page, View
from dynadiag.render.sanitise import clean, clean_block


def only_mutations(report: Report) -> Report:
    """The report with the findings that rest on a mutation alone."""
    known = {one.id for one in report.mutations}
    return replace(report, findings=tuple(one for one in report.findings if known.intersection(one.evidence)))


def print_mutations(report: Report, page: Page, view: View, title: str) -> None:
    """Every mutation that costs something with its lines, effects and torch's refusal; the free ones folded unless `view.show_free`."""
    if not report.mutations:
        return
    page.blank()
    page.line(f"{title}: {words.verdict(report)}", style="bold")
    costly = [one for one in report.mutations if not words.is_folded(one)]
    free = [one for one in report.mutations if words.is_folded(one)]
    told = {one for finding in report.findings for one in finding.evidence}
    for mutation in costly[: view.limit]:
        _print(mutation, page, view)
        if view.mutations_only and mutation.id not in told:  # its finding is one of a graph break or a recompile, which is left out
            _print_advice(mutation, page)
    hidden = len(costly) - len(costly[: view.limit])
    if hidden:
        page.line(f"{wording.plural(hidden, 'more mutation')} not shown (--limit 0 for all)", prefix="  ")
    _free(free, page, view)


def _free(free: Sequence[Mutation], page: Page, view: View) -> None:
    if free:
        page.line(words.free_line(free) + ("" if view.show_free else " (--show-free lists them)"), prefix="  ")
    for mutation in free if view.show_free else ():
        _print(mutation, page, view)


def _print(mutation: Mutation, page: Page, view: View) -> None:
    kind = "" if mutation.kind == "data" else f" [{clean(mutation.kind, limit=40)}]"
    head = f"{clean(mutation.code, limit=10)}  {words.source(mutation)}{kind}: {words.effects(mutation)}"
    page.line(head, prefix=f"  {mutation.id:<4} ")
    page.line(words.places(mutation, view.base), prefix="       ", style="dim")
    if mutation.refusal:
        page.line(clean_block(mutation.refusal, limit=1200, lines=6).replace("\n", " "), prefix="       torch: ", style="dim")
    for doubt in mutation.doubts:
        page.line(clean(doubt, limit=240), prefix="       unsure: ", style="dim")


def _print_advice(mutation: Mutation, page: Page) -> None:
    for advice in mutation.advice[:1]:
        page.line(clean(advice.text, limit=400), prefix="       fix: ", style="dim")
