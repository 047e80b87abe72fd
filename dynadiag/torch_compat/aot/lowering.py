"""The graphs that AOTAutograd makes of a candidate, with the real inputs of their first run: compiled again with compilers that only watch.

AOT inputs do not map one to one to Dynamo's (aliases become bases, sizes and saved values join), so they are those of a real call.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import Graph, GraphModule

from dynadiag.torch_compat.pytree import tree_leaves

AotKind = Literal["inference", "forward", "backward", "joint"]
_COMPILERS: tuple[tuple[str, AotKind], ...] = (
    ("fw_compiler", "forward"),
    ("bw_compiler", "backward"),
    ("inference_compiler", "inference"),
)


@dataclass
class AotGraph:
    """One graph as its compiler got it; `inputs` are copies of the values of its first run, None when it never ran."""

    kind: AotKind
    module: GraphModule
    inputs: list[Any] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the placeholders."""
        return [str(node.target) for node in self.module.graph.nodes if node.op == "placeholder"]


def is_overload(target: Any) -> bool:
    """Whether the target of a node is an operator of the kind that AOT graphs hold."""
    return isinstance(target, torch._ops.OpOverload)


@contextlib.contextmanager
def watched_aot_graphs() -> Iterator[list[AotGraph]]:
    """A list that fills with the graphs of each compile inside; they run without being compiled.

    Replaces the compilers that a backend hands to `aot_module_simplified` (`torch/_dynamo/backends/common.py`, 2.11 to 2.15; inductor goes
    through it too). Decompositions, the partitioner and passes before it stay those of the backend.
    """
    import torch._dynamo.backends.common

    common: Any = torch._dynamo.backends.common
    original = common.aot_module_simplified
    found: list[AotGraph] = []

    def watching(module: Any, args: Any, **kwargs: Any) -> Any:
        for name, kind in _COMPILERS:
            kwargs[name] = _watching_compiler(kind, found)
        partition = kwargs.get("partition_fn") or _default_partition(original)
        kwargs["partition_fn"] = _watching_partition(partition, found)
        return original(module, args, **kwargs)

    common.aot_module_simplified = watching
    try:
        yield found
    finally:
        common.aot_module_simplified = original


def complete_joint(found: list[AotGraph]) -> None:
    """Give a joint graph its inputs: those of the forward and the backward graph, by name."""
    values = {name: value for graph in found if graph.inputs is not None for name, value in zip(graph.names, graph.inputs)}
    for graph in found:
        if graph.kind == "joint" and all(name in values for name in graph.names):
            graph.inputs = [values[name] for name in graph.names]


def _default_partition(function: Any) -> Any:
    return inspect.signature(function).parameters["partition_fn"].default


def _watching_compiler(kind: AotKind, found: list[AotGraph]) -> Callable[..., Any]:
    def compiler(module: GraphModule, example_inputs: Any, **more: Any) -> Any:
        graph = AotGraph(kind=kind, module=_copied(module))
        found.append(graph)

        def run_graph(values: list[Any]) -> Any:
            if graph.inputs is None:
                graph.inputs = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values]
            own = list(values)
            values.clear()
            return module.forward(*own)

        # A backward may run while Dynamo's eval-frame callback is live: it must not compile our function.
        hidden = torch._dynamo.disable(run_graph)  # type: ignore[no-untyped-call]
        hidden._boxed_call = True
        return hidden

    return compiler


def _watching_partition(partition: Callable[..., Any], found: list[AotGraph]) -> Callable[..., Any]:
    def watching(module: GraphModule, *args: Any, **kwargs: Any) -> Any:
        found.append(AotGraph(kind="joint", module=_copied(module)))
        return partition(module, *args, **kwargs)

    return watching


def _copied(module: GraphModule) -> GraphModule:
    """A copy (compilers rewrite what they get) that returns one flat tuple."""
    graph = Graph()
    output = graph.graph_copy(module.graph, {})
    graph.output(tuple(tree_leaves(output, is_leaf=lambda item: item is None)))
    return GraphModule(module, graph)


# AOTAutograd run on a rebuilt graph, to hear what it says.


def aot_refusal(module: GraphModule, inputs: Sequence[Any]) -> str | None:
    """What AOTAutograd raises when it traces the graph for a back end that keeps input mutations; None when it takes it.

    The back end is that of `aot_eager` (torch/_dynamo/backends/debugging.py, 2.11 and 2.15): it compiles nothing.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    backend = aot_autograd(fw_compiler=boxed_nop, partition_fn=min_cut_rematerialization_partition, keep_inference_input_mutations=True)
    try:
        backend(module, list(inputs))
    except Exception as error:  # noqa: BLE001 - the border around a graph from a log
        return f"{type(error).__name__}: {str(error).strip()[:2000]}"
    return None
