"""What passes and advice look up in a run again and again, found once a run: a hostile log has as many questions as answers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from dynadiag.facts.statements import parsed_module
from dynadiag.facts.user_frames import is_own_file, of_last_run, own_frame, source_function
from dynadiag.model.graph import Graph, TracedInput
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, CompileMetrics, Frame, Problem, Process, RegionCost, Run
from dynadiag.torch_state import SETTERS

_Entry = TypeVar("_Entry", bound=Any)
_Key = TypeVar("_Key")


def _grouped(entries: Iterable[_Entry], key: Callable[[_Entry], _Key]) -> dict[_Key, list[_Entry]]:
    found: dict[_Key, list[_Entry]] = {}
    for entry in entries:
        found.setdefault(key(entry), []).append(entry)
    return found


@of_last_run
def problems_by_frame(run: Run) -> Mapping[str, Sequence[Problem]]:
    """The problems of each frame, in the order of the log."""
    return _grouped((problem for problem in run.problems if problem.frame is not None), lambda item: str(item.frame))


@of_last_run
def problems_by_process(run: Run) -> Mapping[tuple[int, str], Sequence[Problem]]:
    """The problems of each process and kind, in the order of the log."""
    return _grouped(run.problems, lambda problem: (problem.process, problem.kind))


@of_last_run
def traced_by_frame(run: Run) -> Mapping[str, Sequence[TracedInput]]:
    """The traced inputs of each frame, in the order of the log."""
    return _grouped(run.traced_inputs, lambda traced_input: traced_input.frame)


@of_last_run
def _costs_by_frame(run: Run) -> Mapping[str, Sequence[tuple[int, RegionCost]]]:
    return _grouped(enumerate(run.costs), lambda pair: str(pair[1].frame))


def costs_of(frames: Iterable[str], run: Run) -> list[RegionCost]:
    """The profiled regions of these frames, in the order of the log."""
    if not run.costs:
        return []
    known = _costs_by_frame(run)
    return [cost for _, cost in sorted((pair for frame in set(frames) for pair in known.get(frame, ())), key=lambda entry: entry[0])]


@of_last_run
def frames_by_process(run: Run) -> Mapping[int, Sequence[Frame]]:
    """The frames of each process, in the order of the log."""
    return _grouped(run.frames, lambda frame: frame.key.process)


def is_in_compiled_function(line: Location, run: Run) -> bool:
    """Whether the line is in a function of which a part was compiled."""
    return (line.file, (line.function or "").rpartition(".")[2]) in _compiled_functions(run)


@of_last_run
def _compiled_functions(run: Run) -> frozenset[tuple[str | None, str | None]]:
    """File and name of each function of which a part was compiled, as a person wrote it."""
    return frozenset((frame.file, source_function(frame.name)) for frame in run.frames)


@of_last_run
def compiled_in_epochs(run: Run) -> frozenset[tuple[str | None, str | None, int, int]]:
    """The same, with the process and the epoch of each."""
    return frozenset((frame.file, source_function(frame.name), frame.key.process, frame.key.epoch) for frame in run.frames)


@of_last_run
def targets_by_process(run: Run) -> Mapping[int, frozenset[str]]:
    """What `torch.compile` was called on in each process."""
    return {
        process: frozenset(call.target for call in calls)
        for process, calls in _grouped(run.compile_calls, lambda compile_call: compile_call.process).items()
    }


@of_last_run
def dynamo_graphs(run: Run) -> Mapping[str, Sequence[Graph]]:
    """The Dynamo graphs of each frame, in the order of the log."""
    return _grouped((graph for graph in run.graphs if graph.kind == "dynamo"), lambda item: item.frame)


@of_last_run
def first_graphs(run: Run) -> Mapping[str, Graph]:
    """The first Dynamo graph of each frame."""
    return {frame: graphs[0] for frame, graphs in dynamo_graphs(run).items()}


def kept_graphs(run: Run) -> dict[str, tuple[str, ...]]:
    """The Dynamo graphs that each compiled frame runs; those of attempts and frames that were given up do not count."""
    last = {frame.id: frame.attempts - 1 for frame in run.frames if frame.outcome in ("compiled", "broke")}
    result: dict[str, list[str]] = {}
    for graph in run.graphs:
        if graph.kind == "dynamo" and graph.frame in last and graph.attempt >= last[graph.frame]:
            result.setdefault(graph.frame, []).append(graph.id)
    return {frame: tuple(graphs) for frame, graphs in result.items()}


def code_key(frame: Frame) -> tuple[int, int, int | None, str | None, int | None]:
    """What the compilations of one code object in one process and reset epoch have in common."""
    key = frame.key
    return key.process, key.epoch, key.frame, frame.file, frame.line


def frames_by_code(run: Run) -> dict[tuple[int, int, int | None, str | None, int | None], tuple[Frame, ...]]:
    """All compilations grouped by code object, in the order in which they were recorded."""
    return {key: tuple(frames) for key, frames in _grouped(run.frames, code_key).items()}


def is_refused(metrics: CompileMetrics) -> bool:
    """Whether torch began a compilation and refused it at the recompile limit (`_dynamo/convert_frame.py`)."""
    return "recompile limit exceeded" in str(metrics.fail_reason) or metrics.fail_type == "FailOnRecompileLimitHit"


@of_last_run
def refused_frames(run: Run) -> frozenset[str]:
    """The compilations that torch refused at the recompile limit: they made no version, and torch still records them as recompiles."""
    limited = {problem.frame for problem in run.problems if problem.kind == "recompile_limit"}
    refused = (frame.id for frame in run.frames if frame.metrics is not None and is_refused(frame.metrics))
    return frozenset({frame for frame in limited if frame is not None}.union(refused))


@of_last_run
def is_from_text(run: Run) -> bool:
    """Whether it is known only from what torch printed, which shows neither what was compiled nor what ran eagerly without a word."""
    return any(process.from_text for process in run.processes) and not run.info.command


def printed_graphs(run: Run) -> int | None:
    """How many graphs torch's own counters give, where a text has them printed; None where it has not."""
    counted = [(process.counters or {}).get("stats", {}).get("unique_graphs") for process in run.processes if process.from_text]
    known = [number for number in counted if number is not None]
    return sum(known) if known else None


def process_of(run: Run, index: int) -> Process | None:
    """The process with this index, or None."""
    if 0 <= index < len(run.processes) and run.processes[index].index == index:  # as `trace` numbers them
        return run.processes[index]
    return next((process for process in run.processes if process.index == index), None)


def config_value(run: Run, process: int, area: str, option: str) -> object | None:
    """The non-default value of an option (`area`: dynamo, functorch, inductor), or None when it had its default or is not known."""
    found = process_of(run, process)
    return None if found is None else found.config.get(area, {}).get(option)


# The user's own lines that set a state of torch which compiled code is guarded on.


def lines_that_set(state: str, run: Run) -> tuple[Location, ...]:
    """The recorded lines with a call that sets this state, in the order of their files; empty where none was recorded."""
    names = SETTERS.get(state, ())
    found = [
        Location(file, line, None, text)
        for (file, line), text in (run.blocks.items() if names else ())
        if "\n" not in text and is_own_file(file, run) and _calls(text, names)
    ]
    return tuple(sorted(found, key=lambda location: (location.file, location.line or 0)))


def _calls(text: str, names: tuple[str, ...]) -> bool:
    tree = parsed_module(text) or parsed_module(f"{text} pass")
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else ()
    return any((call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")) in names for call in calls)


# Functions of the user's that `torch.compiler.disable` excludes, which compiled code came to through a library (a hook, a callback).

_IDS = frozenset(("GB0098", "GB0099"))
_REFUSED = re.compile(r"<(?:function|bound method) (?P<name>[\w.<>]+) (?:at 0x|of )")
_NAME = re.compile(r"(?P<name>\S+) is disabled(?:: |\Z)")


def excluded_at(event: BreakEvent, run: Run) -> Location | None:
    """Where the user excludes the function that torch names in this break; None for other breaks and for functions of libraries."""
    if event.gb_id not in _IDS or (named := _REFUSED.search(event.context or "")) is None:
        return None
    frame = run.frame(event.frame)
    return None if frame is None else _excluded(run).get((frame.key.process, named["name"]))


@of_last_run
def _excluded(run: Run) -> Mapping[tuple[int, str], Location | None]:
    """The lines of the user's that exclude functions, by process and name; None for a name with several."""
    found: dict[tuple[int, str], Location | None] = {}
    for problem in run.problems:
        named = _NAME.match(problem.text) if problem.kind == "disabled" else None
        # The call of `disable` itself: below it is only torch's way to it.
        place = own_frame(problem.stack[-1:], run) if named is not None else None
        if named is not None and place is not None:
            key = (problem.process, named["name"])
            found[key] = place if found.get(key, place) == place else None
    return found
