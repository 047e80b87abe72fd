"""The recorded calls of `torch.compile`, looked up by what they compiled, and the lines that call what was compiled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.facts.guard_sources import readable, root_name
from dynadiag.facts.user_frames import is_own_file, normal_path, of_last_run, source_function
from dynadiag.model.location import Location
from dynadiag.model.run import CompileCall, Frame, Run

_COMPILED = re.compile(r"/torch/_dynamo/eval_frame\.py$")
_NAMES = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_TORCHS_WAY = re.compile(r"/torch/(?:nn/modules/module|_dynamo/eval_frame|_dynamo/external_utils)\.py$")


@dataclass(frozen=True, slots=True)
class Called:
    """How a function was compiled: with `dynamic=False` each time; `fullgraph` None: sometimes, or not known."""

    dynamic_false: bool
    fullgraph: bool | None


@dataclass(frozen=True, slots=True)
class CompileCalls:
    """The calls of each process, and of each process and name of a target."""

    by_process: Mapping[int, Called]
    by_name: Mapping[tuple[int, str], tuple[CompileCall, ...]]

    @classmethod
    def of_run(cls, run: Run) -> CompileCalls:
        """All calls of a run."""
        processes: dict[int, list[CompileCall]] = {}
        names: dict[tuple[int, str], list[CompileCall]] = {}
        for call in run.compile_calls:
            processes.setdefault(call.process, []).append(call)
            names.setdefault((call.process, call.target.rpartition(".")[2]), []).append(call)
        return cls({key: _read(calls) for key, calls in processes.items()}, {key: tuple(calls) for key, calls in names.items()})

    def targets(self, process: int) -> int:
        """How many different things were compiled in a process, by their names and the lines that compile them."""
        found = ((call.target, call.location) for (number, _), calls in self.by_name.items() if number == process for call in calls)
        return len({(target, None if place is None else (place.file, place.line)) for target, place in found})

    def of(self, process: int, frame: Frame) -> Called:
        """The calls that may have compiled a frame: those for its name, else all of its process.

        Functions of one name in several files are told apart by the file of the call, where one stands in the file of the function.
        """
        named = self.by_name.get((process, source_function(frame.name) or ""))
        if named is not None:
            beside = [call for call in named if call.location is not None and call.location.file == frame.file]
            return _read(beside or named)
        return self.by_process.get(process, Called(False, None))


def _read(calls: Sequence[CompileCall]) -> Called:
    full = {bool(call.options.get("fullgraph")) for call in calls}
    static = all(call.options.get("dynamic") is False for call in calls)
    return Called(static, full.pop() if len(full) == 1 else None)


def calling_line(frame: Frame, run: Run) -> Location | None:
    """The user's line that calls the compiled function itself, with nothing between but torch's way from a module to its `forward`.

    None where it is not certain: torch's own stack lacks the two innermost callers, so only runs that dynadiag recorded tell. None too
    where a compiled callable was entered on the way to the line: what is called there is called by compiled code, or by what a break left.
    """
    for at in range(len(frame.callers) - 1, -1, -1):
        caller = frame.callers[at]
        if is_own_file(caller.file, run):
            return None if any(_COMPILED.search(normal_path(location.file)) for location in frame.callers[:at]) else caller
        if not _TORCHS_WAY.search(normal_path(caller.file)):
            return None
    return None


def calling_lines(frames: Sequence[Frame], run: Run) -> tuple[Location, ...]:
    """The user's lines that call the compiled function itself, the first call's first; empty if one of the calls is not certain.

    An attempt that torch refused at the recompile limit has no callers, and does not count.
    """
    found = [calling_line(frame, run) for frame in frames if frame.callers]
    lines = {(location.file, location.line): location for location in reversed(found) if location is not None}
    return () if None in found else tuple(reversed(lines.values()))


def names_passed_before(frames: Sequence[Frame], run: Run) -> frozenset[str]:
    """The names on the user's lines that called another compiled function before the first of these compilations."""
    order, names = _passed(run)
    first = min((order[frame.id] for frame in frames), default=0)
    return frozenset(name for name, number in names.items() if number < first)


@of_last_run
def _passed(run: Run) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The number of each frame, and that of the first frame that was called from a line with a name."""
    names: dict[str, int] = {}
    for number, frame in enumerate(run.frames):
        line = calling_line(frame, run) if frame.callers else None
        for name in () if line is None else _NAMES.findall(line.code or ""):
            names.setdefault(name, number)
    return {frame.id: number for number, frame in enumerate(run.frames)}, names


def input_roots(run: Run) -> Mapping[str, frozenset[str]]:
    """The variables that the tensors of each frame come from, by frame id."""
    found: dict[str, set[str]] = {}
    for traced_input in run.traced_inputs:
        root = root_name(readable(traced_input.source))
        if root is not None:
            found.setdefault(traced_input.frame, set()).add(root)
    return {frame: frozenset(roots) for frame, roots in found.items()}


def inputs_of(frames: Iterable[Frame], roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The variables of the first of these compilations of one code object for which the log tells them."""
    return next((roots[frame.id] for frame in frames if frame.id in roots), frozenset())
