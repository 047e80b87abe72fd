"""A candidate: a graph with inputs. One canonical text names it, and one total order says which of two is simpler."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from dynadiag.reduce.graphs.inputs import Input, TensorInput, from_value

CALLS = ("call_function", "call_method", "call_module")
_DTYPE_RANK = {torch.float32: 0, torch.int64: 0, torch.bool: 0, torch.float64: 1, torch.int32: 1}
Measure = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Call:
    """The recipes of the inputs of one call of the graph, one a placeholder; `grad` is its grad mode, None for that of the setting."""

    inputs: tuple[Input, ...]
    grad: bool | None = None

    def key(self) -> str:
        """What distinguishes this call from others of the same graph."""
        inputs = [f"{tensor_input.key()} {number}" for tensor_input, number in zip(self.inputs, memory_numbers(self.inputs), strict=True)]
        return "\n".join([*inputs, *([] if self.grad is None else [f"grad {self.grad}"])])

    def layout(self) -> tuple[object, ...]:
        """What a compiler may have decided by: everything but the data."""
        return (self.grad, *(input_.layout() for input_ in self.inputs), *memory_numbers(self.inputs))


@dataclass(frozen=True, eq=False)
class Candidate:
    """A graph module and the recipes of its inputs, one a placeholder; `configs` are compiler options that are set around it.

    `earlier` are calls with inputs of their own that are made before the one with `inputs`.
    """

    module: GraphModule
    inputs: tuple[Input, ...]
    configs: tuple[tuple[str, Any], ...] = field(default=())
    earlier: tuple[Call, ...] = field(default=())

    @functools.cached_property
    def calls(self) -> tuple[Call, ...]:
        """All calls in their order."""
        return (*self.earlier, Call(self.inputs))

    @functools.cached_property
    def key(self) -> str:
        """A digest of the canonical text: equal for graphs that differ only in names."""
        return hashlib.sha256(self.text.encode("utf-8", "backslashreplace")).hexdigest()[:32]

    @functools.cached_property
    def text(self) -> str:
        """The canonical text of graph, inputs and configs."""
        calls = [f"call {number}\n{call.key()}" for number, call in enumerate(self.earlier)]
        configs = [f"{name}={value!r}" for name, value in self.configs]
        return "\n".join([*_graph_text(self.module), *filter(None, [Call(self.inputs).key()]), *configs, *calls])

    @property
    def nodes(self) -> int:
        """`len(module.graph.nodes)`: the size that reports speak of."""
        return len(self.module.graph.nodes)

    @functools.cached_property
    def accelerated(self) -> bool:
        """Whether an input lives on a device other than the CPU, or the graph names one: then this process must not run it and fork."""
        homes = {input_.device.split(":")[0] for input_ in self.inputs if isinstance(input_, TensorInput)}
        return bool(homes - {"cpu", "meta"}) or "cuda" in self.text

    @functools.cached_property
    def measure(self) -> Measure:
        """The total order: less is simpler. Operators first, then nodes, then what one would have to read and understand."""
        tensors = [input_ for call in self.calls for input_ in call.inputs if isinstance(input_, TensorInput)]
        sizes = [size for tensor in tensors for size in tensor.shape]
        shared = sum(len(call.inputs) - len(set(memory_numbers(call.inputs))) for call in self.calls)
        last = self.calls[-1].key()
        constants = list(_constants(self.module))
        return (
            sum(node.op in CALLS for graph in graphs_in(self.module) for node in graph.graph.nodes),
            sum(len(graph.graph.nodes) for graph in graphs_in(self.module)),
            len(self.earlier),
            sum(call.key() != last for call in self.earlier),
            len(self.configs),
            sum(size.bit_length() for size in sizes if size > 1),
            sum(sizes) + len(sizes),
            sum(tensor_input.requires_grad + (not tensor_input.leaf) for tensor_input in tensors),
            shared,
            sum(not item.contiguous for item in tensors),
            sum(_DTYPE_RANK.get(element.dtype, 2) for element in tensors),
            tuple(sorted((entry.rank() for entry in tensors), reverse=True)),
            sum(map(_weight, constants)),
            len(self.text),
            self.text,
        )


def candidate_of(module: GraphModule, values: Sequence[Any]) -> Candidate:
    """The candidate that is the original: its inputs are the values themselves, not copies."""
    return Candidate(module, tuple(from_value(value, f"input {position}") for position, value in enumerate(values)))


def graphs_in(module: GraphModule) -> Iterator[GraphModule]:
    """The graph and those of its sub graphs that it uses (bodies of higher order operators), each once."""
    yield module
    used = {node.target for node in module.graph.nodes if node.op in ("get_attr", "call_module")}
    for name, child in module.named_children():
        if name in used and isinstance(child, GraphModule):
            yield from graphs_in(child)


def memory_numbers(inputs: Sequence[Input]) -> list[int]:
    """A number for each input, equal for those whose data share memory."""
    seen: dict[int, int] = {}
    numbers = []
    for position, tensor_input in enumerate(inputs):
        address = (
            tensor_input.data.untyped_storage().data_ptr() if isinstance(tensor_input, TensorInput) and tensor_input.data is not None else 0
        )
        shared = isinstance(tensor_input, TensorInput) and tensor_input.fill == "data" and address
        numbers.append(seen.setdefault(address, position) if shared else position)
    return numbers


def _graph_text(module: GraphModule) -> Iterator[str]:
    numbers: dict[Node, int] = {}
    for node in module.graph.nodes:
        numbers[node] = len(numbers)
        args, kwargs = map_arg((node.args, node.kwargs), lambda other: cast(Any, _Name(numbers[other])))
        yield f"{node.op} {_target(module, node)} {args!r} {kwargs!r}"


class _Name:
    def __init__(self, number: int) -> None:
        self._number = number

    def __repr__(self) -> str:
        return f"%{self._number}"


def _target(module: GraphModule, node: Node) -> str:
    if node.op == "placeholder" or node.op == "output":
        return ""
    if node.op == "get_attr":
        found = functools.reduce(getattr, str(node.target).split("."), module)
        if isinstance(found, GraphModule):
            return "(" + "; ".join(_graph_text(found)) + ")"
    if node.op != "call_function" or not inspect.isroutine(node.target):
        return str(node.target)
    return f"{getattr(node.target, '__module__', '')}.{getattr(node.target, '__qualname__', node.target)}"


def _constants(module: GraphModule) -> Iterator[Any]:
    for graph in graphs_in(module):
        for node in graph.graph.nodes:
            if node.op in CALLS:
                yield from leaves((node.args, node.kwargs))


def leaves(value: Any) -> Iterator[Any]:
    """The constants in the arguments of a node."""
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, slice):
        yield from leaves((value.start, value.stop, value.step))
    elif not isinstance(value, Node):
        yield value


def _weight(constant: Any) -> int:
    if constant is None or constant is False or (isinstance(constant, int | float) and constant == 0):
        return 1
    if isinstance(constant, int | float) and constant == 1:
        return 2
    return 3 + len(repr(constant))


def own_copy(module: GraphModule) -> GraphModule:
    """A graph module with a graph of its own; parameters and sub modules without graphs are shared with the original."""
    copy = GraphModule(module, _copy_graph(module))
    for name, child in module.named_children():
        if isinstance(child, GraphModule) and hasattr(copy, name):
            setattr(copy, name, own_copy(child))
    return copy


def _copy_graph(module: GraphModule) -> torch.fx.Graph:
    graph = torch.fx.Graph()
    made: dict[Node, Node] = {}
    output = graph.graph_copy(module.graph, made)
    ends = [node for node in module.graph.nodes if node.op == "output"]
    if ends:
        graph.output(output)
        list(graph.nodes)[-1].meta = dict(ends[-1].meta)
    return graph
