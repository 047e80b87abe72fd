"""An output of a CUDA graph that is read after a later call has overwritten it: torch raises, with words of its own (2.11 to 2.15)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dynadiag.advice.overwritten import overwritten_advice
from dynadiag.facts.user_frames import is_own_file, normal_path, own_frame, source_function
from dynadiag.facts.wording import short_place
from dynadiag.model.clauses import Cause, Clause, Happened, Quoted
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import Problem, Run
from dynadiag.passes.compile_calls import calling_line

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
