"""Frames in which Dynamo found nothing to compile: which of them somebody wanted compiled, and how to say so.

Dynamo also tries the helpers of a compiled function, and the functions that go on after a graph break (`torch/_dynamo/convert_frame.py`,
`SkipFrame` of "No ops traced" in `symbolic_convert.py`, 2.15). Those hold no tensor work, so that nothing is lost by leaving them.
"""

from __future__ import annotations

import re
from collections.abc import Container

from dynadiag.facts.lookups import targets_by_process
from dynadiag.facts.user_frames import is_own_file, source_function
from dynadiag.model.run import Frame, Problem, Run

_FUNCTION = re.compile(r"<(?:bound method|function|built-in function|class|method) '?(?P<name>(?:[\w.]|<\w+>)+)'?(?: (?:at 0x|of )|>)")
_METHODS = ("forward", "__call__")
_ENTRIES = ("", *(f".{method}" for method in _METHODS))
_GENERATOR = "Attempt to trace generator"
_TRACED = "Dynamo decided to skip the frame while tracing: "


def is_empty(frame: Frame, graphs: Container[str], broken: Container[str]) -> bool:
    """True if Dynamo finished with a frame and kept neither a graph nor guards nor recorded a break.

    "No ops traced" ends so, without a reason in the trace (`has_guarded_code` is true all the same, torch 2.11 and 2.15; it is not known
    where torch 2.6 writes metrics without any value, of a frame that reached the limit of recompiles).
    """
    metrics = frame.metrics
    return (
        frame.outcome == "compiled"
        and metrics is not None
        and metrics.has_guarded_code is not None
        and metrics.guard_count is None
        and frame.guards is None
        and frame.id not in graphs
        and frame.id not in broken
    )


def empty_frames(run: Run) -> tuple[Frame, ...]:
    """The frames without anything to compile that somebody wanted compiled, in the order of the log."""
    graphs, broken = {graph.frame for graph in run.graphs}, {event.frame for event in run.breaks}
    left = {frame.id for frame in run.frames if frame.outcome in ("broke", "skipped") or is_empty(frame, graphs, broken)}
    first: dict[int, str] = {}  # only after this one, whose code ran as plain Python, does Dynamo meet functions that nobody gave it
    for frame in run.frames:
        if frame.id in left:
            first.setdefault(frame.key.process, frame.id)
    targets = {(call.process, call.target.rpartition(".")[2]) for call in run.compile_calls}
    methods = {(process, method) for process, _ in targets for method in _METHODS}
    return tuple(
        frame
        for frame in run.frames
        if is_empty(frame, graphs, broken)
        and _has_own_name(frame, run)
        and (
            (frame.key.process, frame.name) in targets
            or (first.get(frame.key.process) == frame.id and (frame.key.process, frame.name) in methods)
        )
    )


def _has_own_name(frame: Frame, run: Run) -> bool:
    """True for a function of the user's own that is no rest of one."""
    return frame.name is not None and frame.file is not None and is_own_file(frame.file, run) and source_function(frame.name) == frame.name


def was_compiled(problem: Problem, run: Run) -> bool:
    """True if the frame of a `no_graph` problem is the very function or module that `torch.compile` was given in that process."""
    name = problem.subject
    if source_function(name.rpartition(".")[2]) != name.rpartition(".")[2]:
        return False
    targets = targets_by_process(run).get(problem.process, frozenset())
    return any(name.endswith(entry) and name.removesuffix(entry) in targets for entry in _ENTRIES)


def nothing_in(name: str) -> str:
    """What is said of a frame that holds nothing to compile."""
    return f"Dynamo found no tensor operation to compile in `{name}`, which runs as plain Python"


def empty_reason(problem: Problem) -> str:
    """Why the frame was left, in one sentence; torch's own words where they say something else than that there was nothing in it."""
    name, said = problem.subject, problem.message
    if "no tensor-related objects" in said:
        # `has_tensor_in_frame` in `_dynamo/convert_frame.py`, 2.11 to 2.15: it looks at values and names, not at what the code does.
        return f"Dynamo did not trace `{name}`, which runs as plain Python: it saw no tensor or module in its values, and no name of torch"
    if "No ops traced" in said:
        return nothing_in(name)
    if said.startswith(_GENERATOR):  # GB0003 in 2.11 and 2.15
        return f"`{name}` is a generator function, which Dynamo does not compile: it runs as plain Python"
    first = next((line.strip() for line in said.removeprefix(_TRACED).splitlines() if line.strip()), "torch recorded no reason")
    return f"`{name}` was left in eager mode: {first}"


def empty_advice(problem: Problem) -> str | None:
    """What to do about a frame that was left, in one sentence; None where nothing is known."""
    name, said = problem.subject, problem.message
    if said.startswith(_GENERATOR):
        return (
            f"Compile an ordinary function instead: one that computes what `{name}` yields, or one that runs through `{name}` from its "
            "beginning to its end."
        )
    return None


def function_in(text: str | None) -> str | None:
    """The name in a function's repr (`<function Net.helper at 0x7f...>`), without its address, which differs from run to run."""
    match = _FUNCTION.search(text or "")
    return match["name"] if match else None
