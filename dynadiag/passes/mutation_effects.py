"""What a mutated tensor input costs or breaks, and the code it is reported under.

CUDA graphs: `check_for_mutation` (torch/_inductor/cudagraph_utils.py, 2.11 and 2.15) skips a graph that writes an input which is
neither static nor memory of an earlier CUDA graph. What the runtime epilogue writes is not written by the graph, so it skips nothing
(measured on an H200, torch 2.11). From 2.15 on a replaced storage always skips (`get_input_storage_mutation_reason`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dynadiag.facts.cuda_graphs import (
    caches_the_decision,
    is_inductor_without,
    is_skip_for_writes,
    recorded_as_cuda_graphs,
    skipped_for_writes,
    torch_version,
)
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.lookups import process_of, traced_by_frame
from dynadiag.facts.user_frames import normal_path, of_last_run, resume_line, source_function
from dynadiag.facts.wording import short_place
from dynadiag.model import codes
from dynadiag.model.run import Frame, Process, Run
from dynadiag.passes.mutation_facts import Effect, Fact, size_text
from dynadiag.passes.mutation_graphs import GraphView, KnownInput
from dynadiag.source.place import line_at
from dynadiag.source.writes import writes_hidden

_OPTIMIZER = re.compile(r"/torch/optim/(?!swa_utils)")
_OWN_BREAK = "torch._dynamo.graph_break()"
_OPTIMIZER_SOURCE = re.compile(r"\.param_groups\[|\.state\[.*\]\[")
_STATISTICS = re.compile(r"\['?(?:running_mean|running_var|num_batches_tracked)'?\]$|\.(?:running_mean|running_var|num_batches_tracked)$")
_TRACE_LINE = re.compile(r'File "([^"\n]+)", line (\d{1,9})')
_ALWAYS_SKIPS_STORAGE = (2, 15)
_Function = tuple[int, str | None, str | None]
_NO_CUDA_GRAPH_BEFORE = "the compiled region that makes this tensor does not itself run as a CUDA graph"
_IF_ASKED = "when this function is compiled with CUDA graphs, as with mode='reduce-overhead', on a GPU"


def with_effects(fact: Fact, view: GraphView, run: Run) -> Fact:
    """The fact with its code and effects; no effect when it is not known who writes the input back."""
    found = [*_written_by(fact, view, run)]
    if view.merged_inputs and fact.given.overlaps:
        found.append(_merged(fact))
    if _made_before_break(fact, run):
        found.append(_from_break(fact))
    code = _code(fact, view, run)
    if fact.where == "epilogue" and not view.aot_ran:
        why = "AOTAutograd left no trace for this back end: how it writes is not recorded"
        unknown = {**fact.unknown, "where": why, "bytes_written_back": why}
        fact = replace(fact, where=None, bytes_written_back=None, unknown=unknown)
    if fact.given.known_as is not None:
        said = f"(compiled autograd passes it as {readable(fact.input)})"
        found = [replace(effect, detail=f"{effect.detail} {said}") for effect in found]
    return replace(fact, code=code, input=fact.given.known_as or fact.input, effects=tuple(found))


def _written_by(fact: Fact, view: GraphView, run: Run) -> Iterator[Effect]:
    if fact.where == "epilogue" and not view.aot_ran:
        yield _copy_back_elsewhere(fact)
    elif fact.where == "epilogue":
        yield _copy_back(fact)
        yield from _conditional_skip(fact, view)
    elif fact.where == "in_graph":
        yield from _in_graph(fact, view, run)


def _copy_back_elsewhere(fact: Fact) -> Effect:
    other = replace(_copy_back(fact), basis="predicted")
    detail = f"AOTAutograd left no trace for this back end; with one that goes through it (aot_eager or inductor), {other.detail}"
    return replace(other, detail=detail)


def _copy_back(fact: Fact) -> Effect:
    size = size_text(fact.bytes_written_back)
    if fact.kind == "metadata":
        return Effect("copy_back", "derived", "after each call the runtime epilogue gives the input its new sizes and strides")
    why = (
        "because it requires grad and the write is not under no_grad"
        if fact.given.requires_grad
        else "because the back end does not keep input mutations"
    )
    return Effect("copy_back", "derived", f"after each call the runtime epilogue copies {size} back into the input, {why}")


def _conditional_skip(fact: Fact, view: GraphView) -> Iterator[Effect]:
    if fact.given.static is not False or fact.kind != "data":
        return
    if view.aot is not None and view.aot.keeps_mutations is False:
        detail = "inductor would keep this write in its graph, and the input has no fixed address: CUDA graphs would be skipped there"
        yield Effect("cudagraph_skip", "predicted", detail)
        return
    here = "in this run the copy comes after the graph and skips no CUDA graph; " if view.aot_ran else ""
    detail = f"{here}called under no_grad the same line is written inside the graph, and the input has no fixed address"
    condition = "when the function is called under torch.no_grad or inference_mode"
    if _is_resume_local(fact):
        condition += f", and {_NO_CUDA_GRAPH_BEFORE}"
    yield Effect("cudagraph_skip", "predicted", detail, condition=condition)


def _in_graph(fact: Fact, view: GraphView, run: Run) -> Iterator[Effect]:
    process = process_of(run, fact.frame.key.process)
    if fact.kind == "storage" and torch_version(process) >= _ALWAYS_SKIPS_STORAGE:
        yield Effect("cudagraph_skip", "predicted", "replacing the storage of an input skips CUDA graphs in this torch, static or not")
        return
    told = _told(fact, run)
    if (
        told is not None
        and fact.given.static is not None
        and (not fact.given.static or all(known_input.static for known_input in _written(view)))
    ):
        yield _seen(fact, told, process)
    elif fact.given.static:
        yield Effect("free", "derived", "the graph writes the input in place, and the input keeps its address")
    elif fact.given.static is False and fact.frame.id in recorded_as_cuda_graphs(run):
        detail = "the graph writes the input in place, and torch recorded it as a CUDA graph"
        yield Effect("free", "observed", detail)
    elif fact.given.static is False and is_inductor_without(view.graph, run):
        yield Effect("free", "derived", "the graph writes the input in place, and is compiled without CUDA graphs")
        yield Effect("cudagraph_skip", "predicted", "CUDA graphs would be skipped: the input has no fixed address", condition=_IF_ASKED)
    elif fact.given.static is False:
        yield _skip(fact)


def _written(view: GraphView) -> Iterator[KnownInput]:
    """The inputs that AOTAutograd says the graph itself writes."""
    if view.aot is not None:
        yield from (input_ for input_ in view.inputs if input_.index < len(view.aot.inputs) and view.aot.inputs[input_.index].mutates_data)


def _seen(fact: Fact, told: str, process: Process | None) -> Effect:
    said = told.splitlines()[0].partition(". Found from")[0]
    detail = f"torch skipped CUDA graphs for a graph that writes here: {said}"
    if fact.given.static:
        detail += ", although the address of each input that it writes is marked as static"
        if caches_the_decision(process):
            detail += "; code from its cache on disk keeps what this torch decided when the address was not marked"
    return Effect("cudagraph_skip", "observed", detail)


def _skip(fact: Fact) -> Effect:
    detail = (
        "the graph writes an input that has no fixed address, so CUDA graphs would be skipped (mode='reduce-overhead', on a GPU), "
        "unless the tensor comes from a region that runs as a CUDA graph"
    )
    if _is_resume_local(fact):
        return Effect("cudagraph_skip", "predicted", detail, condition=f"when {_NO_CUDA_GRAPH_BEFORE}")
    return Effect("cudagraph_skip", "predicted", detail)


def _told(fact: Fact, run: Run) -> str | None:
    """Torch's words that it skipped this graph for its writes: while compiling, or in a first call.

    Those of a log without the graph that was called count where they name the line of one write.
    """
    if (told := skipped_for_writes(run).get(fact.frame.id)) is not None:
        return told
    lines = {
        (normal_path(location.file), location.line) for site in fact.sites for location in (site.where, site.inner) if location is not None
    }
    known = _skips_by_line(run)
    named = [at for line in lines if (at := known.get((fact.frame.key.process, *line))) is not None]
    return run.problems[min(named)].text if named else None


@of_last_run
def _skips_by_line(run: Run) -> Mapping[tuple[int, str, int | None], int]:
    """By process and the line that writes the position of torch's first word that it skipped CUDA graphs."""
    found: dict[tuple[int, str, int | None], int] = {}
    for position, problem in enumerate(run.problems):
        unplaced = problem.frame is None and is_skip_for_writes(problem.kind, problem.text)
        if unplaced and (named := _TRACE_LINE.findall(problem.text)):
            found.setdefault((problem.process, normal_path(named[-1][0]), int(named[-1][1])), position)
    return found


def _merged(fact: Fact) -> Effect:
    detail = (
        f"it overlaps {', '.join(fact.given.overlaps)}: AOTAutograd rebuilds both from one common base (synthetic base), "
        "with views and copies that eager does not need"
    )
    return Effect("extra_copy", "derived", detail)


def _is_resume_local(fact: Fact) -> bool:
    return resume_line(fact.frame.name) is not None and re.fullmatch(r"L\['\w+'\]", fact.input) is not None


def _made_before_break(fact: Fact, run: Run) -> bool:
    """Whether the input is a local variable of a resume function that no earlier part of the same function had as an input."""
    if not _is_resume_local(fact):
        return False
    inputs = _inputs_of_functions(run).get(_function(fact.frame))
    return inputs is not None and fact.input not in inputs


def _function(frame: Frame) -> _Function:
    return frame.key.process, frame.file, source_function(frame.name)


@of_last_run
def _inputs_of_functions(run: Run) -> Mapping[_Function, frozenset[str]]:
    """The inputs that the functions which were entered at their beginning have, in all compilations."""
    found: dict[_Function, set[str]] = {}
    for frame in run.frames:
        if resume_line(frame.name) is None:
            found.setdefault(_function(frame), set()).update(traced_input.source for traced_input in traced_by_frame(run).get(frame.id, ()))
    return {function: frozenset(sources) for function, sources in found.items()}


def _from_break(fact: Fact) -> Effect:
    line = resume_line(fact.frame.name)
    detail = (
        f"the tensor is made before the graph break at line {line} of this function and written after it: only the break makes it an "
        "input; in one graph the write would be free"
    )
    return Effect("graph_break", "derived", detail)


def _code(fact: Fact, view: GraphView, run: Run) -> str:
    if _by_optimizer(fact):
        return codes.OPTIMIZER_STEP
    if _STATISTICS.search(fact.input):
        return codes.BATCHNORM_STATISTICS
    if fact.kind in ("storage", "requires_grad"):
        return codes.STORAGE_REPLACED
    if fact.kind == "metadata":
        return codes.SIZES_CHANGED
    if view.merged_inputs and fact.given.overlaps:
        return codes.OVERLAPPING_INPUTS
    if _made_before_break(fact, run):
        return codes.WRITTEN_BEHIND_BREAK
    if fact.where == "epilogue":
        kept = view.aot is None or view.aot.keeps_mutations is not False
        hidden = any(writes_hidden(line_at(site.where, run)) for site in fact.sites)
        return (codes.WRITTEN_THROUGH_DATA if hidden else codes.COPIED_BACK) if kept else codes.BACKEND_KEEPS_NO_WRITES
    return codes.STATIC_INPUT if fact.given.static else codes.INPUT_WITHOUT_ADDRESS


def _by_optimizer(fact: Fact) -> bool:
    if _OPTIMIZER_SOURCE.search(fact.input) is not None:
        return True
    inner = [site.inner.file for site in fact.sites if site.inner is not None]
    return bool(inner) and all(_OPTIMIZER.search(normal_path(file)) for file in inner)


def optimizer_breaks(run: Run) -> Mapping[int, tuple[Effect, ...]]:
    """By process: the graph break inside `torch.optim` on the way to an optimizer's writes, which torch makes itself, once a step."""
    processes = {frame.id: frame.key.process for frame in run.frames}
    found: dict[int, tuple[Effect, ...]] = {}
    for event in run.breaks:
        place, process = event.torch_frame, processes.get(event.frame)
        own = _OWN_BREAK in event.gb_type and place is not None and _OPTIMIZER.search(normal_path(place.file)) is not None
        if process is not None and process not in found and place is not None and own:
            detail = f"torch itself breaks the graph around an optimizer's step (at {short_place(place)}): one break per step, harmless"
            found[process] = (Effect("graph_break", "observed", detail),)
    return found
