"""An exception that ended the program and that torch.compile's own run-time code raised, after everything had been compiled."""

from __future__ import annotations

import re

from dynadiag.advice.uncaught import uncaught_advice
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.user_frames import normal_path, own_frame
from dynadiag.facts.wording import rank_text, short_place
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, PassResult
from dynadiag.model.run import Problem, Run
from dynadiag.passes.base import Priority
from dynadiag.passes.failed_compilations import raised_by_compilation
from dynadiag.passes.mutation_errors import is_write_in_backward

_LONGEST = 400
# What runs around and inside a compiled call, but not the two files that only pass a call on to the user's own function.
_RUN_TIME = re.compile(r"/torch/(?:_functorch|_inductor|_dynamo)/")
_PASSED_ON = re.compile(r"/torch/_dynamo/(?:eval_frame|external_utils)\.py$")
_TRACING = re.compile(r"/torch/_dynamo/(?:convert_frame|symbolic_convert)\.py$")
# Told as mutations (DM): autograd or torch refuse what the program wrote, in eager too.
_OF_MUTATIONS = re.compile(r"modified by an inplace operation|Inplace update to inference tensor|single memory location")


def find_uncaught(run: Run) -> PassResult:
    """One finding for each process that ended so; whether the program works in eager is not claimed, since nobody ran it."""
    found = (problem for problem in run.problems if problem.kind == "uncaught" and _by_compiled_code(problem, run))
    return PassResult(findings=tuple(_finding(problem, run) for problem in found))


def _by_compiled_code(problem: Problem, run: Run) -> bool:
    """Whether torch.compile's code raised it after compiling: the innermost frame of the stack is there, and no compilation raised it."""
    paths = [normal_path(place.file) for place in problem.stack]
    if not paths or _PASSED_ON.search(paths[-1]) or not _RUN_TIME.search(paths[-1]):
        return False
    if any(_TRACING.search(path) for path in paths) or _OF_MUTATIONS.search(problem.text) or is_write_in_backward(problem.text):
        return False
    return not raised_by_compilation(problem, run)


def _finding(problem: Problem, run: Run) -> Finding:
    raised = problem.stack[-1]
    where = own_frame(problem.stack, run)
    text = " ".join(problem.text.split())[:_LONGEST]
    on = rank_text(run, (problem.process,))
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.UNCAUGHT, where, function=raised.function or ""), run),
        code=codes.UNCAUGHT,
        severity=codes.severity_of(codes.UNCAUGHT),
        title=codes.title_of(codes.UNCAUGHT),
        where=where,
        why=f"{text.rstrip('.')}. Raised at {_place(raised)}, in code that runs only under torch.compile{f'; on {on}' if on else ''}. "
        "Whether the program works without torch.compile was not tried.",
        fix=uncaught_advice(problem.text),
        cost=None,
        evidence=(),
        rank=(float(Priority.FAILED),),
    )


def _place(raised: Location) -> str:
    return short_place(raised) + (f" in {raised.function}" if raised.function else "")
