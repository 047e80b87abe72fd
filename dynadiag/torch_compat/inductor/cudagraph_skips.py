"""Why CUDA graphs were not used, which parts of a graph run outside of one, and why one was recorded again, in torch's words.

With CUDA graph trees a write to an input is looked at in the first call, not while compiling, so that torch's compilation metrics do not
have the reason (`check_for_mutation` in torch/_inductor/cudagraph_trees.py, 2.11 to 2.15).
"""

from __future__ import annotations

import inspect
import logging
import sys
import threading
import weakref
from types import FrameType, ModuleType
from typing import Any

from dynadiag.torch_compat.trace import stacks, structured
from dynadiag.torch_compat.trace.hooks import Hooks

MODULE = "torch._inductor.cudagraph_utils"
PARTITIONS = "torch._inductor.scheduler"
TREES = "torch._inductor.cudagraph_trees"
_TELLS = "log_cudagraph_skip_and_bump_counter"
_MOST_OPERATORS = 6
MOST_RECORDINGS = 200
_LONGEST_STACK = 8000
_LONGEST_TEXT = 3000
_FRAMES_UP = 8
_Sizes = tuple[int, ...]


def watch_skips(utils: ModuleType, hooks: Hooks) -> None:
    """Record each reason as it is told, once a graph, with the line of the program that made the call."""

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        reason = str(args[0] if args else kwargs.get("msg"))
        problem = {"kind": "cudagraph_skip", "text": reason, "stack": stacks.calling_stack()}
        hooks.sink.artifact("dynadiag_problem", problem, compile_ids=_called_graph())

    hooks.install("cudagraph_skip", lambda: hooks.watch(utils, _TELLS, before=before, file=utils.__file__))


def _called_graph() -> dict[str, Any] | None:
    """The keys of the graph whose call told a skip: none of its frames is being compiled then, but its manager knows which it is.

    None where no manager told it: while compiling.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES_UP):
        if frame is None:
            return None
        teller = frame.f_locals.get("self") if frame.f_code.co_name in ("_run", "_update_non_cudagraph_managed_mutation") else None
        if type(teller).__name__ == "CUDAGraphTreeManager":
            return structured.compile_ids(getattr(teller, "compile_id", None))
        frame = frame.f_back
    return None


def watch_partitions(scheduler: ModuleType, hooks: Hooks) -> None:
    """Record each part of a graph that Inductor keeps out of the CUDA graphs, with its operators and their lines.

    `Scheduler.graph_partition` (torch/_inductor/scheduler.py, 2.11 to 2.15) tells them only to its debug log. It is not called for a graph
    that comes from the cache on disk.
    """

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        graph = sys.modules["torch._inductor.virtualized"].V.graph
        if not sys.modules["torch._inductor.config"].triton.cudagraphs or not set(graph.device_types) - {"cpu", "meta"}:
            return
        partitions, signatures = result
        kept = sum(1 for item in signatures if not item.skip_cudagraph)
        for number, (nodes, signature) in enumerate(zip(partitions, signatures)):
            if signature.skip_cudagraph:
                told = _left_out(args[0], nodes)
                text = (
                    f"partition {number + 1} of {len(partitions)} is no CUDA graph ({kept} are): {'; '.join(list(told)[:_MOST_OPERATORS])}"
                )
                stack = next((stack for stack in told.values() if stack), "")
                problem = {"kind": "cudagraph_partition", "text": text, "stack": [], "printed_stack": stack[-_LONGEST_STACK:]}
                hooks.sink.artifact("dynadiag_problem", problem)

    def put_in() -> None:
        hooks.watch(scheduler.Scheduler, "graph_partition", after=after, file=scheduler.__file__)

    # Torch before 2.7 has no partitions, nor this option (the inductor's config is imported before its scheduler).
    if hasattr(sys.modules["torch._inductor.config"], "graph_partition"):
        hooks.install("cudagraph_partition", put_in)


def _left_out(scheduler: Any, nodes: Any) -> dict[str, str]:
    """`reason: operator` of each node of a part, and the printed stack of the line that it comes from."""
    found: dict[str, str] = {}
    for node in nodes:
        reason = scheduler.should_partition(node)
        for child in node.get_nodes():
            origins = () if child.node is None else (child.node.get_origin_node(), *child.node.get_origins())
            named = [origin for origin in origins if origin is not None]
            # A copy that Inductor itself puts in has no line: that of its first reader is where the tensor is used.
            near = [*named, *(user for origin in named for user in origin.users)]
            traced = next((origin for origin in near if origin.meta.get("stack_trace")), None)
            operator = f"{named[0].target}" if named else type(child.node).__name__
            compiled = " (compiled)" if type(child.node).__name__ == "ComputedBuffer" else ""
            text = f"{reason}: {operator}{compiled}"
            found[text] = found.get(text) or ("" if traced is None else str(traced.meta.get("stack_trace") or ""))
    return found


class _Recorded:
    """What one manager of CUDA graph trees has met and recorded, by graph: the code that Inductor made of it, which it keeps."""

    def __init__(self) -> None:
        self.met: dict[int, list[_Sizes]] = {}
        self.recorded: dict[int, list[_Sizes]] = {}
        self.of_function: dict[int, int] = {}


def watch_recordings(trees: ModuleType, hooks: Hooks) -> None:
    """Record each CUDA graph that torch records: the first of a graph, and why there is a further one (other inputs, order or sizes).

    A graph with symbolic sizes is a function of its own for each size, which `add_function` runs once to warm up; only the second call with
    a size records it, and none where a written input makes torch skip it (torch/_inductor/cudagraph_trees.py, 2.11 to 2.15). So sizes that
    are met are told apart from those that are recorded.
    """
    known: weakref.WeakKeyDictionary[Any, _Recorded] = weakref.WeakKeyDictionary()
    waiting = threading.local()

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        waiting.recording = None
        manager, inputs, function = args[0], args[1], args[2]
        of, model, sizes = known.setdefault(manager, _Recorded()), id(manager.ids_to_funcs[function].model), _sizes(inputs)
        earlier = of.recorded.get(model, [])
        if of.of_function.get(function.id):
            why = _why_again(manager, inputs, function)
        else:
            why = f"another size: {_shown(sizes)}, before {', '.join(map(_shown, earlier[:5]))}" if earlier else ""
        waiting.recording = of, model, function.id, sizes, why

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if waiting.recording is None:
            return
        of, model, function, sizes, why = waiting.recording
        of.of_function[function] = of.of_function.get(function, 0) + 1
        recorded = of.recorded.setdefault(model, [])
        recorded.append(sizes)
        if len(recorded) <= MOST_RECORDINGS:
            kind = "cudagraph_rerecord" if why else "cudagraph_recorded"
            text = f"recorded {len(recorded)} times: {why}" if why else "recorded"
            problem = {"kind": kind, "text": text[:_LONGEST_TEXT], "stack": stacks.calling_stack()}
            hooks.sink.artifact("dynadiag_problem", problem, compile_ids=structured.compile_ids(getattr(args[0], "compile_id", None)))

    def put_in() -> None:
        signature = inspect.signature(trees.CUDAGraphTreeManager.add_function)

        def before_adding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = signature.bind(*args, **kwargs).arguments
            met = known.setdefault(given["self"], _Recorded()).met.setdefault(id(given["model"]), [])
            met.append(_sizes(given["inputs"]))
            if 1 < len(met) <= MOST_RECORDINGS:
                text = f"met {len(met)} sizes: {_shown(met[-1])}, before {', '.join(map(_shown, met[:5]))}"
                stack = stacks.calling_stack() if len(met) == 2 else []
                problem = {"kind": "cudagraph_sizes", "text": text[:_LONGEST_TEXT], "stack": stack}
                hooks.sink.artifact("dynadiag_problem", problem, compile_ids=structured.compile_ids(given.get("compile_id")))

        hooks.watch(trees.CUDAGraphTreeManager, "record_function", before=before, after=after, file=trees.__file__)
        hooks.watch(trees.CUDAGraphTreeManager, "add_function", before=before_adding, file=trees.__file__)

    hooks.install("cudagraph_rerecord", put_in)


def _sizes(inputs: Any) -> _Sizes:
    """The numbers among the inputs of a graph, by which torch tells its sizes apart."""
    return tuple(input_ for input_ in inputs if isinstance(input_, int))


def _shown(sizes: _Sizes) -> str:
    return str(sizes[0]) if len(sizes) == 1 else str(sizes)


def _why_again(manager: Any, inputs: Any, function: Any) -> str:
    """What the newest recording of this function does not accept (`CUDAGraphNode.check_invariants`); it may also follow another graph."""
    newest, waiting = None, [node for nodes in manager.roots.values() for node in nodes]
    while waiting:
        node = waiting.pop()
        waiting += [child for children in node.children.values() for child in children]
        if node.wrapped_function.id == function and (newest is None or node.id.id > newest.id.id):
            newest = node
    if newest is None:
        return "another order of graphs"
    status, why = newest.check_invariants(inputs)
    return "it follows another graph than before" if status.name == "SUCCESS" else why()


class SkipReasons(logging.Filter):
    """Collects the reasons that torch logs, in `texts`, and lets every message through; torch logs them unless TORCH_LOGS forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: set[str] = set()
        logging.getLogger(f"{MODULE}.__cudagraphs").addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep what is told of a skip."""
        if record.funcName == _TELLS:
            self.texts.add(record.getMessage())
        return True
