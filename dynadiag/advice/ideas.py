"""Ideas: what an experienced engineer would try first where no change is established, with what is left to check.

They come from the recording and the recorded source alone, for findings of severity warning and worse. Each names the line and what to
write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from dynadiag.advice.recompile_ideas import recompile_ideas
from dynadiag.changes.before_call import before_call, read_before_call
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
from dynadiag.model.report import Advice, Finding, GraphBreak, Recompile, Transition, distinct_advice
from dynadiag.model.run import Run

_MOST_IDEAS = 2


_Entry = TypeVar("_Entry")
_Part = TypeVar("_Part", GraphBreak, Recompile)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the findings of a report refer to by id, with the place of each in the report; `changed` are the transitions of a recompile."""

    breaks: Mapping[str, tuple[int, GraphBreak]]
    recompiles: Mapping[str, tuple[int, Recompile]]
    changed: Mapping[str, Sequence[tuple[int, Transition]]]

    @classmethod
    def of(cls, breaks: Iterable[GraphBreak], recompiles: Iterable[Recompile], transitions: Iterable[Transition]) -> Parts:
        """The parts of a report, each looked at once: there may be as many findings as parts."""
        changed: dict[str, list[tuple[int, Transition]]] = {}
        for at, row in enumerate(transitions):
            for recompile in row.recompiles:
                changed.setdefault(recompile, []).append((at, row))
        return cls(_by_id(breaks), _by_id(recompiles), changed)


def _by_id(entries: Iterable[_Part]) -> Mapping[str, tuple[int, _Part]]:
    return {entry.id: (at, entry) for at, entry in enumerate(entries)}


def _in_order(placed: Iterable[tuple[int, _Entry]]) -> list[_Entry]:
    """Each once, as the report lists them."""
    found = dict(placed)
    return [found[at] for at in sorted(found)]


def with_ideas(findings: Iterable[Finding], parts: Parts, run: Run) -> Iterator[Finding]:
    """The findings, those without a change with ideas; why nothing is established stays."""
    told: set[tuple[str | None, str | None]] = set()
    findings = sorted(findings, key=lambda finding: finding.rank)
    libraries = {_line(finding): advice for finding in findings for advice in finding.fix if advice.entry}
    for finding in findings:
        line = _line(finding)
        same = None if finding.fix or line is None else libraries.get(line)
        cured = () if same is None else (replace(same, how_sure="idea"),)  # the same call of the library breaks here as well
        ideas = () if finding.severity == "note" else tuple(distinct_advice((*cured, *_ideas(finding, parts, run))))[:_MOST_IDEAS]
        ideas = tuple(sorted(ideas, key=lambda idea: idea.change in told))  # what a worse finding has told already comes second
        told.update(idea.change for idea in ideas[:1])
        yield replace(finding, fix=(*ideas, *finding.fix), clauses=tuple(map(_but_ideas, finding.clauses))) if ideas else finding


def _line(finding: Finding) -> tuple[str, int] | None:
    where = finding.where
    return None if where is None or where.line is None else (where.file, where.line)


def _but_ideas(clause: Clause) -> Clause:
    return replace(clause, but_ideas=True) if isinstance(clause, Unadvised) and not clause.of else clause


def _ideas(finding: Finding, parts: Parts, run: Run) -> Iterator[Advice]:
    if finding.code == codes.COMPILATION_FAILED:
        yield from _static_sizes(finding, run)
    if finding.fix:
        return
    sites = _in_order(parts.breaks[name] for name in finding.evidence if name in parts.breaks)
    for site in sites[:1]:
        yield from _for_break(break_context_of(site, run), site)
    recompiles = _in_order(parts.recompiles[name] for name in finding.evidence if name in parts.recompiles)
    frame = run.frame(recompiles[0].frame) if recompiles and not sites else None
    if frame is not None:
        rows = _in_order(row for recompile in recompiles for row in parts.changed.get(recompile.id, ()))
        yield from recompile_ideas(rows, frame, run)


def _static_sizes(finding: Finding, run: Run) -> Iterator[Advice]:
    """`dynamic=False` where versions with fixed sizes are compiled and one with symbols is not."""
    failed = [frame for name in finding.evidence if name in failed_dynamic(run) and (frame := run.frame(name)) is not None]
    if not failed:
        return
    compiled = compiled_function(entry_stack(failed[0]), run)
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


def _for_break(context: BreakContext, site: GraphBreak) -> Iterator[Advice]:
    place = context.place or context.around
    compiled = compiled_function(context.event.stack, context.run)
    smaller = () if compiled is None else tuple(compile_called(compiled, context.run, torch=context.torch))
    if smaller and compiled is not None and drives(compiled.place):
        yield from smaller  # an effect that leaves a driver uncovers the next one: more was compiled, and compiled again, than before
        return
    if place is not None:
        yield from before_call(place, compiled)
        yield from static_shape(context.line, place)
    if place is not None and context.editable:
        yield from both_sides(place)
        yield from keep_tensor(context.line, place)
    if compiled is not None:
        yield from defer_effect(compiled)
        if place is not None and site.category == "scalar read":
            yield from read_before_call(context.line, place, compiled)
        if place is not None and (context.returns or site.skipped_frames):
            yield from plain_loop(place, compiled, skipped=bool(site.skipped_frames))
    yield from smaller
    yield from option_ideas(context, site.category)
