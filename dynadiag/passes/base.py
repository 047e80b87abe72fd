"""What every pass shares: its shape, the classes that findings are ranked by, and short texts for places and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from dynadiag.model.report import PassResult
from dynadiag.model.run import CompileKey, Frame, Location, Process, Run
from dynadiag.passes.places import resume_line, source_function


class Pass(Protocol):
    """A diagnosis: takes the plain run, returns what it found; it must not read files, import torch or keep state."""

    def __call__(self, run: Run, /) -> PassResult:
        """What this pass found in `run`."""
        ...


_RUNS_SHOWN = 8


class Rank(IntEnum):
    """The classes that findings are sorted by, dearest first; within a class the numbers of `Finding.rank[1:]` decide.

    A pass builds `rank=(Rank.X, -number, ...)`: larger numbers must come out smaller, because the list is sorted upwards.
    """

    NOTHING_COMPILED = 0
    WRONG_RESULT = 1
    FAILED = 2
    RAN_EAGER = 3
    LIMIT_HIT = 4
    GRAPH_BREAK = 5
    RECOMPILED = 6
    RANKS_DIFFER = 7
    COMPILE_TIME = 8
    GUARDS = 9
    REMARK = 10


def plural(count: int, singular: str, many: str | None = None) -> str:
    """The count with its noun: "1 event", "3 events"."""
    return f"{count} {singular if count == 1 else many or singular + 's'}"


def base_name(path: str) -> str:
    """The last part of a path of any system: logs come from foreign machines."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def short_place(location: Location | None) -> str:
    """`train.py:12`, or `train.py` without a line, or "an unknown place"."""
    if location is None:
        return "an unknown place"
    name = base_name(location.file)
    return name if location.line is None else f"{name}:{location.line}"


def frame_text(frame: Frame | None) -> str:
    """`forward (model.py:12) [0/1]`: a frame as people name it, with torch's compile id."""
    if frame is None:
        return "an unknown frame"
    place = "" if frame.file is None else f" ({short_place(Location(frame.file, frame.line))})"
    line = resume_line(frame.name)
    name = frame.name or "an unnamed frame" if line is None else f"{source_function(frame.name)}, resumed at line {line}"
    return f"{name}{place} [{frame.key.text}]"


def frame_location(frame: Frame) -> Location | None:
    """Where the frame's code begins, or None when the log did not say."""
    return None if frame.file is None else Location(frame.file, frame.line, frame.name)


def code_key(frame: Frame) -> tuple[int, int, int | None, str | None, int | None]:
    """What the compilations of one code object in one process and reset epoch have in common."""
    key = frame.key
    return key.process, key.epoch, key.frame, frame.file, frame.line


def frames_by_code(run: Run) -> dict[tuple[int, int, int | None, str | None, int | None], tuple[Frame, ...]]:
    """All compilations grouped by code object, in the order in which they were recorded."""
    groups: dict[tuple[int, int, int | None, str | None, int | None], list[Frame]] = {}
    for frame in run.frames:
        groups.setdefault(code_key(frame), []).append(frame)
    return {key: tuple(frames) for key, frames in groups.items()}


def process_of(run: Run, index: int) -> Process | None:
    """The process with this index, or None."""
    if 0 <= index < len(run.processes) and run.processes[index].index == index:  # as `trace` numbers them
        return run.processes[index]
    return next((process for process in run.processes if process.index == index), None)


def rank_numbers(ranks: Iterable[int]) -> str:
    """Ranks in few words, however many: "0, 2 to 7, 9 and 1,000 more"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(first) if first == last else f"{first} to {last}" if last > first + 1 else f"{first}, {last}" for first, last in runs]
    more = sum(last - first + 1 for first, last in runs[_RUNS_SHOWN:])
    return ", ".join(texts[:_RUNS_SHOWN]) + (f" and {more:,} more" if more else "")


def rank_text(run: Run, processes: Iterable[int]) -> str:
    """For example "ranks 0, 1" or "processes 4711, 4712"; empty when the run has only one process."""
    wanted = set(processes)
    chosen = [process for index in sorted(wanted) if (process := process_of(run, index)) is not None]
    if len(run.processes) < 2 or not chosen:
        return ""
    ranks = [process.rank for process in chosen]
    if None not in ranks:
        return f"rank{'s' if len(ranks) > 1 else ''} {rank_numbers(rank for rank in ranks if rank is not None)}"
    names = [str(process.pid if process.pid is not None else base_name(process.log)) for process in chosen]
    return f"process{'es' if len(names) > 1 else ''} {listed(names, limit=_RUNS_SHOWN)}"


def config_value(run: Run, process: int, area: str, option: str) -> object | None:
    """The non-default value of an option (`area`: dynamo, functorch, inductor), or None when it had its default or is not known."""
    found = process_of(run, process)
    return None if found is None else found.config.get(area, {}).get(option)


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values once each, in their first order."""
    return tuple(dict.fromkeys(values))


def listed(values: Sequence[str], *, limit: int = 3) -> str:
    """A list that stays short: "a, b, c and 4 more"."""
    if len(values) <= limit:
        return ", ".join(values)
    return f"{', '.join(values[:limit])} and {len(values) - limit} more"


def compile_text(key: CompileKey) -> str:
    """Torch's compile id as torch prints it: `[0/1]`."""
    return f"[{key.text}]"


def merged(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums of several counts, keys in first order."""
    total: dict[str, int] = {}
    for count in counts:
        for name, number in count.items():
            total[name] = total.get(name, 0) + number
    return total


def kept_graphs(run: Run) -> dict[str, tuple[str, ...]]:
    """The Dynamo graphs that each compiled frame runs; those of attempts and frames that were given up do not count."""
    last = {frame.id: frame.attempts - 1 for frame in run.frames if frame.outcome in ("compiled", "broke")}
    result: dict[str, list[str]] = {}
    for graph in run.graphs:
        if graph.kind == "dynamo" and graph.frame in last and graph.attempt >= last[graph.frame]:
            result.setdefault(graph.frame, []).append(graph.id)
    return {frame: tuple(graphs) for frame, graphs in result.items()}
