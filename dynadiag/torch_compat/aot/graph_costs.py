"""What a step's AOT graphs compute and move: counted per call of each graph, never on an arm that is timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class GraphWork:
    """One AOT graph: floating point operations by dtype of their inputs, bytes of its distinct inputs and outputs, and how often it ran.

    `flops` counts what `torch.utils.flop_counter` has a formula for (products, convolutions, attention), as FlopCounterMode does.
    """

    flops: dict[str, int]
    bytes: int
    runs: int = 0


@dataclass(kw_only=True)
class StepWork:
    """The graphs of a step, in the order in which they were compiled."""

    graphs: list[GraphWork] = field(default_factory=list)

    def flops(self) -> int:
        """Floating point operations of all runs since `forget_runs`."""
        return sum(graph.runs * sum(graph.flops.values()) for graph in self.graphs)

    def forget_runs(self) -> None:
        """Count runs anew."""
        for graph in self.graphs:
            graph.runs = 0


def counting_backend(work: StepWork) -> Callable[..., Any]:
    """A backend that runs AOT graphs as they are and notes each with its runs (`torch/_dynamo/backends/common.py`, 2.11 to 2.15)."""
    from torch._dynamo.backends.common import aot_autograd

    def compile_(graph: Any, _inputs: Sequence[Any]) -> Callable[..., Any]:
        noted = GraphWork(flops=graph_flops(graph), bytes=graph_bytes(graph))
        work.graphs.append(noted)

        def run_noted(args: list[Any]) -> Any:
            noted.runs += 1
            values = list(args)
            args.clear()
            return graph(*values)

        run_noted._boxed_call = True  # type: ignore[attr-defined]
        return run_noted

    backend: Callable[..., Any] = aot_autograd(fw_compiler=compile_, bw_compiler=compile_, inference_compiler=compile_)
    return backend


def graph_flops(graph: Any) -> dict[str, int]:
    """Floating point operations of an AOT graph with torch's own formulas, by the dtype of the operation's first tensor.

    Convolutions stand apart ("float32:convolution"), since they have a TF32 switch of their own.
    """
    from torch.utils.flop_counter import flop_registry

    counted: Counter[str] = Counter()
    for node in graph.graph.nodes:
        formula = flop_registry.get(getattr(node.target, "_overloadpacket", None)) if node.op == "call_function" else None
        if formula is not None:
            args, kwargs = _values(node.args), _values(node.kwargs)
            dtype = next((str(value.dtype).removeprefix("torch.") for value in args if hasattr(value, "dtype")), "unknown")
            kind = ":convolution" if "convolution" in str(node.target) else ""
            counted[dtype + kind] += int(formula(*args, **kwargs, out_val=node.meta["val"]))
    return dict(counted)


def graph_bytes(graph: Any) -> int:
    """Bytes that any execution of the graph has to move: its used inputs read once and its outputs written once, each storage once."""
    nodes = list(graph.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder" and node.users]
    outputs = _nodes_in(nodes[-1].args)
    seen: dict[int, int] = {}
    for node in (*inputs, *outputs):
        value = node.meta.get("val")
        if hasattr(value, "untyped_storage"):
            seen[value.untyped_storage()._cdata] = int(value.numel()) * value.element_size()
    return sum(seen.values())


def _nodes_in(value: Any) -> list[Any]:
    from torch.fx import Node

    if isinstance(value, Node):
        return [value]
    if isinstance(value, list | tuple):
        return [node for item in value for node in _nodes_in(item)]
    return []


def _values(value: Any) -> Any:
    """Arguments of a node with the fake tensors that stand for other nodes."""
    from torch.fx.node import map_arg

    return map_arg(value, lambda node: node.meta["val"])
