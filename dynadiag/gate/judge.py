"""What of a report fails: its findings and counts against the limits, less what a comment allows and what the baseline knows."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dynadiag.errors import NothingFoundError, UnreadableInputError
from dynadiag.facts.cache_lookups import look_ups
from dynadiag.facts.compiled_work import compiled_work, why_no_work
from dynadiag.facts.fingerprint import SCHEME, functions_of, matched
from dynadiag.facts.program_end import failure_of, refuse_missing_torch
from dynadiag.facts.statements import statement_lines
from dynadiag.facts.user_frames import project_path
from dynadiag.facts.wording import listed, notebook_of, plural, script_arguments, unique
from dynadiag.gate.baseline import Entry, KnownProblems
from dynadiag.gate.comments import Allowance, allowances
from dynadiag.gate.result import FAIL_ON, GateOptions, GateResult, Limit, Problem, counted
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, Mutation, Report
from dynadiag.render.completeness import completeness, why_cut_short

_SEVERITIES = ("note", "warning", "error")
_BREAKS, _RECOMPILES, _COPIES = ("GB", "DB"), ("DR",), frozenset({"copy_back", "extra_copy"})


def judge(report: Report, options: GateOptions, *, known: KnownProblems | None, sources: Mapping[str, str]) -> GateResult:
    """The outcome for a report. `known` is the program's part of the baseline, `sources` the own files that are as recorded.

    Raises NothingFoundError when nothing was compiled, UnreadableInputError for a recording that is not complete, TorchUnsupportedError for
    a program that found no torch, UsageError for a comment without a reason.
    """
    _refuse_incomplete(report)
    comments = allowances(report.run, sources)
    found, used = _with_comments(report, [*map(_of_finding, report.findings), *_copies(report)], comments)
    found, gone, moved = _with_baseline(report, found, known)
    other_scheme = known is not None and known.scheme != SCHEME
    limits = tuple(_limits(report, options, found))
    copied = {mutation.id for mutation in report.mutations if _is_copied(mutation)}
    problems = tuple(_judged(problem, options, limits, copied) for problem in found)
    needless = [allowance for number, allowance in enumerate(comments) if allowance.judged and number not in used]
    place = _program_place(report)
    return GateResult(
        program=program_of(report),
        torch=report.run.torch,
        problems=(*problems, *(_of_limit(limit, place) for limit in limits if not limit.holds), *_ended(report, place)),
        limits=limits,
        remarks=tuple(map(_needless, needless)),
        notes=tuple(_notes(report, gone, moved, other_scheme=other_scheme)),
        gone=len(gone),
    )


def entries_for(report: Report, result: GateResult, known: KnownProblems | None) -> tuple[Entry, ...]:
    """What the baseline is to hold of this program from now on: of one that it knows only what it knows, else all that fails."""
    kept = ("known",) if known is not None else ("failed",)
    return tuple(
        Entry(fingerprint=problem.fingerprint, code=problem.code, title=problem.title, **_line_of_entry(problem, report))
        for problem in result.problems
        if problem.status in kept and problem.fingerprint is not None
    )


def _line_of_entry(problem: Problem, report: Report) -> dict[str, str]:
    """Where a problem is, as an entry has it."""
    where = problem.where
    if where is None:
        return {"file": "", "function": "", "source": ""}
    return {"file": project_path(where.file, report.run), "function": where.function or "", "source": where.code or ""}


def program_of(report: Report) -> str:
    """The program's name in a baseline: its script or notebook as the project names it, or `-m MODULE`; "" for a log that does not tell."""
    words = script_arguments(report.run)
    if words[:1] == ("-m",):
        return " ".join(words[:2])
    script = words[0] if words else _started(report)
    return project_path(_from_start(script, report), report.run) if script else ""


def _from_start(path: str, report: Report) -> str:
    """A path of the command line as the folder that it was typed in makes it a whole one, where the project is known."""
    folder = report.run.info.cwd
    return posixpath.join(folder, path) if report.run.project and folder is not None else path


def earlier_program_of(report: Report) -> str:
    """What the program was called in a baseline whose fingerprints are of scheme 1: from the folder that it was started in."""
    return program_of(replace(report, run=replace(report.run, project={}, around=())))


def _started(report: Report) -> str:
    """The notebook that nbclient ran, or the script that a launcher such as torchrun started, as its first process knows it."""
    return notebook_of(report.run) or next(
        (process.argv[0] for process in report.run.processes if process.argv and process.argv[0].endswith(".py")), ""
    )


def _refuse_incomplete(report: Report) -> None:
    """A gate must not pass because records are missing."""
    info = report.run.info
    by_its_end = info.timed_out or info.stopped_stable or info.signal is not None or info.exit_status not in (None, 0)
    if (why := why_cut_short(report.run)) is not None:
        raise UnreadableInputError(f"the recording is not complete, so nothing was checked: {why}; record the program again")
    if report.failed_passes:
        raise UnreadableInputError(f"a part of the analysis failed, so nothing was checked: {', '.join(report.failed_passes)}")
    refuse_missing_torch(report.run, "nothing was checked")
    if not report.run.frames and failure_of(info) is None:
        complete, why = completeness(report.run)
        if complete is None and info.exit_status == 0 and not any(process.finished for process in report.run.processes):
            raise UnreadableInputError(
                f"no compilation was recorded, and whether the recording is complete is {why}; record the program again"
            )
        raise NothingFoundError("nothing was compiled, so there is nothing to check")
    cut = next((frame for frame in report.run.frames if frame.unfinished), None)
    if cut is not None and not by_its_end:
        raise UnreadableInputError(f"the log ends while {cut.name or 'a frame'} is compiled, so nothing was checked: pass the whole log")


def _of_finding(finding: Finding) -> Problem:
    return Problem(
        code=finding.code,
        severity=finding.severity,
        status="passed",
        title=finding.title,
        where=finding.where,
        fingerprint=finding.fingerprint,
        why=finding.why,
        fix=finding.fix[0].words if finding.fix else None,
        evidence=finding.evidence,
    )


def _is_copied(mutation: Mutation) -> bool:
    return any(effect["kind"] in _COPIES and "condition" not in effect for effect in mutation.effects)


def _copies(report: Report) -> Iterator[Problem]:
    """The written inputs that are copied and that no finding tells of: for `--no-mutation-copy`."""
    told = {name for finding in report.findings for name in finding.evidence}
    for mutation in report.mutations:
        if _is_copied(mutation) and mutation.id not in told:
            site = next((mapping for mapping in mutation.sites if isinstance(mapping.get("file"), str)), None)
            yield Problem(
                code=mutation.code,
                severity="note",
                status="passed",
                title=f"{mutation.input} is mutated by compiled code and copied back",
                where=None if site is None else Location(site["file"], site.get("line"), site.get("function"), site.get("code")),
                fingerprint=mutation.fingerprint,
                fix=mutation.advice[0].words if mutation.advice else None,
                evidence=(mutation.id,),
            )


def _with_comments(report: Report, found: list[Problem], comments: Sequence[Allowance]) -> tuple[list[Problem], set[int]]:
    """The problems with those allowed that a comment allows, and which comments were used."""
    used: set[int] = set()
    by_file: dict[str, list[tuple[int, Allowance]]] = {}
    for number, allowance in enumerate(comments):
        by_file.setdefault(allowance.file, []).append((number, allowance))
    result = []
    for problem in found:
        here = by_file.get(problem.where.file, []) if problem.where is not None else []
        lines = statement_lines(problem.where, report.run) if here and problem.where is not None else range(0)
        fits = [(n, item) for n, item in here if problem.code in item.codes and item.of_line in lines]
        used.update(n for n, _ in fits)
        result.append(replace(problem, status="allowed", reason=fits[0][1].reason) if fits else problem)
    return result, used


def _with_baseline(report: Report, found: list[Problem], known: KnownProblems | None) -> tuple[list[Problem], list[Entry], int]:
    """The problems with those known that the baseline has; what of it is gone; and how many were found again by other names."""
    if known is None:
        return found, [], 0
    marks = [problem.fingerprint or "" for problem in found]
    torch = report.run.torch
    pairs = matched(
        [item.fingerprint for item in known.entries],
        marks,
        there=functions_of(report.run),
        other_torch=bool(torch) and torch != known.torch,
    )
    if known.scheme != SCHEME:
        pairs |= _by_lines(report, found, known, pairs)
    result = [
        replace(element, status="known") if n in pairs and element.status != "allowed" else element for n, element in enumerate(found)
    ]
    gone = [entry for number, entry in enumerate(known.entries) if number not in pairs.values()]
    return result, gone, sum(marks[to] != known.entries[of].fingerprint for to, of in pairs.items())


def _by_lines(report: Report, found: Sequence[Problem], known: KnownProblems, pairs: Mapping[int, int]) -> dict[int, int]:
    """The problems that fingerprints of another scheme do not tell, by code, function and line of source, each entry once.

    Files by their ends: until scheme 1 they were named from the folder that the program was started in.
    """
    left = {number: entry for number, entry in enumerate(known.entries) if number not in pairs.values()}
    more = {}
    for number, problem in enumerate(found):
        place = _line_of_entry(problem, report)
        same = (of for of, item in left.items() if item.code == problem.code and _is_same_place(place, asdict(item)))
        if number not in pairs and (first := next(same, None)) is not None:
            more[number] = first
            del left[first]
    return more


def _is_same_place(mapping: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(mapping[name] == other[name] for name in ("function", "source")) and (
        mapping["file"] == other["file"] or mapping["file"].endswith(f"/{other['file']}") or other["file"].endswith(f"/{mapping['file']}")
    )


def _limits(report: Report, options: GateOptions, found: Sequence[Problem]) -> Iterator[Limit]:
    """The limits that were asked for. What a comment or the baseline lets through is not counted."""
    summary = report.summary
    excused = [problem for problem in found if problem.status != "passed"]
    kinds = (
        ("max-breaks", "graph break site", options.max_breaks, summary.graph_break_sites, report.graph_breaks),
        ("max-recompiles", "recompile", options.max_recompiles, summary.recompiles, report.recompiles),
        ("max-fallbacks", "fallback to eager", options.max_fallbacks, summary.fallbacks, report.fallbacks),
        ("no-mutation-copy", "copied input", 0 if options.no_mutation_copy else None, None, list(filter(_is_copied, report.mutations))),
    )
    for name, what, most, total, entries in kinds:
        if most is not None:
            number = len(entries) if total is None else total
            through = _excused(entries, excused, found)
            many = "fallbacks to eager" if name == "max-fallbacks" else None
            holds = number - through <= most
            yield Limit(name=name, what=what, many=many, counted=number, excused=through, limit=most, holds=holds)
    if options.max_cache_misses is not None:
        yield _cache_misses(report, options.max_cache_misses)
    if options.max_compiles_after is not None:
        yield _late_compilations(report, options.max_compiles_after)
    if options.min_graphs is not None:
        holds = summary.graphs >= options.min_graphs
        yield Limit(name="min-graphs", what="graph", counted=summary.graphs, excused=0, limit=options.min_graphs, holds=holds)
    if options.min_compiled is not None and report.run.frames:
        yield _compiled(report, options.min_compiled)


def _cache_misses(report: Report, most: int) -> Limit:
    """The compilations for which some cache had nothing, or was not asked."""
    asked = [entry for entry in look_ups(report.run) if entry.events]
    if not asked:
        raise UnreadableInputError(
            "--max-cache-misses cannot be checked: no look-up in a compile cache was recorded (they are off, or the back end has none)"
        )
    missed = sum(any(event.result != "hit" for event in entry.events) for entry in asked)
    what, many = "compilation not from the caches", "compilations not from the caches"
    return Limit(name="max-cache-misses", what=what, many=many, counted=missed, excused=0, limit=most, holds=missed <= most)


def _late_compilations(report: Report, calls: int) -> Limit:
    """What compiled in a later call of compiled functions than the warm-up has."""
    if all(frame.call is None for frame in report.run.frames):
        raise UnreadableInputError("--max-compiles-after cannot be checked: the log does not say in which call each frame was compiled")
    late = sum(frame.call is not None and frame.call > calls for frame in report.run.frames)
    what = f"compilation after the first {plural(calls, 'call')}"
    many = f"compilations after the first {plural(calls, 'call')}"
    return Limit(name="max-compiles-after", what=what, many=many, counted=late, excused=0, limit=0, holds=late == 0)


def _compiled(report: Report, least: float) -> Limit:
    """The share as a count of the operators that were counted."""
    work = compiled_work(report.run)
    if work is None or not work.operators:
        why = why_no_work(report.run) or "no operator ran in the calls that were counted"
        raise UnreadableInputError(f"--min-compiled cannot be checked, since it is not known how much of a call runs compiled: {why}")
    wanted, of = math.ceil(least * work.operators - 1e-9), f"of the {work.operators:,} in a call"
    return Limit(
        name="min-compiled",
        what=f"compiled operator {of}",
        many=f"compiled operators {of}",
        counted=work.compiled,
        excused=0,
        limit=wanted,
        holds=work.compiled >= wanted,
    )


def _excused(entries: Sequence[Any], excused: Sequence[Problem], found: Sequence[Problem]) -> int:
    """How many entries belong to problems that are let through: as their evidence, or, since that is cut, by their line."""
    named = {name for problem in found for name in problem.evidence}
    through = {text for problem in excused for text in problem.evidence}
    known = {problem.fingerprint for problem in excused}
    lines = {(problem.where.file, problem.where.line) for problem in excused if problem.where is not None}

    def is_through(entry: Any) -> bool:
        place: Location | None = getattr(entry, "own_frame", None)
        by_line = place is not None and (place.file, place.line) in lines
        return entry.id in through or (entry.id not in named and (entry.fingerprint in known or by_line))

    return sum(map(is_through, entries))


def _judged(problem: Problem, options: GateOptions, limits: Sequence[Limit], copied: Set[str]) -> Problem:
    """A finding of a kind that has a limit fails with the limit, every other by its severity; an error fails in any case."""
    if problem.status != "passed":
        return problem
    names = {item.name: item for item in limits}
    limit = next((names[name] for name in _kinds(problem, copied) if name in names), None)
    fails = _SEVERITIES.index(problem.severity) >= _SEVERITIES.index(options.fail_on if options.fail_on in FAIL_ON else "warning")
    if limit is not None and problem.severity != "error":
        fails = not limit.holds
    return replace(problem, status="failed") if fails else problem


def _kinds(problem: Problem, copied: Set[str]) -> Iterator[str]:
    """The limits that count what a problem tells of."""
    if problem.code.startswith(_BREAKS):
        yield "max-breaks"
    if problem.code.startswith(_RECOMPILES):
        yield "max-recompiles"
    if problem.code.startswith("DF") and any(name.startswith("x") for name in problem.evidence):
        yield "max-fallbacks"
    if not copied.isdisjoint(problem.evidence):
        yield "no-mutation-copy"


def _of_limit(limit: Limit, place: Location | None) -> Problem:
    if limit.name.startswith("min-"):
        title = f"{counted(limit)}, at least {limit.limit} required"
    else:
        title = f"{counted(limit)}, at most {limit.limit} allowed" + (
            f" (not counting {limit.excused} that are allowed or in the baseline)" if limit.excused else ""
        )
    return Problem(code=limit.name, severity="error", status="failed", title=title, where=place)


def _ended(report: Report, place: Location | None) -> Iterator[Problem]:
    """The program's own failure, which is no finding: what comes behind it was not checked."""
    how = failure_of(report.run.info)
    if how is not None:
        before = "" if report.run.frames else " before anything was compiled"
        yield Problem(code="exit-status", severity="error", status="failed", title=f"The program {how}{before}", where=place)


def _program_place(report: Report) -> Location | None:
    """The first line of the script, for problems that have no line."""
    words = script_arguments(report.run)
    script = words[0] if words else _started(report)
    if script in ("", "-m"):
        return None
    path = Path(script)
    return Location(str(path if path.is_absolute() or report.run.info.cwd is None else Path(report.run.info.cwd) / path), 1)


def _needless(comment: Allowance) -> Problem:
    return Problem(
        code="unused-allow",
        severity="note",
        status="passed",
        title=f"allow[{', '.join(comment.codes)}] is not needed: this run has no such finding here",
        where=Location(comment.file, comment.line),
    )


def _notes(report: Report, gone: Sequence[Entry], moved: int, *, other_scheme: bool) -> Iterator[str]:
    if other_scheme:
        yield (
            "the baseline is of a dynadiag that makes other fingerprints, so its problems were also looked for by code, function and line: "
            "--update-baseline rewrites it"
        )
    if gone:
        named = listed(unique(f"{entry.code} in {entry.function or entry.file or 'the program'}" for entry in gone))
        yield f"{plural(len(gone), 'problem')} of the baseline no longer there ({named}): --update-baseline removes what is gone"
    if moved and not other_scheme:
        yield f"{plural(moved, 'problem')} of the baseline found again under another fingerprint: --update-baseline records it"
    complete, why = completeness(report.run)
    if complete is None and why is not None:
        yield f"whether the recording is complete is {why}"
    if report.run.info.timed_out:
        yield "the time limit ended the program: what it would have compiled later was not checked"
