"""Fallbacks: everything that ran eager without being asked to, and what could not be compiled at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dynadiag.advice.fallbacks import why_nothing
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.lookups import code_key
from dynadiag.facts.wording import NO_RECORDS, frame_text, listed, times
from dynadiag.model import codes
from dynadiag.model.clauses import Basis, Clause, Happened, Unadvised
from dynadiag.model.report import Advice, Cost, Fallback, Finding, PassResult
from dynadiag.model.run import Frame, Run
from dynadiag.model.sentences import capital
from dynadiag.passes.base import Priority
from dynadiag.passes.break_sites import break_sites
from dynadiag.passes.failed_compilations import failed_compilations
from dynadiag.passes.fallback_entries import CODES, fallback_entries, is_limit
from dynadiag.passes.nothing_compiled import nothing_compiled

_RANKS: dict[str, Priority] = {
    "skipped_frame": Priority.RAN_EAGER,
    "recompile_limit": Priority.LIMIT_HIT,
    "suppressed_error": Priority.RAN_EAGER,
    "aot_rejected": Priority.RAN_EAGER,
    "env_disabled": Priority.NOTHING_COMPILED,
}


def find_fallbacks(run: Run) -> PassResult:
    """All fallbacks, and a finding for each that no other finding tells: a skip because of a break belongs to that break's finding."""
    sites = break_sites(run)
    entries, more = fallback_entries(run)
    failed = failed_compilations(run, {frame for site in sites for frame in site.frames}, _told_as_recompiles(run))
    notes = (
        *_unfinished(run),
        *((f"{len(entries):,} of {len(entries) + more:,} fallbacks are shown; the others are only counted",) if more else ()),
        *((f"{len(failed.shown):,} findings of failed compilations are shown; {failed.more:,} are left out",) if failed.more else ()),
    )
    findings = (*_nothing(run, entries), *_entries(run, entries), *failed.shown)
    return PassResult(fallbacks=entries, findings=findings, notes=notes, left_out={"fallbacks": more} if more else {})


def _unfinished(run: Run) -> tuple[str, ...]:
    """The compilations that were going on when the log ends: the program was ended there, hangs there, or still runs."""
    names = [frame_text(frame) for frame in run.frames if frame.unfinished]
    return (f"the log ends while {listed(names)} {'was' if len(names) == 1 else 'were'} being compiled",) if names else ()


_NOTHING_TITLES = {
    "no-records": NO_RECORDS,
    "no-torch": f"{NO_RECORDS}: no import of torch was seen",
    "ended-early": "Nothing was compiled: the program ended before anything could be",
}


def _nothing_title(slug: str, run: Run) -> str:
    if run.info.running:
        return "Nothing was compiled so far"
    if slug not in _NOTHING_TITLES and (run.info.killed or run.info.unended):
        return "Nothing was compiled before the recording ended"
    return _NOTHING_TITLES.get(slug, "Nothing was compiled: the whole program ran eagerly")


def _nothing(run: Run, entries: Sequence[Fallback]) -> Iterable[Finding]:
    nothing = nothing_compiled(run)
    if nothing is None:
        return
    fix = () if nothing.advice is None else (Advice(slug=f"nothing-{nothing.slug}", text=nothing.advice),)
    yield Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.NOTHING_COMPILED, nothing.where, nothing.slug), run),
        code=codes.NOTHING_COMPILED,
        severity=codes.severity_of(codes.NOTHING_COMPILED),
        title=_nothing_title(nothing.slug, run),
        where=nothing.where,
        clauses=(Happened(capital(nothing.reason)),),
        fix=fix or _of_all(entries),
        cost=Cost(value=float(len(run.frames)), unit="frames skipped", basis="counted") if run.frames else None,
        evidence=(*(entry.id for entry in entries), *(frame.id for frame in run.frames))[:20],
        rank=(float(Priority.NOTHING_COMPILED),),
    )


def _of_all(entries: Sequence[Fallback]) -> tuple[Advice, ...]:
    """The advice of several fallbacks: each of them has to go."""
    given = [item for entry in entries for item in (replace(advice, follows=advice is entry.advice[0]) for advice in entry.advice)]
    return tuple(replace(advice, follows=advice.follows and number > 0) for number, advice in enumerate(given))[:3]


def _entries(run: Run, entries: Iterable[Fallback]) -> Iterable[Finding]:
    whole = nothing_compiled(run) is not None
    limited = _told_as_recompiles(run)
    elsewhere = _compiled_in_other_calls(run)
    for entry in entries:
        if (
            entry.breaks
            or entry.kind == "nothing_compiled"
            or (whole and entry.kind in ("env_disabled", "skipped_frame", "no_graph", "stance"))
        ):
            continue
        if entry.kind == "recompile_limit" and entry.frame in limited:
            continue
        if entry.kind == "no_graph" and entry.frame in elsewhere:
            continue
        yield Finding(
            id="",
            fingerprint=entry.fingerprint,
            code=CODES[entry.kind],
            severity=codes.severity_of(CODES[entry.kind]),
            title=codes.title_of(CODES[entry.kind]),
            where=entry.own_frame,
            clauses=tuple(_clauses(entry)),
            fix=entry.advice,
            cost=Cost(value=float(entry.events), unit="records", basis="counted"),
            evidence=(entry.id,) if entry.frame is None else (entry.id, entry.frame),
            rank=(float(_rank(entry, whole)), 0.0, -float(entry.events)),
        )


def _clauses(entry: Fallback) -> Iterable[Clause]:
    yield Happened(entry.reason)
    yield Basis(f"Recorded {times(entry.events)}")
    if (reason := why_nothing(entry)) is not None:
        yield Unadvised(reason)


def _rank(entry: Fallback, whole: bool) -> Priority:
    """A switch that did not keep the whole program from being compiled is no worse than a frame that ran eager."""
    rank = _RANKS.get(entry.kind, Priority.REMARK)
    return Priority.RAN_EAGER if rank is Priority.NOTHING_COMPILED and not whole else rank


def _told_as_recompiles(run: Run) -> set[str]:
    """Frames at the recompile limit whose recompiles were recorded: the recompile findings tell those."""
    frames = {frame.id: frame for frame in run.frames}
    recompiled = {_code(frames[event.frame]) for event in run.recompiles if event.frame in frames}
    said = {problem.frame for problem in run.problems if problem.kind == "recompile_limit"}
    return {frame.id for frame in run.frames if (is_limit(frame) or frame.id in said) and _code(frame) in recompiled}


def _compiled_in_other_calls(run: Run) -> set[str]:
    """Frames whose code has a graph in other calls: a call without boxes that returns at once is nothing to tell."""
    with_graph = {graph.frame for graph in run.graphs}
    codes = {_code(frame) for frame in run.frames if frame.id in with_graph}
    return {frame.id for frame in run.frames if _code(frame) in codes}


def _code(frame: Frame) -> tuple[int, int, int | None]:
    return code_key(frame)[:3]
