"""One recorded graph made ready to be replayed: rebuilt, with values that suit it, as it was compiled, with its scenarios."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dynadiag import trace
from dynadiag.errors import NotRebuildableError
from dynadiag.fx.details import operator_schemas
from dynadiag.fx.mutation_probe import probe
from dynadiag.fx.mutation_records import InputMutation
from dynadiag.fx.rebuild import RebuildOptions, Rebuilt
from dynadiag.fx.running import rebuild_and_try
from dynadiag.model.graph import Graph
from dynadiag.model.run import Run
from dynadiag.parity.replaying import ReadyGraph, Setting
from dynadiag.parity.scenarios import Plan, make_plan
from dynadiag.torch_compat.dynamo.recorded_options import left_out, usable_options
from dynadiag.torch_compat.dynamo.replaying import is_backend

LARGEST_BYTES = 256 * 1024 * 1024
_NAMESPACE = re.compile(r"\btorch\.ops\.([A-Za-z_]\w*)\.")
_MAKES_MEMORY = ("empty", "resize")
_PLACES = ("scatter", "index_put", "index_copy", "put_", "setitem", "masked_scatter")
_OVERLOOKED = ("dynamo.suppress_errors", "dynamo.recompile_limit", "dynamo.cache_size_limit", "dynamo.verbose")


class NotComparableError(NotRebuildableError):
    """A graph that cannot be replayed; the message says why."""

    slug = "graph-not-comparable"


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A graph to replay; `notes` say what is left out of the comparison and why."""

    subject: ReadyGraph
    setting: Setting
    plan: Plan
    mutations: tuple[InputMutation, ...]
    notes: tuple[str, ...]
    custom_operators: tuple[str, ...] = ()


def make_ready(graph: Graph, run: Run, *, loaded: bool = False) -> Ready:
    """The graph, to be replayed on the CPU; `loaded` says that the user's own file has registered its custom operators here.

    Raises NotRebuildableError when it cannot be.
    """
    if graph.text is None:
        raise NotComparableError(graph.why_not or "the log does not contain its text")
    details = trace.graph_details(graph.details) if graph.details is not None else {}
    backend = backend_of(graph, run, details)
    text = trace.read_payload(graph.text)
    trusted = frozenset(_NAMESPACE.findall(text)) if loaded else frozenset()
    options = RebuildOptions(device="cpu", extra_namespaces=trusted)
    rebuilt, trial = rebuild_and_try(text, details=details or None, options=options)
    if not trial.runnable or trial.filling is None:
        raise NotComparableError(trial.why_not or "it does not run")
    if rebuilt.input_bytes > LARGEST_BYTES:
        raise NotComparableError(f"its inputs need {rebuilt.input_bytes >> 20} MiB, more than {LARGEST_BYTES >> 20}")
    notes = list(_notes(rebuilt, details))
    found = probe(rebuilt).mutations
    writers = {
        input_mutation.name: frozenset(site.node for site in input_mutation.sites if site.node is not None) for input_mutation in found
    }
    subject = ReadyGraph(rebuilt=rebuilt, filling=trial.filling, writers=writers)
    setting = _setting(graph, run, details, backend, rebuilt, notes)
    frame = run.frame(graph.frame)
    plan = make_plan(
        rebuilt.inputs, frozenset(item.name for item in found), frame=frame.name if frame else None, caches=setting.backend == "inductor"
    )
    custom = tuple(operator_schemas(details)) if loaded else ()
    return Ready(subject=subject, setting=setting, plan=plan, mutations=found, notes=tuple(notes), custom_operators=custom)


def backend_of(graph: Graph, run: Run, details: Mapping[str, Any]) -> str:
    """The backend that the graph was compiled with. Raises NotComparableError when it lives in the script or nothing names it."""
    named = details.get("backend")
    if isinstance(named, Mapping) and isinstance(named.get("backend"), str):
        if named.get("registered") is not True or not is_backend(named["backend"]):
            raise NotComparableError(f"its back end {named['backend'][:80]!r} is a function of the script, which is not available here")
        return str(named["backend"])
    kinds = {other.kind for other in run.graphs if other.frame == graph.frame and other.attempt == graph.attempt}
    if "post_grad" in kinds:
        return "inductor"
    if any(kind.startswith("aot") for kind in kinds):
        return "aot_eager"
    raise NotComparableError("the log does not say which back end compiled it")


def _notes(rebuilt: Rebuilt, details: Mapping[str, Any]) -> list[str]:
    notes = []
    inputs = details.get("inputs")
    devices = {input_.get("device") for input_ in inputs if isinstance(input_, Mapping)} if isinstance(inputs, list) else set()
    if any(isinstance(device, str) and device.split(":")[0] not in ("cpu", "meta") for device in devices):
        notes.append("it ran on an accelerator and is replayed on the CPU: faults of the accelerator's kernels do not show")
    if rebuilt.unknown_symbols:
        notes.append(f"{rebuilt.unknown_symbols} symbolic sizes were not recorded; they are made up")
    return notes


def _setting(graph: Graph, run: Run, details: Mapping[str, Any], backend: str, rebuilt: Rebuilt, notes: list[str]) -> Setting:
    named = details.get("backend")
    known: Mapping[str, Any] = named if isinstance(named, Mapping) else {}
    autocast = details.get("autocast")
    casting = isinstance(autocast, Mapping) and any(autocast.values())
    if casting:
        notes.append("it was compiled under autocast, and is replayed under autocast to bfloat16 on the CPU")
    options = known.get("options")
    if options or known.get("mode"):
        notes.append("the options of its back end are not replayed")
    why_no_values = why_values_differ(rebuilt)
    if why_no_values is not None:
        notes.append(f"values are not compared: {why_no_values}")
    symbols = any(spec.kind == "symbol" for spec in rebuilt.inputs)
    return Setting(
        backend=backend,
        dynamic=True if symbols else known.get("dynamic") if isinstance(known.get("dynamic"), bool) else None,
        configs=(*_configs(graph, run, notes), *to_trace_again(rebuilt)),
        gradients=rebuilt.grad is not False and details.get("inference") is not True,
        values=why_no_values is None,
        autocast=casting,
    )


def _configs(graph: Graph, run: Run, notes: list[str]) -> list[tuple[str, Any]]:
    frame = run.frame(graph.frame)
    process = next((item for item in run.processes if frame is not None and item.index == frame.key.process), None)
    recorded = process.config if process is not None else {}
    named = [(f"{area}.{name}", value) for area in ("dynamo", "functorch", "inductor") for name, value in recorded.get(area, {}).items()]
    kept, left = usable_options((name, value) for name, value in named if name not in _OVERLOOKED)
    if left:
        notes.append(left_out(left))
    return [(name, value) for name, value in kept if isinstance(value, bool | int | float)]


def to_trace_again(rebuilt: Rebuilt) -> Iterator[tuple[str, Any]]:
    """Options without which Dynamo breaks at what it wrote itself: `item()` of a float that became symbolic (`wrap_symfloat`)."""
    if any(node.op == "call_method" and node.target == "item" for node in rebuilt.graph_module.graph.nodes):
        yield "dynamo.capture_scalar_outputs", True


def why_values_differ(rebuilt: Rebuilt) -> str | None:
    """Why eager itself may give other values each time: memory that nobody wrote, or writes to one place in no fixed order."""
    names = [str(node.target) for part in rebuilt.graph_module.modules() for node in getattr(getattr(part, "graph", None), "nodes", ())]
    if any(word in name for name in names for word in _MAKES_MEMORY):
        return "it uses uninitialised memory"
    integers = [
        spec
        for spec in rebuilt.inputs
        if spec.kind == "tensor" and spec.dtype in ("int64", "int32") and any(n > 1 for n in spec.shape or ())
    ]
    if integers and any(word in name for name in names for word in _PLACES):
        return "it writes at indices that were not recorded; made-up ones are all equal"
    return None


def torch_version() -> str:
    """The version of the torch that replays."""
    return str(torch.__version__)
