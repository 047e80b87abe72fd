"""What the prices of graph breaks need from torch: the backend behind options, why a graph ended, guards timed, what is copied back."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from dynadiag.torch_compat.dynamo.guard_timing import evaluation_us

_GUARD_EVALUATIONS = 200


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Why Dynamo ended a graph: its reason and the user's line, when it was a graph break; `is_break` is False at the end of a frame."""

    is_break: bool
    reason: str
    file: str | None
    line: int | None


@dataclass(kw_only=True)
class Piece:
    """One graph that Dynamo handed to the backend: the graph, why it ended, and the inputs that are copied back after a call."""

    graph: Any
    ending: Ending
    copied_back: tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True)
class Entered:
    """One call of a piece: what was called, its inputs and outputs, and the host's clock around it."""

    piece: Piece
    run: Callable[..., Any]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    began: float
    ended: float


@dataclass(kw_only=True)
class Watch:
    """What a watched backend notes: calls with their values while `tape` is a list, and only times while `times` is one."""

    tape: list[Entered] | None = None
    times: list[tuple[float, float]] | None = None


def real_backend(options: Mapping[str, Any]) -> Callable[..., Any]:
    """The backend that `torch.compile(**options)` would use (`torch/__init__.py`, 2.11 to 2.15)."""
    import torch

    backend, mode, dynamic = options.get("backend", "inductor"), options.get("mode"), options.get("dynamic")
    wrappers: Any = torch
    if backend == "inductor":
        mode = mode or (None if options.get("options") else "default")
        return wrappers._TorchCompileInductorWrapper(mode, options.get("options"), dynamic)  # type: ignore[no-any-return]
    return wrappers._TorchCompileWrapper(backend, mode, options.get("options"), dynamic)  # type: ignore[no-any-return]


def watched_backend(options: Mapping[str, Any], watch: Watch) -> Callable[..., Any]:
    """A backend that compiles as the options say, and notes the calls of what it compiled in `watch`."""
    import torch

    real = real_backend(options)

    def compile_(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        kept = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        names = [node for node in graph.graph.nodes if node.op == "placeholder"]
        ending = _ending(graph)
        inner = real(graph, inputs)
        piece = Piece(graph=kept, ending=ending, copied_back=_copied_back(names))

        def run_timed(*args: Any) -> Any:
            began = perf_counter()
            outputs = inner(*args)
            ended = perf_counter()
            if watch.times is not None:
                watch.times.append((began, ended))
            if watch.tape is not None:
                watch.tape.append(Entered(piece=piece, run=run_timed, inputs=args, outputs=tuple(outputs), began=began, ended=ended))
            return outputs

        return run_timed

    return compile_


def is_module_state(value: Any) -> bool:
    """Whether a graph's input is a parameter or buffer of a module, as Dynamo saw it.

    Dynamo marks those of modules that it inlines (`mark_static_input` in `torch/_dynamo/variables/builder.py`, 2.11 to 2.15).
    """
    import torch

    return isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None


def static_shapes() -> Any:
    """While entered, what Dynamo compiles has the shapes it is called with: what `dynamic=False` sets, which sets it in each call anew.

    From `make_set_enable_dynamic` (`torch/_dynamo/eval_frame.py`, 2.11 to 2.15).
    """
    import torch._dynamo.config

    config: Any = torch._dynamo.config
    return config.patch(automatic_dynamic_shapes=False, assume_static_by_default=True)


def leave_frame(function: Callable[..., Any]) -> None:
    """From now on Dynamo runs this function's frames as they are, and still compiles what they call.

    What `torch._dynamo.skip` does (`torch/_dynamo/decorators.py`, 2.11 to 2.15), without the mark that `torch.compile` would heed.
    """
    from torch._dynamo.eval_frame import skip_code

    skip_code(function.__code__)


def _ending(graph: Any) -> Ending:
    """From `GraphCompileReason` (`torch/_dynamo/output_graph.py`, 2.11 to 2.15)."""
    why = getattr(graph, "compile_subgraph_reason", None)
    if why is None or not getattr(why, "graph_break", False):
        return Ending(is_break=False, reason="the compiled frame ended", file=None, line=None)
    stack = list(getattr(why, "user_stack", None) or [])
    last = stack[-1] if stack else None
    reason = str(why.reason).strip().splitlines()
    return Ending(
        is_break=True,
        reason=reason[0] if reason else "",
        file=None if last is None else last.filename,
        line=None if last is None else last.lineno,
    )


def _copied_back(placeholders: Sequence[Any]) -> tuple[tuple[int, str], ...]:
    """Position and source of the inputs that AOTAutograd's epilogue writes (`MutationType.MUTATED_OUT_GRAPH`, 2.11 to 2.15)."""
    guards = sys.modules["torch._guards"]
    context = guards.TracingContext.try_get()
    infos = getattr(getattr(context, "fw_metadata", None), "input_info", None) or ()
    found = []
    for at, (info, node) in enumerate(zip(infos, placeholders, strict=False)):
        if info.mutates_data and info.mutation_type.name == "MUTATED_OUT_GRAPH":
            source = node.meta.get("grapharg")
            name = getattr(getattr(source, "source", None), "name", None)
            found.append((at, str(name() if callable(name) else name or node.name)))
    return tuple(found)


@dataclass(kw_only=True)
class GuardTimes:
    """Microseconds that one evaluation of each guard set takes, by compile id."""

    found: dict[str, float] = field(default_factory=dict)


@contextmanager
def timed_guards(times: GuardTimes) -> Iterator[None]:
    """While entered, each guard set that is made is evaluated 200 times on the real locals, as a warm call does.

    That is where torch itself evaluates it once, with flushed caches (`torch/_dynamo/guards.py`, 2.11 to 2.15).
    """
    import torch._dynamo.guards

    module: Any = torch._dynamo.guards
    original = getattr(module, "profile_guard_manager", None)
    if original is None:
        yield
        return

    def profile(root: Any, local_scope: Any, evaluations: int) -> Any:
        context = sys.modules["torch._guards"].CompileContext.try_get()
        latency = original(root, local_scope, evaluations)
        times.found[str(getattr(context, "compile_id", None))] = evaluation_us(root, local_scope, _GUARD_EVALUATIONS)
        return latency

    module.profile_guard_manager = profile
    try:
        yield
    finally:
        module.profile_guard_manager = original


def compiled_names() -> dict[str, str]:
    """The function of each compile id of this process, from Dynamo's metrics: "file:line in name"."""
    utils = sys.modules.get("torch._dynamo.utils")
    metrics = [] if utils is None else list(utils.get_compilation_metrics())
    return {
        str(item.compile_id): f"{item.co_name} ({item.co_filename}:{item.co_firstlineno})"
        for item in metrics
        if item.compile_id and item.co_name
    }
