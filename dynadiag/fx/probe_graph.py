"""One recorded graph probed within its time: whether it runs, what it mutates, and what AOTAutograd says when it would not take it."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import torch

from dynadiag import trace
from dynadiag.errors import DynadiagError, NotRebuildableError, shorten
from dynadiag.fx.details import operator_schemas
from dynadiag.fx.inputs import FILLINGS, InputSpec
from dynadiag.fx.missing_operators import OperatorFacts
from dynadiag.fx.mutation_probe import lifted_specs, probe
from dynadiag.fx.mutation_records import ProbeResult, Refusal
from dynadiag.fx.rebuild import RebuildOptions, Rebuilt, rebuild
from dynadiag.fx.running import missing_device, try_run
from dynadiag.model.graph import Graph
from dynadiag.model.mutations import AotMetadata
from dynadiag.model.run import Run
from dynadiag.torch_compat.aot.lowering import aot_refusal
from dynadiag.torch_compat.dispatch.state import fake_process_groups, kept_global_state

LONGEST_S = 30.0
_SMALLEST = """class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4][1]cpu"):
        add_ = x.add_(1)
        return (add_,)
"""
_TRITON = re.compile(r"triton_kernel_wrapper_functional(?:_proxy)?\(kernel_idx = (\d{1,6}),.*?tensors_to_clone = \[([^\]]*)\]")
_QUOTED = re.compile(r"'([^']*)'")


_LARGEST_BYTES = 64 * 1024 * 1024


class _OutOfTimeError(BaseException):
    """One graph took longer than its share; no `except Exception` on its way may keep it."""


def warm_up() -> None:
    """Let torch import and build what every graph needs: that is nobody's time, and stopped half-way it would be broken."""
    probe(rebuild(_SMALLEST))


def probe_graph(graph: Graph, run: Run, *, seconds: float) -> tuple[dict[str, Any], bool]:
    """The content of the graph's record, and whether it was stopped for its time: then this process may be half-way in an import.

    Raises nothing: what goes wrong is the record's `error`.
    """
    if seconds <= 0:
        return _unknown("the probe's time limit was reached before this graph"), False
    limit_s = min(seconds, LONGEST_S)
    over: list[float] = []
    with suppress(_OutOfTimeError), _losses_unsaid(), _time_limit(limit_s, over):
        content = _within_borders(graph, run)
    # Asked even where an answer came: the exception may have been lost in a destructor, and what went on after that may be broken.
    return (_unknown(f"following the graph took longer than {limit_s:.2g} s"), True) if over else (content, False)


def _within_borders(graph: Graph, run: Run) -> dict[str, Any]:
    try:
        return _probe(graph, run)
    except DynadiagError as error:
        return {"runnable": False, "why_not": error.message, "error": error.message}
    except Exception as error:  # noqa: BLE001 - the border around one graph: the next one still gets its record
        return _unknown(f"the probe failed: {type(error).__name__}: {shorten(str(error), 200)}")


def _unknown(reason: str) -> dict[str, Any]:
    return {"why_not": reason, "error": reason}


@contextmanager
def _time_limit(seconds: float, over: list[float]) -> Iterator[None]:
    def stop(_signal: int, _frame: object) -> None:
        over.append(seconds)
        raise _OutOfTimeError

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    # Again every second: an exception that falls into a destructor is lost there.
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01), 1.0)
    try:
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # the time may be over in the line above: then the clock runs on
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@contextmanager
def _losses_unsaid() -> Iterator[None]:
    """Python prints what is lost in a destructor or a gc callback: of our exception nobody needs to know, another one follows."""
    before = sys.unraisablehook

    def say(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, _OutOfTimeError):
            before(lost)

    sys.unraisablehook = say
    try:
        yield
    finally:
        sys.unraisablehook = before


def _probe(graph: Graph, run: Run) -> dict[str, Any]:
    assert graph.text is not None
    text = trace.read_payload(graph.text)
    details = trace.graph_details(graph.details) if graph.details is not None else None
    aot = _aot_metadata(graph, run)
    rebuilt, why_not = _rebuilt(text, details, graph, run)
    observed = _observed(graph, run)
    result = probe(rebuilt, keep_input_mutations=_keeps_mutations(aot, observed))
    if why_not is None and result.error is not None:
        why_not = try_run(rebuilt).why_not
    refusal = observed or (_asked(rebuilt, result) if aot is None and why_not is None else None)
    said = None if refusal is None else asdict(refusal)
    return {"runnable": why_not is None, "why_not": why_not, **result.as_record(), "refusal": said}


def _rebuilt(text: str, details: Mapping[str, Any] | None, graph: Graph, run: Run) -> tuple[Rebuilt, str | None]:
    """The graph, with stand-ins for what is not here; and why it is not runnable as it is."""
    try:
        return rebuild(text, details=details, options=RebuildOptions(device="cpu", lazy=True)), None
    except NotRebuildableError as error:
        facts = OperatorFacts(schemas=operator_schemas(details), triton_writes=_triton_writes(text, graph, run))
        return rebuild(text, details=details, options=RebuildOptions(device="cpu", missing_operators=facts, lazy=True)), error.message


def _triton_writes(text: str, graph: Graph, run: Run) -> dict[int, tuple[str, ...]]:
    """Arguments that each Triton kernel writes, as AOTAutograd printed them in the graphs that it made of this one."""
    if "triton_kernel_wrapper_mutation" not in text:
        return {}
    found: dict[int, tuple[str, ...]] = {}
    for other in run.graphs:
        if other.frame == graph.frame and other.attempt == graph.attempt and other.kind.startswith("aot") and other.text is not None:
            for match in _TRITON.finditer(trace.read_payload(other.text)):
                found.setdefault(int(match[1]), tuple(_QUOTED.findall(match[2])))
    return found


def _aot_metadata(graph: Graph, run: Run) -> AotMetadata | None:
    for record in run.mutation_records:
        if record.kind == "aot_metadata" and record.frame == graph.frame and record.attempt == graph.attempt:
            return trace.aot_metadata(record.payload)
    return None


def _keeps_mutations(aot: AotMetadata | None, refusal: Refusal | None) -> bool:
    """What AOTAutograd printed of the back end's option; without a word of it, True: inductor and aot_eager have it."""
    if aot is not None:
        return aot.keeps_mutations is not False
    return refusal is None or "keep_input_mutations=False" not in refusal.text


def _observed(graph: Graph, run: Run) -> Refusal | None:
    texts = [problem.text for problem in run.problems if problem.kind == "aot_rejected" and problem.frame == graph.frame]
    return Refusal(text=texts[0], basis="observed") if texts else None


def _asked(rebuilt: Rebuilt, result: ProbeResult) -> Refusal | None:
    text = refusal_of(rebuilt) if may_refuse(rebuilt, result) else None
    return None if text is None else Refusal(text=text, basis="asked")


def may_refuse(rebuilt: Rebuilt, result: ProbeResult) -> bool:
    """Whether a mutation is of a kind that AOTAutograd refuses for some inputs: replaced memory, shared memory, overlap within a tensor."""
    specs = lifted_specs(rebuilt)
    return any(mutation.where == "rejected" or mutation.aliases or _overlaps_itself(specs[mutation.index]) for mutation in result.mutations)


def refusal_of(rebuilt: Rebuilt) -> str | None:
    """The error that AOTAutograd of this torch raises for the graph and inputs like the recorded ones; None when it takes them."""
    if rebuilt.input_bytes > _LARGEST_BYTES or missing_device(rebuilt) is not None:
        return None
    quiet = contextlib.redirect_stderr(io.StringIO())
    grad = torch.set_grad_enabled(rebuilt.grad is not False)
    with fake_process_groups(rebuilt.groups), kept_global_state(), quiet, warnings.catch_warnings(), grad:
        warnings.simplefilter("ignore")
        return aot_refusal(rebuilt.graph_module, rebuilt.example_inputs(FILLINGS[0]))


def _overlaps_itself(spec: InputSpec) -> bool:
    return any(step == 0 and size > 1 for step, size in zip(spec.stride or (), spec.shape or (), strict=False))
