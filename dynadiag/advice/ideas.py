"""Ideas: what an experienced engineer would try first where no change is established, with what is left to check.

They come from the recording and the recorded source alone, for findings of severity warning and worse. Each names the line and what to
write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dynadiag.advice.recompile_ideas import recompile_ideas
from dynadiag.changes.before_call import before_call
from dynadiag.changes.both_sides import both_sides
from dynadiag.changes.break_context import BreakContext, break_context_of
from dynadiag.changes.compiled_function import compiled_function
from dynadiag.changes.defer_effect import defer_effect
from dynadiag.changes.keep_tensor import keep_tensor
from dynadiag.changes.option_ideas import option_ideas
from dynadiag.changes.plain_loop import plain_loop
from dynadiag.changes.smaller_calls import compile_called, drives
from dynadiag.changes.static_shape import static_shape
from dynadiag.facts.failed_attempts import failed_dynamic
from dynadiag.facts.user_frames import entry_stack
from dynadiag.model import codes
from dynadiag.model.clauses import Clause, Unadvised
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Finding, GraphBreak, Recompile, Transition, distinct_advice
from dynadiag.model.run import Run

_MOST_IDEAS = 2


class Parts(NamedTuple):
    """What the findings of a report refer to by id."""

    breaks: Sequence[GraphBreak]
    recompiles: Sequence[Recompile]
    transitions: Sequence[Transition]


def with_ideas(findings: Iterable[Finding], parts: Parts, run: Run) -> Iterator[Finding]:
    """The findings, those without a change with ideas; why nothing is established stays."""
    told: set[tuple[str | None, str | None]] = set()
    for finding in sorted(findings, key=lambda finding: finding.rank):
        ideas = () if finding.severity == "note" else tuple(distinct_advice(_ideas(finding, parts, run)))[:_MOST_IDEAS]
        ideas = tuple(sorted(ideas, key=lambda idea: idea.change in told))  # what a worse finding has told already comes second
        told.update(idea.change for idea in ideas[:1])
        yield replace(finding, fix=(*ideas, *finding.fix), clauses=tuple(map(_but_ideas, finding.clauses))) if ideas else finding


def _but_ideas(clause: Clause) -> Clause:
    return replace(clause, but_ideas=True) if isinstance(clause, Unadvised) and not clause.of else clause


def _ideas(finding: Finding, parts: Parts, run: Run) -> Iterator[Advice]:
    if finding.code == codes.COMPILATION_FAILED:
        yield from _static_sizes(finding, run)
    if finding.fix:
        return
    sites = [site for site in parts.breaks if site.id in finding.evidence]
    for site in sites[:1]:
        yield from _for_break(break_context_of(site, run), site.category)
    recompiles = [recompile for recompile in parts.recompiles if recompile.id in finding.evidence]
    frame = run.frame(recompiles[0].frame) if recompiles and not sites else None
    if frame is not None:
        ids = {recompile.id for recompile in recompiles}
        yield from recompile_ideas([row for row in parts.transitions if not ids.isdisjoint(row.recompiles)], frame, run)


def _static_sizes(finding: Finding, run: Run) -> Iterator[Advice]:
    """`dynamic=False` where versions with fixed sizes are compiled and one with symbols is not."""
    failed = [frame for name in finding.evidence if name in failed_dynamic(run) and (frame := run.frame(name)) is not None]
    if not failed:
        return
    own = Location(failed[0].file or "", failed[0].line, failed[0].name)
    compiled = compiled_function((*entry_stack(failed[0]), own), run)
    call = None if compiled is None else compiled.compile_call
    before = after = None
    if compiled is not None and call is not None and not compiled.decorated:
        closed = compiled.line.text(call)
        before, after = compiled.line.code, compiled.line.replaced(call, f"{closed[:-1]}, dynamic=False)")
    yield Advice(
        slug="fixed-sizes",
        text="A version with fixed sizes was compiled, and this one failed, in which sizes are symbols. Give `torch.compile` "
        "`dynamic=False`: each size "
        "is then compiled by itself, up to the recompile limit. Mark no dimension as dynamic",
        before=before,
        after=after,
        how_sure="idea",
    )


def _for_break(context: BreakContext, category: str) -> Iterator[Advice]:
    place = context.place or context.around
    compiled = compiled_function(context.event.stack, context.run)
    smaller = () if compiled is None else tuple(compile_called(compiled, context.run, torch=context.torch))
    if compiled is not None and drives(compiled.place):
        yield from smaller
    if place is not None:
        yield from before_call(place, compiled)
        yield from static_shape(context.line, place)
    if place is not None and context.editable:
        yield from both_sides(place)
        yield from keep_tensor(context.line, place)
    if compiled is not None:
        yield from defer_effect(compiled)
        if place is not None and context.returns:
            yield from plain_loop(place, compiled)
    yield from smaller
    yield from option_ideas(context, category)
