"""Recompiles that the stance `fail_on_recompile` refused: in the middle of a call, what stands before has run already."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.user_frames import bare_name, function_words, normal_path, own_frame, resume_line, source_function
from dynadiag.facts.wording import listed, plural, rank_text, short_place, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Clause, Effect, Happened, OnProcesses
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Cost, Finding, PassResult
from dynadiag.model.run import Problem, Run
from dynadiag.passes.base import Priority
from dynadiag.passes.guard_parts import FailedGuard
from dynadiag.passes.guard_text import failed_guards

KIND = "recompile_refused"
_ENTRY = re.compile(r"/torch/_dynamo/eval_frame\.py$")
_FAILED = re.compile(r"^\s*- (?P<reason>\d+/\d+: .*)$", re.MULTILINE)


def find_refused_recompiles(run: Run) -> PassResult:
    """One finding for each function and line at which the stance raised."""
    groups: dict[tuple[object, ...], list[Problem]] = {}
    for problem in run.problems:
        if problem.kind == KIND and problem.stack:
            refused = problem.stack[-1]
            groups.setdefault((refused.file, refused.function, refused.line, _began(problem)), []).append(problem)
    members = list(groups.values())
    subjects = [Subject(codes.RECOMPILE_REFUSED, _where(member[0], run), function=_name(member[0])) for member in members]
    marks = fingerprints(subjects, run)
    return PassResult(findings=tuple(_finding(group, mark, run) for group, mark in zip(members, marks, strict=True)))


def _began(problem: Problem) -> Location | None:
    """The line at which the call stood when it was refused: below torch's entry some code of it was running; None if none was."""
    entries = [number for number, place in enumerate(problem.stack) if _ENTRY.search(normal_path(place.file))]
    inside = problem.stack[entries[-1] + 1 : -1] if entries else ()
    return inside[-1] if inside else None


def _where(problem: Problem, run: Run) -> Location | None:
    return own_frame(problem.stack[:-1], run)


def _name(problem: Problem) -> str:
    return bare_name(problem.stack[-1].function) or ""


def _finding(group: Sequence[Problem], mark: str, run: Run) -> Finding:
    first = group[0]
    refused, began = first.stack[-1], _began(first)
    name = function_words(_name(first), refused.file)
    guards = [guard for problem in group for guard in _guards(problem)]
    title = f"A recompile of {name} was refused"
    happened = f'The stance "fail_on_recompile" raised {plural(len(group), "RuntimeError")} instead of compiling it again'
    if changed := unique(_words(guard) for guard in guards):
        happened += f": {listed(changed)}"
    clauses: list[Clause] = [Happened(happened)]
    if began is not None:
        title += " after part of the call had run"
        line = f"`{began.code}` ({short_place(began)})" if began.code else short_place(began)
        clauses.append(Effect(f"The call had run up to {line}: what comes before it took effect, and what follows did not run"))
    if who := rank_text(run, {one.process for one in group}):
        clauses.append(OnProcesses(who))
    where = _where(first, run)
    return Finding(
        id="",
        fingerprint=mark,
        code=codes.RECOMPILE_REFUSED,
        severity="error" if began is not None else "warning",
        title=title,
        where=None if where is None else replace(where, function=source_function(where.function)),
        clauses=tuple(clauses),
        fix=_advice(refused, began, changed),
        cost=Cost(value=float(len(group)), unit="refusals" if len(group) > 1 else "refusal", basis="counted"),
        evidence=(),
        rank=(float(Priority.FAILED), -float(len(group))),
    )


def _guards(problem: Problem) -> tuple[FailedGuard, ...]:
    return tuple(guard for match in _FAILED.finditer(problem.text) for guard in failed_guards(match["reason"]))


def _words(guard: FailedGuard) -> str:
    if guard.kind == "unknown" or not guard.source:
        return f"`{guard.text}` failed"
    was = f" was {guard.expected}" if guard.expected is not None else " changed"
    return f"`{guard.source}`{was}{f', now {guard.actual}' if guard.actual is not None else ''}"


def _advice(refused: Location, began: Location | None, changed: Sequence[str]) -> tuple[Advice, ...]:
    """What is certain: a version for each value, or a call that is looked at as a whole before anything of it runs."""
    found = []
    if began is not None and resume_line(refused.function) is not None:
        text = (
            f"Remove the graph break at {short_place(began)}: one version then holds the whole call, and the stance refuses it before "
            "anything of it has run."
        )
        found.append(Advice(slug="refused-before-anything-ran", text=text))
    if changed:
        found.append(Advice(slug="warm-up-before-stance", text="Call it once with each value before the stance is set."))
    return tuple(found)
