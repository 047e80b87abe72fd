"""An exception that ended the program and that torch.compile's own run-time code raised, after everything had been compiled."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from dynadiag.advice.uncaught import CATCH_BOTH, TRY_OUTSIDE, returned_input, uncaught_advice
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.lookups import is_from_text
from dynadiag.facts.statements import recorded_functions
from dynadiag.facts.user_frames import is_own_file, normal_path, own_frame, source_function
from dynadiag.facts.wording import rank_text, short_place
from dynadiag.model import codes
from dynadiag.model.clauses import Basis, Cause, Happened, OnProcesses, Quoted
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, PassResult
from dynadiag.model.run import Problem, Run
from dynadiag.passes.base import Priority
from dynadiag.passes.failed_asserts import CLAUSES, failed_assert
from dynadiag.passes.failed_compilations import raised_by_compilation
from dynadiag.passes.lost_handlers import catches, clause_text
from dynadiag.passes.mutation_errors import is_write_in_backward
from dynadiag.passes.overwritten_outputs import TITLE, Overwritten, advice_of, clauses_of, overwritten_output
from dynadiag.source.function import parse_function

_LONGEST = 400
_NOT_TRIED = Basis("Whether the program works without torch.compile was not tried")
_NO_TRY = Cause("A graph contains no `try`, and its operators run when the function has left it")
# What runs around and inside a compiled call, but not the two files that only pass a call on to the user's own function.
_RUN_TIME = re.compile(r"/torch/(?:_functorch|_inductor|_dynamo)/")
_PASSED_ON = re.compile(r"/torch/_dynamo/(?:eval_frame|external_utils)\.py$")
_TRACING = re.compile(r"/torch/_dynamo/(?:convert_frame|symbolic_convert)\.py$")
# Told as mutations (DM): autograd or torch refuse what the program wrote, in eager too.
_OF_MUTATIONS = re.compile(r"modified by an inplace operation|Inplace update to inference tensor|single memory location")
# Where autograd's engine raises (`_engine_run_backward`, 2.3 to 2.15), and what it says to a program that calls it wrongly.
_ENGINE = re.compile(r"/torch/autograd/(?:graph|__init__)\.py$")
_CALLED_WRONGLY = re.compile(
    r"backward through the graph a second time|does not require grad and does not have a grad_fn|"
    r"implicitly created only for scalar outputs|appears to not have been used in the graph"
)
_IN_BACKWARD = "An exception in a backward ended the program, part of which is compiled"


def find_uncaught(run: Run) -> PassResult:
    """One finding for each process that ended so; whether the program works in eager is not claimed, since nobody ran it."""
    uncaught = [problem for problem in run.problems if problem.kind == "uncaught"]
    return PassResult(findings=tuple(found for problem in uncaught if (found := _told(problem, run)) is not None))


def _told(problem: Problem, run: Run) -> Finding | None:
    place = failed_assert(problem, run)
    if place is not None:
        return _of_assert(problem, place, run)
    if (overwritten := overwritten_output(problem, run)) is not None:
        return _of_overwritten(problem, overwritten, run)
    escaped = _try_around(problem, run)
    if escaped is not None or _by_compiled_code(problem, run):
        return _finding(problem, escaped, run)
    return _of_backward(problem, run) if _in_backward(problem, run) else None


def _in_backward(problem: Problem, run: Run) -> bool:
    """Whether autograd's engine raised it, in a process that compiled graphs: an operator of the backward, or a check of autograd's."""
    innermost = problem.stack[-1] if problem.stack else None
    if innermost is None or not _ENGINE.search(normal_path(innermost.file)) or _CALLED_WRONGLY.search(problem.text):
        return False
    if _OF_MUTATIONS.search(problem.text) or is_write_in_backward(problem.text) or raised_by_compilation(problem, run):
        return False
    return any(frame.key.process == problem.process for graph in run.graphs if (frame := run.frame(graph.frame)) is not None)


def _by_compiled_code(problem: Problem, run: Run) -> bool:
    """Whether torch.compile's code raised it after compiling: the innermost frame of the stack is there, and no compilation raised it."""
    paths = [normal_path(place.file) for place in problem.stack]
    if not paths or _PASSED_ON.search(paths[-1]) or not (_RUN_TIME.search(paths[-1]) or is_from_text(run)):
        return False  # of a text those only were kept that torch's run-time code or its generated code raised
    if any(_TRACING.search(path) for path in paths) or _OF_MUTATIONS.search(problem.text) or is_write_in_backward(problem.text):
        return False
    return not raised_by_compilation(problem, run)


def _try_around(problem: Problem, run: Run) -> str | None:
    """What a compiled function whose graph raised the exception has to catch it: in eager a `try` is in force while its operators run, and
    a graph runs as a whole behind it. None where it has none, or something else raised.
    """
    passed_on = [number for number, place in enumerate(problem.stack) if _PASSED_ON.search(normal_path(place.file))]
    # Run-time code of torch's that is kept out of Dynamo passes through the same file: it has no caller of the user's.
    at = next((number for number in reversed(passed_on) if number and is_own_file(problem.stack[number - 1].file, run)), 0)
    if not 0 < at < len(problem.stack) - 1 or any(is_own_file(place.file, run) for place in problem.stack[at + 1 :]):
        return None
    caller = problem.stack[at - 1]
    qualified = source_function(caller.function) or ""  # Python 3.10 and older say only `forward`
    name = qualified.rpartition(".")[2]
    known = [
        recorded_function for recorded_function in recorded_functions(caller.file, run) if recorded_function.name.rpartition(".")[2] == name
    ]
    texts = {item.text for item in known if item.name == qualified} or {element.text for element in known}
    function = parse_function(texts.pop()) if len(texts) == 1 and is_own_file(caller.file, run) else None
    handlers = () if function is None else function.nodes(ast.ExceptHandler)
    kind = problem.text.partition(":")[0].rpartition(".")[2].lstrip("_")
    caught = next((handler for handler in handlers if catches(handler, kind)), None)
    return None if caught is None else f"`{clause_text(caught)}` in `{name}`"


def _finding(problem: Problem, escaped: str | None, run: Run) -> Finding:
    raised = problem.stack[-1]
    where = returned_input(problem.text, run) or own_frame(problem.stack, run)
    text = " ".join(problem.text.split())[:_LONGEST]
    told = (
        Quoted(text.rstrip(".: ")),
        Happened(f"Raised at {_place(raised)}, in code that runs only under torch.compile"),
        *_on(problem, run),
    )
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.UNCAUGHT, where, function=raised.function or ""), run),
        code=codes.UNCAUGHT,
        severity=codes.severity_of(codes.UNCAUGHT),
        title=codes.title_of(codes.UNCAUGHT),
        where=where,
        clauses=(*told, _NOT_TRIED)
        if escaped is None
        else (Happened(f"{escaped} catches it where its `try` is in force, as in eager"), _NO_TRY, *told),
        fix=uncaught_advice(problem.text, run, raised.function or "") if escaped is None else (TRY_OUTSIDE,),
        cost=None,
        evidence=(),
        rank=(float(Priority.FAILED),),
    )


def _of_backward(problem: Problem, run: Run) -> Finding:
    where = own_frame(problem.stack, run)
    text = " ".join(problem.text.split())[:_LONGEST]
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.UNCAUGHT, where, function="backward"), run),
        code=codes.UNCAUGHT,
        severity=codes.severity_of(codes.UNCAUGHT),
        title=_IN_BACKWARD,
        where=where,
        clauses=(Quoted(text.rstrip(".")), Happened("Raised in the backward that this line runs"), *_on(problem, run), _NOT_TRIED),
        fix=uncaught_advice(problem.text, run),
        cost=None,
        evidence=(),
        rank=(float(Priority.FAILED),),
    )


def _of_assert(problem: Problem, place: Location, run: Run) -> Finding:
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.UNCAUGHT, place, function=place.function or ""), run),
        code=codes.UNCAUGHT,
        severity=codes.severity_of(codes.UNCAUGHT),
        title="A failed `assert` in compiled code ended the program with RuntimeError, not AssertionError",
        where=replace(place, function=source_function(place.function)),
        clauses=(*CLAUSES, *_on(problem, run)),
        fix=(CATCH_BOTH,),
        cost=None,
        evidence=(),
        rank=(float(Priority.FAILED),),
    )


def _of_overwritten(problem: Problem, found: Overwritten, run: Run) -> Finding:
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.UNCAUGHT, found.where, function="overwritten"), run),
        code=codes.UNCAUGHT,
        severity=codes.severity_of(codes.UNCAUGHT),
        title=TITLE,
        where=found.where,
        clauses=(*clauses_of(found, run), *_on(problem, run)),
        fix=advice_of(found),
        cost=None,
        evidence=(),
        rank=(float(Priority.FAILED),),
    )


def _on(problem: Problem, run: Run) -> tuple[OnProcesses, ...]:
    who = rank_text(run, (problem.process,))
    return (OnProcesses(who),) if who else ()


def _place(raised: Location) -> str:
    return short_place(raised) + (f" in {raised.function}" if raised.function else "")
