"""From a run to a report: runs the passes, merges what they found, ranks the findings and counts the headline."""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dynadiag.advice.ideas import Parts, with_ideas
from dynadiag.advice.imports import with_imports
from dynadiag.facts.fingerprint import numbered
from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.standing_behind import causes_of
from dynadiag.model import codes
from dynadiag.model.clauses import CompiledApart
from dynadiag.model.parity import Replayed
from dynadiag.model.report import CompileTime, Fallback, Finding, GraphBreak, PassResult, Recompile, Report, Summary, distinct_advice
from dynadiag.model.run import Run
from dynadiag.passes import ALL_PASSES
from dynadiag.passes.base import Pass
from dynadiag.passes.find_parity_replayed import find_parity_replayed
from dynadiag.trace.parity import replayed_beside

_Entry = TypeVar("_Entry", bound=Any)
_TRACEBACK_LINES = 4


def build_with_replay(run: Run, path: str | os.PathLike[str]) -> Report:
    """The report on the run that was loaded from a path, with what `dynadiag parity` later found for it, where it ran."""
    found, why_not = replayed_beside(path)
    return build(run, replayed=found, notes=() if why_not is None else (why_not,))


def build(run: Run, passes: Sequence[Pass] = ALL_PASSES, *, replayed: Replayed | None = None, notes: tuple[str, ...] = ()) -> Report:
    """The report on a run: what all passes found, findings ranked most expensive first, and the counts.

    `replayed` is what `dynadiag parity` found on calls that were not made, which is told apart; `notes` are shown with the run's own.
    A pass that raises costs only its own findings: the others go on and a note says which one failed and with what.
    """
    if replayed is not None:
        passes = (*passes, partial(find_parity_replayed, replayed=replayed))
    results = [_guarded(pass_, run) for pass_ in passes]
    more = Counter(run.left_out)
    for result in results:
        more.update(result.left_out)
    compile_time = next((result.compile_time for result in results if result.compile_time is not None), None)
    graph_breaks = _joined(results, lambda result: result.graph_breaks)
    fallbacks = _joined(results, lambda result: result.fallbacks)
    recompiles = _joined(results, lambda result: result.recompiles)
    mutations = _joined(results, lambda result: result.mutations)
    transitions = _all_entries(results, lambda result: result.transitions)
    findings = _explained(tuple(finding for result in results for finding in result.findings))
    ranked = _ranked(_copyable(element, run) for element in with_ideas(findings, Parts.of(graph_breaks, recompiles, transitions), run))
    looked_for_mutations = any(_name(item) == "find_mutations" for item in passes)
    return Report(
        run=run,
        summary=_summary(
            run, graph_breaks, len(recompiles), len(fallbacks), len(mutations) if looked_for_mutations else None, compile_time, more
        ),
        graph_breaks=graph_breaks,
        recompiles=recompiles,
        transitions=transitions,
        fallbacks=fallbacks,
        mutations=mutations,
        guards=_joined(results, lambda result: result.guards),
        compile_time=compile_time,
        ranks=_joined(results, lambda result: result.ranks),
        findings=_with_causes(ranked, graph_breaks, recompiles, fallbacks, run),
        parity=next((result.parity for result in results if result.parity is not None), None),
        replayed=replayed,
        notes=tuple(dict.fromkeys((*run.notes, *notes, *(note for result in results for note in result.notes)))),
        failed_passes=tuple(result.failed for result in results if result.failed is not None),
    )


def _guarded(item: Pass, run: Run) -> PassResult:
    try:
        return item(run)
    except Exception as error:  # noqa: BLE001 - border: one pass must not cost the report of the others
        last = " | ".join(line.strip() for line in traceback.format_exception(error)[-_TRACEBACK_LINES:])
        note = f"internal error in pass {_name(item)}; its findings are missing: {' '.join(last.split())}"
        return PassResult(notes=(note,), failed=_name(item))


def _name(item: Pass) -> str:
    return str(getattr(getattr(item, "func", item), "__name__", type(item).__name__))


def _all_entries(results: Iterable[PassResult], of: Callable[[PassResult], Sequence[_Entry]]) -> tuple[_Entry, ...]:
    return tuple(entry for result in results for entry in of(result))


def _joined(results: Iterable[PassResult], of: Callable[[PassResult], Sequence[_Entry]]) -> tuple[_Entry, ...]:
    """The entries of all passes; an id that was given twice gets a letter, because ids are what everything refers to."""
    taken: set[str] = set()
    entries: list[_Entry] = []
    for entry in _all_entries(results, of):
        identifier = _free(entry.id, taken)
        taken.add(identifier)
        entries.append(entry if identifier == entry.id else replace(entry, id=identifier))
    return tuple(entries)


def _free(identifier: str, taken: set[str]) -> str:
    if identifier not in taken:
        return identifier
    number = 2
    while f"{identifier}.{number}" in taken:
        number += 1
    return f"{identifier}.{number}"


# Writes that torch or autograd refuse while a graph is compiled.
_REFUSED_WRITES = frozenset((codes.SIZES_CHANGED, codes.LEAF_WRITTEN, codes.AOT_REFUSED_WRITE, codes.AUTOGRAD_REFUSED_WRITE))


def _explained(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Without the failed compilations that another error explains: a write that makes torch fail is told with its line, once."""
    blamed = {name for finding in findings if finding.code in _REFUSED_WRITES and finding.severity == "error" for name in finding.evidence}
    return tuple(
        item for item in findings if item.code != codes.COMPILATION_FAILED or not item.evidence or not blamed.issuperset(item.evidence)
    )


def _copyable(finding: Finding, run: Run) -> Finding:
    """The finding with each change once, and with the imports that its code needs."""
    if not finding.fix:
        return finding
    kept = [with_imports(advice, finding.where, run) for advice in distinct_advice(finding.fix)]
    return replace(finding, fix=(replace(kept[0], follows=False), *kept[1:]))


def _ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Numbered `n1`, `n2`, ..., most expensive first; ties go by code, place and fingerprint, so that a run gives one list."""
    ordered = sorted(findings, key=_order)
    marks = numbered([(finding.fingerprint, finding.where) for finding in ordered])
    return tuple(replace(item, id=f"n{at}", fingerprint=mark) for at, (item, mark) in enumerate(zip(ordered, marks, strict=True), start=1))


def _with_causes(
    findings: tuple[Finding, ...], breaks: Sequence[GraphBreak], recompiles: Sequence[Recompile], fallbacks: Sequence[Fallback], run: Run
) -> tuple[Finding, ...]:
    """The findings with those that they stand behind, which is also said of what is no break itself."""
    causes = causes_of(findings, breaks, recompiles, fallbacks, run)
    curable = {finding.id for finding in findings if finding.fix}
    sites = {site.id for site in breaks}

    def completed(finding: Finding) -> Finding:
        behind = causes[finding.id]
        apart = () if sites & set(finding.evidence) else (CompiledApart(behind, not curable.isdisjoint(behind)),)
        return replace(finding, behind=behind, clauses=(*finding.clauses[:1], *apart, *finding.clauses[1:]))

    return tuple(completed(item) if item.id in causes else item for item in findings)


def _order(finding: Finding) -> tuple[tuple[float, ...], str, str, int, str]:
    where = finding.where
    return finding.rank, finding.code, "" if where is None else where.file, (where.line or 0) if where else 0, finding.fingerprint


def _summary(
    run: Run,
    breaks: Sequence[GraphBreak],
    recompiles: int,
    fallbacks: int,
    mutations: int | None,
    compile_time: CompileTime | None,
    more: Mapping[str, int],
) -> Summary:
    """The counts: what the report lists and, by kind, what there is more (`more`)."""
    return Summary(
        frames=len(run.frames) + more.get("frames", 0),
        frames_compiled=sum(frame.outcome in ("compiled", "broke") for frame in run.frames),
        frames_skipped=sum(frame.outcome == "skipped" for frame in run.frames),
        graphs=sum(map(len, kept_graphs(run).values())) + more.get("graphs", 0),
        graph_break_sites=len(breaks) + more.get("graph break sites", 0),
        graph_break_events=sum(graph_break.events for graph_break in breaks) + more.get("graph break events", 0),
        recompiles=recompiles + more.get("recompiles", 0),
        fallbacks=fallbacks + more.get("fallbacks", 0),
        mutations=mutations,
        compile_s=_compile_s(run) if compile_time is None else compile_time.total_s,
        processes=len(run.processes) + more.get("processes", 0),
    )


def _compile_s(run: Run) -> float | None:
    totals = [frame.metrics.total_s for frame in run.frames if frame.metrics is not None and frame.metrics.total_s is not None]
    return sum(totals) if totals else None
