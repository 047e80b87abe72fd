"""An exception that ended the program and that torch.compile's own run-time code raised, after everything had been compiled."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dynadiag.advice.uncaught import CATCH_BOTH, TRY_OUTSIDE, overwritten_advice, returned_input, uncaught_advice
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.lookups import is_from_text
from dynadiag.facts.statements import recorded_functions
from dynadiag.facts.user_frames import is_own_file, normal_path, own_frame, source_function
from dynadiag.facts.wording import excerpt, rank_text, short_place
from dynadiag.model import codes
from dynadiag.model.clauses import Basis, Cause, Clause, Effect, Happened, OnProcesses, Quoted
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Finding, PassResult
from dynadiag.model.run import Problem, Run
from dynadiag.passes.base import Priority
from dynadiag.passes.compile_calls import calling_line
from dynadiag.passes.failed_compilations import raised_by_compilation
from dynadiag.passes.mutation_errors import is_write_in_backward
from dynadiag.passes.mutation_graphs import read_nodes
from dynadiag.source.function import parse_function
from dynadiag.source.line import dotted

# An `assert` on a tensor that failed in compiled code: eager raises AssertionError, the graph's operator RuntimeError.
#
# Dynamo puts `torch._assert_async` in its place, with its message or "assertion error" (`generic_jump` of `_dynamo/symbolic_convert.py`,
# 2.11 to 2.15).
CLAUSES = (
    Cause("In compiled code an `assert` on a tensor is an operator of the graph and raises RuntimeError; eager raises AssertionError"),
    Effect("An `except AssertionError` around the call does not catch it"),
)
"""What its finding claims."""
_RAISED = "RuntimeError: "
_OPERATOR = "_assert_async"


def failed_assert(problem: Problem, run: Run) -> Location | None:
    """The `assert` whose operator raised the exception, by its message; None where it was none, or where it may be one of several."""
    if not problem.text.startswith(_RAISED) or not problem.stack:
        return None
    message = problem.text.removeprefix(_RAISED).strip()
    found = {(location.file, location.line): location for location in _asserts(run, message)}
    place = next(iter(found.values()), None)
    return place if place is not None and len(found) == 1 and problem.stack[-1].file != place.file else None


def _asserts(run: Run, message: str) -> Iterator[Location]:
    for graph in run.graphs:
        nodes = read_nodes(graph, lambda op: _OPERATOR in op) if graph.kind == "dynamo" else ()
        for node in nodes:
            text = node.args[1] if node.target.endswith(_OPERATOR) and len(node.args) > 1 else None
            if text is not None and node.location is not None and (node.location.code or "").startswith("assert") and _is(text, message):
                yield node.location


def _is(text: str, message: str) -> bool:
    try:
        return str(ast.literal_eval(text)).strip() == message
    except (ValueError, SyntaxError):
        return False


# An output of a CUDA graph that is read after a later call has overwritten it: torch raises, with words of its own (2.11 to 2.15).
TITLE = "An output of a CUDA graph was read after a later call had overwritten it"
# `CUDAGraphTreeManager.format_dealloc_msg` (torch/_inductor/cudagraph_trees.py); of gradients 2.15 speaks in other words than 2.11.
_TEXT = re.compile(r"accessing (?P<gradient>gradient )?tensor output of CUDAGraphs that has been overwritten by a subsequent run")
_MADE = re.compile(
    r'Stack trace:\s*File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>[^\n]+)\n'
    r"(?P<code>[^\n]*?)(?:\. (?:To prevent|This can happen)|$)",
    re.MULTILINE,
)
_COMPILED = re.compile(r"/torch/_dynamo/eval_frame\.py$")


class Overwritten(NamedTuple):
    """Where it was read, the line of the compiled code that made it, the user's lines that call that code, whether it is a gradient.

    `reads_own`: the line that reads it is a call of that same code.
    """

    where: Location | None
    made: Location | None
    calls: tuple[Location, ...]
    is_gradient: bool
    reads_own: bool


def overwritten_output(problem: Problem, run: Run) -> Overwritten | None:
    """What an exception says of an overwritten output; None for any other exception."""
    if (told := _TEXT.search(problem.text)) is None:
        return None
    match = _MADE.search(problem.text)
    made = None if match is None else Location(match["file"], int(match["line"]), match["function"].strip(), match["code"].strip())
    entered = [number for number, place in enumerate(problem.stack) if _COMPILED.search(normal_path(place.file))]
    outside = problem.stack[: entered[0]] if entered else problem.stack
    inside = {(place.file, place.function) for place in problem.stack[len(outside) :]} if entered else set()
    reads_own = made is not None and (made.file, made.function) in inside
    where = own_frame(outside, run) or (made if not problem.stack else None)  # of a text that has torch's message alone
    calls = (*_calls(made, run), *((where,) if reads_own and where is not None else ()))
    return Overwritten(
        where, made, tuple({(line.file, line.line): line for line in calls}.values()), told["gradient"] is not None, reads_own
    )


def _calls(made: Location | None, run: Run) -> tuple[Location, ...]:
    """The user's lines that call the compiled function of a line."""
    frames = [
        frame
        for frame in run.frames
        if made is not None
        and frame.callers
        and frame.file is not None
        and normal_path(frame.file) == normal_path(made.file)
        and source_function(frame.name) == made.function
    ]
    return tuple(line for frame in frames if (line := calling_line(frame, run)) is not None)


def clauses_of(found: Overwritten, run: Run) -> Iterator[Clause]:
    """What its finding claims."""
    yield Quoted('"accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run"', by="torch")
    if found.made is not None and is_own_file(found.made.file, run):
        yield Happened(f"It was made at {short_place(found.made)}: `{found.made.code}`")
    yield Cause("The memory of what a CUDA graph returns belongs to the graph: a later call writes its own results there")


def advice_of(found: Overwritten) -> tuple[Advice, ...]:
    """The changes that end it."""
    made, read = (None if place is None else place.code for place in (found.made, found.where))
    return overwritten_advice(made, read, found.calls, is_gradient=found.is_gradient, reads_own=found.reads_own)


_LONGEST = 360
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
    told = (
        Quoted(excerpt(problem.text.rstrip(".: \n"), _LONGEST)),
        Happened(f"Raised at {_raising_place(raised)}, in code that runs only under torch.compile"),
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
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.UNCAUGHT, where, function="backward"), run),
        code=codes.UNCAUGHT,
        severity=codes.severity_of(codes.UNCAUGHT),
        title=_IN_BACKWARD,
        where=where,
        clauses=(
            Quoted(excerpt(problem.text, _LONGEST)),
            Happened("Raised in the backward that this line runs"),
            *_on(problem, run),
            _NOT_TRIED,
        ),
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


def _raising_place(raised: Location) -> str:
    return short_place(raised) + (f" in {raised.function}" if raised.function else "")


# A `try` that is not in force in compiled code: its operators run in a graph, behind the function that would have caught an exception.


@dataclass(frozen=True, slots=True)
class LostHandler:
    """An `except` clause that takes the exception in eager: its line, as it is written, and the line of the `try` that raised."""

    clause: Location
    raising: Location


def lost_handler(raised: str, stack: Sequence[Location], run: Run) -> LostHandler | None:
    """The innermost clause of the user's functions on the stack around their lines that surely takes this exception; None without one.

    `raised` is "IndexError: index 7 is out of bounds". An `assert` on a tensor raises AssertionError in eager.
    """
    kind = raised.partition(":")[0].rpartition(".")[2].lstrip("_")
    for at, place in enumerate(reversed(stack)):
        if not is_own_file(place.file, run) or place.line is None:
            continue
        name = "AssertionError" if at == 0 and (place.code or "").startswith("assert") else kind
        for handler, line in _around(place, run):
            if catches(handler, name):
                return LostHandler(Location(place.file, line, place.function, clause_text(handler)), place)
    return None


def _around(place: Location, run: Run) -> Iterator[tuple[ast.ExceptHandler, int]]:
    """The clauses of each `try` whose body holds the line, innermost first, and the lines of the file that they begin on."""
    line = place.line or 0
    known = [
        recorded_function
        for recorded_function in recorded_functions(place.file, run)
        if recorded_function.line <= line <= recorded_function.line + recorded_function.text.count("\n")
    ]
    function = parse_function(known[-1].text) if known else None
    tries = [] if function is None else list(function.nodes(ast.Try))
    row = line - known[-1].line + 1 if known else 0
    for node in reversed(tries):
        if node.body[0].lineno <= row <= (node.body[-1].end_lineno or 0):
            yield from ((handler, known[-1].line + handler.lineno - 1) for handler in node.handlers)


def clause_text(handler: ast.ExceptHandler) -> str:
    """The clause as it is written: `except (IndexError, RuntimeError)`."""
    return "except" if handler.type is None else f"except {ast.unparse(handler.type)}"


def catches(handler: ast.ExceptHandler, raised: str) -> bool:
    """Whether the handler surely takes an exception of this name; torch's own, such as LinAlgError, are RuntimeErrors."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {(dotted(type_) or "").rpartition(".")[2] if type_ is not None else "BaseException" for type_ in types}
    kind = getattr(builtins, raised, RuntimeError)
    return raised in names or any(isinstance(kind, type) and base.__name__ in names for base in getattr(kind, "__mro__", ()))
