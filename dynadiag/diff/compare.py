"""Two reports compared entry by entry: each break, recompiled function, fallback and mutation is matched by its fingerprint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.diff.caches import cache_changes
from dynadiag.diff.graphs import compared_graphs
from dynadiag.diff.result import DiffResult, FindingChange, GuardChange, Kind, Side, SourceLine, TimeChange
from dynadiag.errors import NothingFoundError
from dynadiag.facts.fingerprint import functions_of, matched
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.program_end import failure_of, refuse_failed_start, refuse_missing_torch
from dynadiag.facts.user_frames import project_path, source_function
from dynadiag.facts.wording import difference_in_words, group_in_words, plural, script_arguments
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.report import Fallback, Finding, Mutation, Report
from dynadiag.model.run import Run
from dynadiag.render.completeness import completeness, why_cut_short
from dynadiag.trace.rank_logs import compare_ranks

_MOST_ROWS = 20
_OF_TIME = codes.RESTARTS, codes.SLOW_COMPILE, codes.UNCACHED
"""Findings that come and go with the load of the machine; the compile time of both runs is shown instead."""
_COUNTS = ("graphs", "graph_break_sites", "graph_break_events", "recompiles", "fallbacks", "mutations", "frames", "frames_skipped")


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One thing of a report that is matched; `count` where more of it is worse, `causes` by fingerprint where others tell why it is."""

    code: str
    title: str
    where: Location | None
    fingerprint: str
    regression: bool = True
    count: int | None = None
    causes: frozenset[str] = frozenset()


def compare(old: Report, new: Report, *, old_path: str, new_path: str) -> DiffResult:
    """The comparison of an old and a new run. Raises NothingFoundError when neither compiled anything, TorchUnsupportedError where one
    found no torch.
    """
    for report in (old, new):
        refuse_missing_torch(report.run, "nothing was compared")
    if not old.run.frames and not new.run.frames:
        refuse_failed_start(new.run, "nothing was compared")
        raise NothingFoundError("nothing was compiled in either run, so there is nothing to compare")
    changes: list[FindingChange] = []
    same: dict[str, int] = {}
    for kind, entries in _KINDS.items():
        found, same[kind] = _compared(kind, old, new, entries, changes)
        changes += found
    same_graphs, graphs = compared_graphs(old, new)
    sides = side_of(old, old_path), side_of(new, new_path)
    return DiffResult(
        old=sides[0],
        new=sides[1],
        changes=tuple(changes),
        same=same,
        counts={name: (getattr(old.summary, name), getattr(new.summary, name)) for name in _COUNTS},
        graphs=tuple(graphs),
        same_graphs=same_graphs,
        guards=tuple(_guards(old, new)),
        compile_s=(old.summary.compile_s, new.summary.compile_s),
        times=tuple(_times(old, new)),
        doubts=tuple(_doubts(old, new, *sides)),
        caches=tuple(cache_changes(old.run, new.run)),
        ranks=_two_ranks(old, new),
    )


def _two_ranks(old: Report, new: Report) -> str | None:
    """Where two ranks first differ: breaks of one statement on moved lines, and guards on other sizes, are no differences of findings."""
    logs = [{process.log for process in report.run.processes if process.rank is not None} for report in (old, new)]
    if any(len(group) != 1 for group in logs):
        return None
    found = compare_ranks([Path(log) for members in logs for log in members]).comparison
    if found is None:
        return None
    first = found.groups[-1].first
    if first is None:
        return "the two ranks compiled the same, in the same order"
    return f"{group_in_words(found.groups[-1])} first differs from {group_in_words(found.groups[0])}: {difference_in_words(first)}"


def _compared(
    kind: Kind, old: Report, new: Report, entries: Callable[[Report], list[_Entry]], told: Sequence[FindingChange]
) -> tuple[list[FindingChange], int]:
    """What came, what is gone, and what is more or less; and how many are as before. What came or went with its cause, which is `told`
    already, is no change of its own.
    """
    before, after = entries(old), entries(new)
    torches = [report.run.torch for report in (old, new)]
    pairs = matched(
        [item.fingerprint for item in before],
        [element.fingerprint for element in after],
        there=functions_of(new.run),
        were=functions_of(old.run),
        other_torch=torches[0] != torches[1],
    )
    came = [entry for n, entry in enumerate(after) if n not in pairs]
    went = [before[n] for n in sorted(set(range(len(before))) - set(pairs.values()))]
    worse = {change.fingerprint for change in told if change.what in ("gained", "worse")}
    better = {change.fingerprint for change in told if change.what in ("lost", "better")}
    changes = [_change(kind, "gained", None, entry, old.run, new.run) for entry in came if not entry.causes & worse]
    changes += [_change(kind, "lost", entry, None, old.run, new.run) for entry in went if not entry.causes & better]
    moved = [(before[of], after[to]) for to, of in sorted(pairs.items()) if before[of].count != after[to].count]
    for was, now in moved:
        what = "worse" if (now.count or 0) > (was.count or 0) else "better"
        changes.append(_change(kind, what, was, now, old.run, new.run))
    return changes, len(pairs) - len(moved)


def _change(kind: Kind, what: str, was: _Entry | None, now: _Entry | None, old: Run, new: Run) -> FindingChange:
    told = now or was
    assert told is not None
    return FindingChange(
        kind=kind,
        what=what,  # type: ignore[arg-type]
        code=told.code,
        title=told.title,
        old=None if was is None else source_line(was.where, old),
        new=None if now is None else source_line(now.where, new),
        fingerprint=told.fingerprint,
        regression=what in ("gained", "worse") and told.regression,
        counts=None if was is None or now is None else (was.count or 0, now.count or 0),
    )


def source_line(where: Location | None, run: Run) -> SourceLine | None:
    """The line as the project names its file."""
    if where is None:
        return None
    return SourceLine(file=project_path(where.file, run), line=where.line, function=source_function(where.function), source=where.code)


def _breaks(report: Report) -> list[_Entry]:
    """Every site, so that of several causes behind one line each is told."""
    return [
        _Entry(
            code=site.gb_id or codes.BREAK_WITHOUT_ID,
            title=site.reason,
            where=site.torch_frame if site.own_frame is None else site.own_frame,
            fingerprint=site.fingerprint,
        )
        for site in report.graph_breaks
    ]


def _recompiles(report: Report) -> list[_Entry]:
    """Every function that was recompiled for one cause, with how often."""
    return [
        _of_finding(finding, count=sum(name.startswith("r") for name in finding.evidence))
        for finding in report.findings
        if finding.code.startswith("DR")
    ]


def _fallbacks(report: Report) -> list[_Entry]:
    return [
        _Entry(
            code=fallback.kind,
            title=fallback.reason,
            where=fallback.own_frame,
            fingerprint=fallback.fingerprint,
            causes=frozenset(_causes(fallback, report)),
        )
        for fallback in report.fallbacks
    ]


def _causes(fallback: Fallback, report: Report) -> Iterator[str]:
    """The breaks that made a function run eagerly, or what was recompiled up to the limit."""
    yield from (site.fingerprint for site in report.graph_breaks if site.id in fallback.breaks)
    if fallback.kind == "recompile_limit" and fallback.frame is not None:
        yield from (
            finding.fingerprint for finding in report.findings if finding.code.startswith("DR") and fallback.frame in finding.evidence
        )


def _mutations(report: Report) -> list[_Entry]:
    """What costs something or is wrong; a free write is none, and one that breaks the graph is told as that break."""
    return [
        _Entry(
            code=mutation.code,
            title=f"{readable(mutation.input)}: {(mutation.worst or '').replace('_', ' ')}",
            where=_site(mutation),
            fingerprint=mutation.fingerprint,
        )
        for mutation in report.mutations
        if mutation.worst not in (None, "free", "graph_break")
    ]


def _site(mutation: Mutation) -> Location | None:
    site = next((mapping for mapping in mutation.sites if isinstance(mapping.get("file"), str)), None)
    return None if site is None else Location(site["file"], site.get("line"), site.get("function"), site.get("code"))


def _others(report: Report) -> list[_Entry]:
    """Findings of what is not in the lists above: failed compilations, wrong results, ranks, guards."""
    return [
        _of_finding(finding, regression=finding.severity != "note")
        for finding in report.findings
        if not finding.code.startswith(("GB", "DB", "DR", *_OF_TIME))
        and not any(name[:1] in ("x", "m") and name[1:].isdigit() for name in finding.evidence)
    ]


def _of_finding(finding: Finding, *, regression: bool = True, count: int | None = None) -> _Entry:
    return _Entry(
        code=finding.code, title=finding.title, where=finding.where, fingerprint=finding.fingerprint, regression=regression, count=count
    )


_KINDS: Mapping[Kind, Callable[[Report], list[_Entry]]] = {
    "break": _breaks,
    "recompile": _recompiles,
    "fallback": _fallbacks,
    "mutation": _mutations,
    "other": _others,
}


def _function(frame_id: str, report: Report) -> str | None:
    frame = report.run.frame(frame_id)
    if frame is None:
        return None
    name = source_function(frame.name) or "an unnamed function"
    return name if frame.file is None else f"{name} ({project_path(frame.file, report.run)})"


def _guards(old: Report, new: Report) -> Iterator[GuardChange]:
    """Functions of both runs whose guards are not as many of each kind; those of all their compilations together."""
    before, after = ({}, {})  # type: dict[str, Counter[str]], dict[str, Counter[str]]
    for report, into in ((old, before), (new, after)):
        for guard in report.guards:
            function = _function(guard.frame, report)
            if function is not None:
                into.setdefault(function, Counter()).update(guard.by_kind)
    for function in sorted(before.keys() & after.keys()):
        was, now = before[function], after[function]
        if was != now:
            kinds = {kind: (was[kind], now[kind]) for kind in sorted(was.keys() | now.keys()) if was[kind] != now[kind]}
            yield GuardChange(function=function, old=was.total(), new=now.total(), kinds=kinds)


def _times(old: Report, new: Report) -> list[TimeChange]:
    """The functions whose compile time changed most."""
    seconds = [_seconds(old), _seconds(new)]
    names = seconds[0].keys() | seconds[1].keys()
    rows = [TimeChange(function=name, old_s=seconds[0].get(name), new_s=seconds[1].get(name)) for name in names]
    return sorted(rows, key=lambda time_change: (-abs((time_change.new_s or 0) - (time_change.old_s or 0)), time_change.function))[
        :_MOST_ROWS
    ]


def _seconds(report: Report) -> dict[str, float]:
    found: dict[str, float] = {}
    for frame in report.compile_time.frames if report.compile_time is not None else ():
        function = _function(frame.frame, report)
        if function is not None:
            found[function] = found.get(function, 0.0) + frame.total_s
    return found


def side_of(report: Report, path: str) -> Side:
    """One of two runs that are compared."""
    complete, why = completeness(report.run)
    process = next(iter(report.run.processes), None)
    return Side(
        path=path,
        program=" ".join(script_arguments(report.run)),
        torch=next((item.torch for item in report.run.processes if item.torch), None),
        device=None if process is None else process.device,
        incomplete=why if complete is False else None,
        failed=failure_of(report.run.info),
        cut_short=why_cut_short(report.run) is not None,
    )


def _doubts(old: Report, new: Report, was: Side, now: Side) -> Iterator[str]:
    """What cannot be compared, or only in part, in sentences."""
    if was.torch != now.torch:
        told = " and ".join(text or "an unknown version" for text in (was.torch, now.torch))
        yield f"the runs are of torch {told}: a break may have a different id, and graphs may use different operators"
    if was.program != now.program and was.program and now.program:
        yield f"the runs are of different programs or arguments: `{was.program}` and `{now.program}`"
    if was.device != now.device and was.device and now.device:
        yield f"the runs are on different devices: {was.device} and {now.device}"
    for name, report, side in (("old", old, was), ("new", new, now)):
        if side.incomplete is not None:
            yield f"the {name} run is not complete ({side.incomplete}): what is missing may just not have been recorded"
        if side.failed is not None:
            yield f"the {name} program {side.failed}: what would have come later is not compared"
        if not report.run.frames:
            complete, why = completeness(report.run)
            yield f"nothing was compiled in the {name} run" + (f", and whether it is complete is {why}" if complete is None else "")
        elif not report.run.functions:
            yield f"the {name} run has no recorded sources: a statement of several lines may not be matched"
        if report.failed_passes:
            yield f"a part of the analysis of the {name} run failed: {', '.join(report.failed_passes)}"
    many = [len({frame.key.process for frame in report.run.frames}) for report in (old, new)]
    if all(many) and many[0] != many[1]:
        named = [plural(number, "process", "processes") for number in many]
        yield f"the old run has {named[0]} with compiled code, the new one {named[1]}: counts cover all of them"
