"""An export that failed: where tracing stopped, what torch says, and what the same line would need under torch.compile."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from dynadiag.advice.graph_breaks import advised
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.user_frames import own_frame, source_function
from dynadiag.facts.wording import excerpt, rank_text, short_place
from dynadiag.model import codes
from dynadiag.model.clauses import Clause, Effect, Happened, OnProcesses, Unadvised
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Finding, PassResult
from dynadiag.model.run import BreakEvent, Problem, Run
from dynadiag.passes.base import Priority
from dynadiag.source.line import parse_line
from dynadiag.source.tree import holds
from dynadiag.trace.break_text import parse_reason
from dynadiag.trace.stacks import printed_stack

KIND, EXPORTED = "export_failed", "exported"
_LONGEST = 400
_USER_CODE = "from user code:"
_UNDECIDED = re.compile(r"data-dependent expression|[Dd]ata-dependent")
_EXPORT = re.compile(r"[/\\]torch[/\\]export[/\\]")
_ALL_AT_ONCE = Advice(
    slug="draft-export",
    text="`torch.export.draft_export` with the same arguments does not stop there, and lists all such places.",
)
_BRANCH = "GB0170"
_IN_GRAPH = Advice(
    slug="export-branch",
    text=(
        "Make the choice a part of the graph: `torch.where(condition, a, b)` where both values may be computed for every input, else "
        "`torch.cond(condition, true_fn, false_fn, (inputs,))`."
    ),
)


def find_failed_exports(run: Run) -> PassResult:
    """One finding for each line at which an export stopped."""
    failed: dict[tuple[object, ...], dict[tuple[Clause, ...], Finding]] = {}
    for problem in run.problems:
        asked = _asking(problem, run) if problem.kind in (KIND, EXPORTED) else None
        at = (problem.process, asked)
        if problem.kind == KIND:
            finding = _finding(problem, run)
            failed.setdefault(at, {}).setdefault(finding.clauses, finding)
        elif problem.kind == EXPORTED:  # what tries one way of exporting after the other (`torch.onnx`) has found one
            failed.pop(at, None)
    return PassResult(findings=tuple(finding for group in failed.values() for finding in group.values()))


def _finding(problem: Problem, run: Run) -> Finding:
    message, _, user_code = problem.text.partition(_USER_CODE)
    inside = printed_stack(user_code.split("\n")) if user_code else ()  # a strict export, traced by Dynamo
    asked = _asking(problem, run)
    where = own_frame(inside, run) or own_frame(problem.stack, run)
    place = None if where is None or where.is_same_line(asked) else where
    text = excerpt(message.strip().partition("\n\n")[0].rstrip(". "), _LONGEST)
    calls = "The program exports" if asked is None else f"The program exports at {short_place(asked)}"
    stopped = "it failed" if place is None else f"tracing stopped at {short_place(place)}"
    who = rank_text(run, (problem.process,))
    fixes, reason = ((), "") if place is None else _of_same_break(problem, place, run)
    undecided = (_ALL_AT_ONCE,) if _UNDECIDED.search(message) else ()
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.EXPORT_FAILED, where), run),
        code=codes.EXPORT_FAILED,
        severity=codes.severity_of(codes.EXPORT_FAILED),
        title=codes.title_of(codes.EXPORT_FAILED),
        where=None if where is None else replace(where, function=source_function(where.function)),
        clauses=(
            Happened(f"{calls}, and {stopped}: {text}"),
            *((OnProcesses(who),) if who else ()),
            Effect("An export needs the whole program in one graph"),
            *((Unadvised(reason, of="the line itself"),) if reason and not fixes else ()),
        ),
        fix=(*fixes, *undecided),
        cost=None,
        evidence=(),
        rank=(float(Priority.FAILED),),
    )


def _asking(problem: Problem, run: Run) -> Location | None:
    """The user's line that called torch.export."""
    at = next((number for number, place in enumerate(problem.stack) if _EXPORT.search(place.file)), None)
    return None if at is None else own_frame(problem.stack[:at], run)


def _of_same_break(problem: Problem, place: Location, run: Run) -> tuple[tuple[Advice, ...], str]:
    """The advice that torch.compile's break at this line has, without options, which an export does not read."""
    message = problem.message.partition(_USER_CODE)[0]
    reason, _ = parse_reason(message)
    gb_id = reason.gb_id or _branch(place, message)
    if gb_id is None:
        return (), ""
    event = BreakEvent(
        frame="",
        attempt=0,
        gb_id=gb_id,
        gb_type=reason.gb_type if reason.gb_id else "Data-dependent branching",
        explanation=reason.explanation if reason.gb_id else None,
        hints=(),
        context=reason.context if reason.gb_id else None,
        stack=(place,),
        torch_frame=place,
    )
    advice, why = advised(event, run, place)
    fixes = tuple(item for item in advice if not item.options and "is_compiling" not in (item.after or ""))
    return fixes or ((_IN_GRAPH,) if gb_id == _BRANCH and _chooses(place) else ()), why


def _chooses(place: Location) -> bool:
    """Whether the line is an `if` with two ways to go on, not a loop or a check."""
    tree = parse_line(place.code).tree
    return tree is not None and holds(tree, ast.If, ast.IfExp)


def _branch(place: Location, message: str) -> str | None:
    """The id of a branch on a value that tracing does not know, where the line has one."""
    tree = parse_line(place.code).tree
    asks = tree is not None and holds(tree, ast.If, ast.While, ast.IfExp, ast.Assert)
    return _BRANCH if asks and _UNDECIDED.search(message) else None
