"""What a run tells of CUDA graphs: which compilations ask for them, which ran as one, and which torch skipped for a write."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dynadiag import trace
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.lookups import config_value
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.graph import Graph
from dynadiag.model.run import Process, Run

_OPTION = "triton.cudagraphs"
_CACHED_DECISION_BEFORE = (2, 15)


def backend_of(graph: Graph) -> Mapping[str, object]:
    """The back end that a graph was handed to, with its `options`, as the recorder names it; {} when it is not recorded."""
    try:
        found = trace.graph_details(graph.details).get("backend") if graph.details is not None else None
    except UnreadableInputError:
        return {}
    return found if isinstance(found, dict) else {}


def asks_for_cuda_graphs(graph: Graph, run: Run) -> bool | None:
    """Whether the compiled function of a graph asks for CUDA graphs, by its mode, its options or for the whole process; None: not recorded.

    What another function of the program asks for does not count: `torch.compile` puts the options of a mode in force for one compilation.
    """
    found = backend_of(graph)
    name, options, effective = found.get("backend"), found.get("options"), found.get("cuda_graphs")
    if not isinstance(name, str):
        return None
    if name != "inductor":
        return name == "cudagraphs"
    if isinstance(effective, bool):
        return effective
    asked = options.get(_OPTION) if isinstance(options, dict) else None
    frame = run.frame(graph.frame)
    return bool(asked) if asked is not None else frame is not None and config_value(run, frame.key.process, "inductor", _OPTION) is True


def is_inductor_without(graph: Graph, run: Run) -> bool:
    """Whether Inductor compiles the graph and was not asked for CUDA graphs: no skip of one can cost anything."""
    return backend_of(graph).get("backend") == "inductor" and asks_for_cuda_graphs(graph, run) is False


def is_skip_for_writes(kind: str, text: str) -> bool:
    """Whether a problem is torch's word that a graph got no CUDA graph because it writes its inputs."""
    return kind == "cudagraph_skip" and "mutated inputs" in text


@of_last_run
def skipped_for_writes(run: Run) -> Mapping[str, str]:
    """By frame, torch's first word that it skipped CUDA graphs for what the frame's graph writes."""
    found: dict[str, str] = {}
    for frame in run.frames:
        reason = None if frame.metrics is None else frame.metrics.cudagraph_skip_reason
        if reason is not None and is_skip_for_writes("cudagraph_skip", reason):
            found[frame.id] = reason
    for problem in run.problems:
        if problem.frame is not None and is_skip_for_writes(problem.kind, problem.text):
            found.setdefault(problem.frame, problem.text)
    return found


@of_last_run
def recorded_as_cuda_graphs(run: Run) -> frozenset[str]:
    """The frames of which a graph was recorded as a CUDA graph."""
    return frozenset(
        problem.frame
        for problem in run.problems
        if problem.kind in ("cudagraph_recorded", "cudagraph_rerecord") and problem.frame is not None
    )


def torch_version(process: Process | None) -> tuple[int, int]:
    """Major and minor of the torch that ran; (0, 0) when not known."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})", (process.torch if process is not None else None) or "")
    return (int(match[1]), int(match[2])) if match else (0, 0)


def caches_the_decision(process: Process | None) -> bool:
    """Whether code from torch's cache on disk keeps what was decided of CUDA graphs when an input was not yet marked as static.

    Its key has no such marks in 2.11 (`_reduce_aot_config`, torch/_functorch/_aot_autograd/autograd_cache.py); in 2.15 it has.
    """
    return (0, 0) < torch_version(process) < _CACHED_DECISION_BEFORE
