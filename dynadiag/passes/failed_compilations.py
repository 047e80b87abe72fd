"""Compilations that raised into the program: one finding each, at the user's line, with the compiler's own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from dynadiag.advice.uncaught import caught_in_vain, failure_advice
from dynadiag.changes.library_cure import library_cures
from dynadiag.errors import DynadiagError
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.lookups import dynamo_graphs, problems_by_process, process_of
from dynadiag.facts.statements import recorded_function
from dynadiag.facts.user_frames import callers, normal_path, of_last_run, own_entry, own_frame, resume_line, source_function
from dynadiag.facts.wording import base_name, excerpt, frame_text, plural
from dynadiag.model import codes
from dynadiag.model.clauses import EndedProgram, Happened, Quoted
from dynadiag.model.location import Location
from dynadiag.model.report import Finding
from dynadiag.model.run import Frame, Problem, Run
from dynadiag.passes.base import Priority
from dynadiag.passes.fallback_entries import first_sentence, named_frames
from dynadiag.trace import NodeStacks, graph_details
from dynadiag.trace.stacks import printed_stack

MOST_FAILED = 10_000
_LONGEST_SAID = 400
_COMPARED = 200
_TEXT_LIMIT = 200_000
_CONSTRAINT = re.compile(r"^\s*- (You marked .+? as dynamic but your code specialized it to be a constant \(\d+\))", re.MULTILINE)
# What g++, clang, nvcc, MSVC, ptxas and linkers write for the first thing that they refuse.
_COMPILER_ERRORS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^(?P<file>[^\s:][^\n:]{0,400}):(?P<at>\d+(?::\d+)?): (?P<said>(?:fatal |internal compiler )?error: [^\n]+)$",
        r"^(?P<file>[^\s(][^\n(]{0,400})\((?P<at>\d+)\) ?: (?P<said>(?:fatal )?error(?: C\d+)?: [^\n]+)$",
        r"^ptxas (?:[^\n]{0,200}; )?(?P<said>(?:fatal|error) *: [^\n]+)$",
        r"^[^\n]{0,400}\b(?P<said>undefined reference to [^\n]+|cannot find -l[^\n]+)$",
        r"^(?P<file>[^\s:][^\n:]{0,400}):(?P<at>\d+): (?P<said>Error: [^\n]+)$",  # of the assembler
        r"^(?P<said>(?:<command-line>|(?:collect2|ld|clang|g\+\+|gcc|cc1plus)[\w.+-]*): (?:fatal |internal compiler )?error: [^\n]+)$",
    )
)
_COMMAND = re.compile(r"^Command:\n(?P<program>\S{1,200})", re.MULTILINE)
_IN_WORKER = re.compile(r"An exception occurred in a subprocess|^Traceback \(most recent call last\):", re.MULTILINE)
_RAISED = re.compile(r"^(?:\w+\.)*(?P<name>[A-Z]\w*): (?P<said>[^\n]*(?:\n(?!Traceback)[^\n]*)*)", re.MULTILINE)
_TRITON = re.compile(r"CompilationError: (?P<at>at \d+:\d+:)\n(?P<rest>.+)", re.DOTALL)
_FOUND_FROM = re.compile(r"Found from ?: ?\n")


class Failed(NamedTuple):
    """The findings, and how many more there would be."""

    shown: tuple[Finding, ...]
    more: int


def failed_compilations(run: Run, broken: set[str], told: set[str]) -> Failed:
    """Failures that are no graph break: a back end's error, an internal error, a limit under fullgraph, a backward that did not compile.

    `broken` are frames with a graph break, which is their failure unless torch names another error; `told` are those at the recompile limit
    that the recompiles tell.
    """
    named, raised = named_frames(run), {problem.frame: problem for problem in run.problems if problem.kind in ("error", "backend_error")}
    groups: dict[tuple[str | None, int | None, str], list[Frame]] = {}
    for frame in run.frames:
        own = frame.broken_by_error or frame.id not in broken
        if frame.outcome == "failed" and not frame.unfinished and own and frame.id not in told:
            known = named(frame)
            groups.setdefault((known.file, known.line, failure_message(_failure_text(frame))), []).append(frame)
    shown = (
        _forward(run, frames, message, named(frames[0]), raised.get(frames[0].id))
        for (_, _, message), frames in islice(groups.items(), MOST_FAILED)
    )
    return Failed((*shown, *_backwards(run)), max(0, len(groups) - MOST_FAILED))


def raised_by_compilation(problem: Problem, run: Run) -> bool:
    """Whether this exception is that of a compilation that failed in the same process: it is told there."""
    text = _on_one_line(problem.text)
    return any(short in text for short in _said_by_compilations(run).get(problem.process, ()))


@of_last_run
def _said_by_compilations(run: Run) -> Mapping[int, Iterable[str]]:
    """The beginnings of what the failed compilations of each process said."""
    found: dict[int, dict[str, None]] = {}
    for frame in run.frames:
        if frame.outcome == "failed" and not frame.unfinished:
            found.setdefault(frame.key.process, {})[_on_one_line(_failure_text(frame))[:_COMPARED]] = None
    for problem in run.problems:
        if problem.kind == "backward_error":
            found.setdefault(problem.process, {})[_on_one_line(problem.text)[:_COMPARED]] = None
    return {process: tuple(filter(None, said)) for process, said in found.items()}


@lru_cache(maxsize=64)  # the same few exceptions are compared with each failure
def _on_one_line(text: str) -> str:
    return " ".join(text[: 4 * _TEXT_LIMIT].split())


def failure_message(said: str) -> str:
    """The line of an error that says what is wrong: the compiler's first `error:`, Triton's last line, else the first sentence."""
    said = said[:_TEXT_LIMIT]
    if constraint := _CONSTRAINT.search(said):
        return readable(constraint[1])
    message = _compiler_error(said) or _triton_error(said) or _worker_error(said) or _explained(said)
    return excerpt(message, _LONGEST_SAID)


def _compiler_error(said: str) -> str | None:
    found = next((match for pattern in _COMPILER_ERRORS if (match := pattern.search(said))), None)
    if found is None:
        return None
    parts, command = found.groupdict(), _COMMAND.search(said)
    program = f"{base_name(command['program'])}: " if command else ""
    place = f"{base_name(parts['file'])}:{parts['at']}: " if parts.get("file") else ""
    return f"{said.partition(':')[0]}: {program}{place}{found['said'].strip()}"


def _triton_error(said: str) -> str | None:
    """Triton prints the kernel up to the line that it refuses, a mark below it, and then why."""
    found = _TRITON.search(said)
    if found is None:
        return None
    lines = [line.strip() for line in found["rest"].partition("\nTraceback")[0].splitlines() if line.strip()]
    marks = [number for number, line in enumerate(lines) if line == "^"]
    why = lines[marks[-1] + 1 :] if marks else lines[-1:]
    code = lines[marks[-1] - 1] if marks and marks[-1] else ""
    return f"Triton's CompilationError {found['at']} {f'`{code}`: ' if code else ''}{' '.join(why)}".rstrip(": ")


def _worker_error(said: str) -> str | None:
    """The exception that a printed traceback inside the message ends in."""
    start = _IN_WORKER.search(said)
    raised = list(_RAISED.finditer(said, start.end())) if start else []
    return f"{raised[-1]['name']}: {first_sentence(raised[-1]['said'])}" if raised else None


def _explained(said: str) -> str:
    first, _, rest = said.partition("\n")
    explained = rest.strip().partition("\n")[0].strip()
    if explained.startswith("Explanation: "):
        return f"{first.strip()}: {explained.removeprefix('Explanation: ')}"
    return first_sentence(said)


def _forward(run: Run, frames: Sequence[Frame], message: str, known: Frame, raised: Problem | None) -> Finding:
    metrics, said = frames[0].metrics, _failure_text(frames[0])
    kind = (None if metrics is None else metrics.fail_type) or frames[0].fail_type or "an error"
    line = _failed_at(frames[0], raised, run)
    begins = None if line is not None else _graph_begins(frames[0], known, run)
    message = message if begins is None else f"{message.rstrip('.')} (the graph begins at line {begins.line})"
    where = line or begins or _entry(frames[0], known, run)
    atlas = library_cures(_traced(frames[0], raised), run, process_of(run, frames[0].key.process), line=line)
    caught = () if raised is None else caught_in_vain(raised.stack[len(callers(frames[0])) :], kind, run)
    found = _finding(run, f"Compilation failed with {kind}", kind, where, (said, message), frames, known)
    return replace(found, fix=(*atlas, *caught, *found.fix))


def _backwards(run: Run) -> Iterable[Finding]:
    """A backward is compiled at its first call at the latest; its forward has been compiled and may have run (torch 2.11 to 2.15)."""
    groups: dict[tuple[str | None, int | None, str], list[tuple[Problem, Frame]]] = {}
    for problem in run.problems:
        frame = run.frame(problem.frame or "") if problem.kind == "backward_error" else None
        if frame is not None and frame.outcome != "failed":
            groups.setdefault((frame.file, frame.line, failure_message(problem.text)), []).append((problem, frame))
    for group in groups.values():
        problem, frame = group[0]
        ended = _that_ended(run, problem.text, frame.key.process)
        where = own_frame(() if ended is None else _until_run_time(ended.stack), run) or own_entry(frame, run)
        kind, failure = problem.subject, (problem.message, failure_message(problem.message))
        yield _finding(run, f"Compilation of a backward failed with {kind}", kind, where, failure, [item for _, item in group], frame)


def _until_run_time(stack: Sequence[Location]) -> Sequence[Location]:
    """The callers of the backward, without the back end that refused it, which may be the user's own code too."""
    at = next((number for number, place in enumerate(stack) if "/torch/_functorch/" in normal_path(place.file)), len(stack))
    return stack[:at]


def _finding(
    run: Run, title: str, kind: str, where: Location | None, failure: tuple[str, str], frames: Sequence[Frame], known: Frame
) -> Finding:
    """`failure`: what torch said, and its line that says what is wrong."""
    said, message = failure
    ended = _that_ended(run, said, frames[0].key.process) is not None
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.COMPILATION_FAILED, where, kind), run),
        code=codes.COMPILATION_FAILED,
        severity=codes.severity_of(codes.COMPILATION_FAILED),
        title=title,
        where=where if resume_line(known.name) is not None else _with_code(where, run),  # the line of the break is not what failed
        clauses=(
            Quoted(message.rstrip("."), by=frame_text(known)),
            Happened(f"{plural(len(frames), 'compilation')} failed"),
            *((EndedProgram(),) if ended else ()),
        ),
        fix=failure_advice(said, kind, run, frames[0]),
        cost=None,
        evidence=tuple(frame.id for frame in frames)[:20],
        rank=(float(Priority.FAILED), 0.0, -float(len(frames))),
    )


def _with_code(where: Location | None, run: Run) -> Location | None:
    """The place with its line as it was recorded, where the record of the place has none."""
    if where is None or where.line is None or where.code:
        return where
    found = recorded_function(where.file, where.line, run)
    return where if found is None else replace(where, code=found.text.split("\n")[where.line - found.line].strip())


def _that_ended(run: Run, said: str, process: int) -> Problem | None:
    """The exception that ended the process, if it is this one."""
    short = _on_one_line(said)[:_COMPARED]
    ended = problems_by_process(run).get((process, "uncaught"), ())
    return next((problem for problem in ended if short and short in _on_one_line(problem.text)), None)


def _failed_at(frame: Frame, raised: Problem | None, run: Run) -> Location | None:
    """The user's own line that was traced or lowered when it failed."""
    said = None if frame.metrics is None else frame.metrics.fail_location
    return own_frame(_traced(frame, raised), run) or own_frame((said,) if said else (), run)


def _traced(frame: Frame, raised: Problem | None) -> Sequence[Location]:
    """The places in the program that were traced or lowered when it failed, outermost first."""
    lowered = _FOUND_FROM.split(_failure_text(frame)[:_TEXT_LIMIT])[1:]
    if lowered:
        return printed_stack(lowered[-1].split("\n"))
    return () if raised is None else raised.stack[len(callers(frame)) :]


def _entry(frame: Frame, known: Frame, run: Run) -> Location | None:
    """The user's line that led to the frame, else the line in a library, else the frame."""
    said = None if frame.metrics is None else frame.metrics.fail_location
    return own_entry(known, run) or said or (None if known.file is None else Location(known.file, known.line, known.name))


def _graph_begins(frame: Frame, known: Frame, run: Run) -> Location | None:
    """In the rest of a function the first line of the graph that failed as a whole: the frame's own line is that of the break before it."""
    details = [dynamo_graph.details for dynamo_graph in dynamo_graphs(run).get(frame.id, ()) if dynamo_graph.details is not None]
    if resume_line(known.name) is None or not details:
        return None
    try:
        stacks = NodeStacks(graph_details(details[-1])).all()
        begins = next((place for stack in stacks if (place := own_frame(stack, run)) is not None), None)
    except DynadiagError:
        return None
    return None if begins is None else replace(begins, function=source_function(known.name), code=None)


def _failure_text(frame: Frame) -> str:
    return (None if frame.metrics is None else frame.metrics.fail_reason) or frame.error or "torch recorded no reason"
