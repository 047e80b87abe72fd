"""What passes and advice look up in a run again and again, found once a run: a hostile log has as many questions as answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from dynadiag.model.run import Frame, Graph, MutationRecord, Problem, RegionCost, Run, TracedInput
from dynadiag.passes.places import of_last_run, source_function

_Entry = TypeVar("_Entry", bound=Any)


def _by_frame(entries: Iterable[_Entry]) -> Mapping[str, Sequence[_Entry]]:
    found: dict[str, list[_Entry]] = {}
    for one in entries:
        if one.frame is not None:
            found.setdefault(one.frame, []).append(one)
    return found


@of_last_run
def problems_by_frame(run: Run) -> Mapping[str, Sequence[Problem]]:
    """The problems of each frame, in the order of the log."""
    return _by_frame(run.problems)


@of_last_run
def problems_by_process(run: Run) -> Mapping[tuple[int, str], Sequence[Problem]]:
    """The problems of each process and kind, in the order of the log."""
    found: dict[tuple[int, str], list[Problem]] = {}
    for problem in run.problems:
        found.setdefault((problem.process, problem.kind), []).append(problem)
    return found


@of_last_run
def traced_by_frame(run: Run) -> Mapping[str, Sequence[TracedInput]]:
    """The traced inputs of each frame, in the order of the log."""
    return _by_frame(run.traced_inputs)


@of_last_run
def _costs_by_frame(run: Run) -> Mapping[str, Sequence[tuple[int, RegionCost]]]:
    found: dict[str, list[tuple[int, RegionCost]]] = {}
    for position, cost in enumerate(run.costs):
        if cost.frame is not None:
            found.setdefault(cost.frame, []).append((position, cost))
    return found


def costs_of(frames: Iterable[str], run: Run) -> list[RegionCost]:
    """The profiled regions of these frames, in the order of the log."""
    if not run.costs:
        return []
    known = _costs_by_frame(run)
    return [cost for _, cost in sorted((one for frame in set(frames) for one in known.get(frame, ())), key=lambda one: one[0])]


@of_last_run
def frames_by_process(run: Run) -> Mapping[int, Sequence[Frame]]:
    """The frames of each process, in the order of the log."""
    found: dict[int, list[Frame]] = {}
    for frame in run.frames:
        found.setdefault(frame.key.process, []).append(frame)
    return found


@of_last_run
def compiled_functions(run: Run) -> frozenset[tuple[str | None, str | None]]:
    """File and name of each function of which a part was compiled, as a person wrote it."""
    return frozenset((frame.file, source_function(frame.name)) for frame in run.frames)


@of_last_run
def compiled_in_epochs(run: Run) -> frozenset[tuple[str | None, str | None, int, int]]:
    """The same, with the process and the epoch of each."""
    return frozenset((frame.file, source_function(frame.name), frame.key.process, frame.key.epoch) for frame in run.frames)


@of_last_run
def side_effects_by_function(run: Run) -> Mapping[str | None, Sequence[MutationRecord]]:
    """The records of Python side effects by the name of the function that has them."""
    found: dict[str | None, list[MutationRecord]] = {}
    for record in run.mutation_records:
        frame = run.frame(record.frame) if record.kind == "side_effects" else None
        if frame is not None:
            found.setdefault(source_function(frame.name), []).append(record)
    return found


@of_last_run
def targets_by_process(run: Run) -> Mapping[int, frozenset[str]]:
    """What `torch.compile` was called on in each process."""
    found: dict[int, set[str]] = {}
    for call in run.compile_calls:
        found.setdefault(call.process, set()).add(call.target)
    return {process: frozenset(targets) for process, targets in found.items()}


@of_last_run
def first_graphs(run: Run) -> Mapping[str, Graph]:
    """The first Dynamo graph of each frame."""
    return {graph.frame: graph for graph in reversed(run.graphs) if graph.kind == "dynamo"}
