"""A copy of a Dynamo graph, taken before the backend may change it, and whether its ops may be called a second time."""

from __future__ import annotations

import builtins
import dis
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from dynadiag.dotted_names import lies_in
from dynadiag.torch_compat.dispatch.live_call import is_higher_order, operator_names, operator_schema, python_kernels
from dynadiag.torch_compat.dispatch.state import lazy_graph_module
from dynadiag.torch_compat.dispatch.writes import declared_writes, operator_name
from dynadiag.torch_compat.dynamo.graphs import source_name

_COLLECTIVES = frozenset(
    {"c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd", "symm_mem", "fsdp", "_dtensor", "dist", "distributed"}
)
# Higher-order operators that call Python objects or print, or hold code that another backend compiled.
_NOT_TWICE = frozenset({"call_torchbind", "with_effects", "print", "inductor_compiled_code", "invoke_leaf_function", "aoti_call_delegate"})
_TORCHS_OWN = frozenset({"aten", "prims", "prim", "inductor", "quantized", "torchvision", "mkldnn", "profiler", "rngprims", "export"})
_FROM_TORCH = ("torch.", "_operator", "math", "builtins", "operator", "einops", "torchvision.")
_SPEAKS = frozenset({"print", "open", "exec", "eval", "input"})
_PLAIN = (int, float, complex, bool, str, bytes, tuple, frozenset, type, type(None), torch.dtype, torch.device, torch.Tensor, ModuleType)
_DEPTH = 3


@dataclass(frozen=True)
class GraphCopy:
    """The nodes with their stacks alone, the tensors that the graph holds itself, and Dynamo's names of both.

    `names` are those of the tensors in the order placeholders, then attributes. `why_not` says why it may not be called twice.
    """

    graph: Graph
    attributes: dict[str, Any]
    names: tuple[str, ...]
    why_not: str | None

    def last_reader(self, position: int) -> Node | None:
        """The last node that takes the how-many-th of `names` directly."""
        taken = [node for node in self.graph.nodes if node.op == "placeholder"]
        held = [name for name, value in self.attributes.items() if isinstance(value, torch.Tensor)]
        target = held[position - len(taken)] if position >= len(taken) else None
        sources = (
            [taken[position]] if target is None else [node for node in self.graph.nodes if node.op == "get_attr" and node.target == target]
        )
        readers = [
            node for node in self.graph.nodes if node.op != "output" and any(input_node in sources for input_node in node.all_input_nodes)
        ]
        return readers[-1] if readers else None


def copy_graph(module: GraphModule, sources: Any) -> GraphCopy:
    """The graph as Dynamo made it; `sources` maps names of attributes to Dynamo's sources."""
    placeholders = [_name(node) for node in module.graph.nodes if node.op == "placeholder"]
    attributes = {str(node.target): attrgetter(str(node.target))(module) for node in module.graph.nodes if node.op == "get_attr"}
    own = {name: _body(value) if isinstance(value, GraphModule) else value for name, value in attributes.items()}
    tensors = [source_name((sources or {}).get(name)) or name for name, value in own.items() if isinstance(value, torch.Tensor)]
    return GraphCopy(_copy(module.graph), own, (*placeholders, *tensors), _why_not(module))


def _name(node: Node) -> str:
    return source_name(getattr(node.meta.get("grapharg"), "source", None)) or node.name


def _copy(graph: Graph) -> Graph:
    copy = Graph()
    result = copy.graph_copy(graph, val_map={})
    copy.output(result)
    for node in copy.nodes:
        stack = node.meta.get("stack_trace")
        node.meta = {"stack_trace": stack} if isinstance(stack, str) else {}
    return copy


def _body(module: GraphModule) -> GraphModule:
    """A body of a higher-order operator, its own bodies copied too; tensors that it holds are refused before (`_why_not`)."""
    root = torch.nn.Module()
    for name, value in module.named_children():
        root.add_module(name, _body(value) if isinstance(value, GraphModule) else value)
    return lazy_graph_module(root, _copy(module.graph))


def _why_not(module: GraphModule) -> str | None:
    for part in module.modules():
        if part is not module and (any(True for _ in part.parameters(recurse=False)) or any(True for _ in part.buffers(recurse=False))):
            return "one of its bodies has tensors of its own"
        if isinstance(part, GraphModule):
            for node in part.graph.nodes:
                if (reason := _node_why_not(part, node)) is not None:
                    return reason
    return None


def _node_why_not(module: GraphModule, node: Node) -> str | None:
    if node.op == "call_module" and not isinstance(attrgetter(str(node.target))(module), GraphModule):
        return f"it calls the module {node.target} as a whole"
    if node.op != "call_function":
        return None
    target: Any = node.target
    if is_higher_order(target):
        name = operator_name(target)
        return f"it calls {name}, whose effects are outside the graph" if name in _NOT_TWICE else None
    for name in operator_names(target):
        namespace = name.split("::")[0]
        if namespace in _COLLECTIVES:
            return f"it calls the collective {name}, and other ranks participate in each call"
        return None if namespace in _TORCHS_OWN else _operator_why_not(name, target)
    return _function_why_not(target)


def _operator_why_not(name: str, target: Any) -> str | None:
    schema = operator_schema(target)
    kernels = python_kernels(name)
    if not schema.returns and not declared_writes(schema) and not kernels:
        return f"the custom operator {name} returns and writes nothing by its schema, and its code is not known"
    for kernel in kernels:
        if (effect := outside_effect(kernel)) is not None:
            return f"the custom operator {name} {effect}, so it is not called twice"
    return None


def _function_why_not(target: Any) -> str | None:
    module = str(getattr(target, "__module__", "") or "")
    if lies_in(module, "torch.distributed"):
        return f"it calls {module}.{getattr(target, '__name__', '')}, in which other ranks participate"
    if (
        module in ("torch", "torch._C")
        or module.startswith(_FROM_TORCH)
        or target in (getattr, *vars(math).values(), *vars(operator).values())
    ):
        return None
    if isinstance(target, type) or getattr(builtins, str(getattr(target, "__name__", "")), None) is target:
        return None
    effect = outside_effect(target)
    return None if effect is None else f"the function {getattr(target, '__name__', target)} {effect}, so it is not called twice"


def outside_effect(function: Any, depth: int = _DEPTH) -> str | None:
    """What a Python function may do beyond its arguments, as far as its code tells: in words, or None when nothing is seen."""
    function = getattr(function, "__wrapped__", function)
    if not isinstance(function, FunctionType):
        return None
    for code in _codes(function.__code__):
        for step in dis.get_instructions(code):
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in function.__code__.co_freevars
            ):
                return f"sets {step.argval}"
    for name, value in _reached(function):
        if name in _SPEAKS and value is None:
            return f"calls {name}"
        if isinstance(value, FunctionType) and depth and not str(value.__module__).startswith("torch"):
            if (effect := outside_effect(value, depth - 1)) is not None:
                return effect
        elif not isinstance(value, _PLAIN) and not callable(value):
            return f"uses {name}, which it may change"
        elif (owner := _owner(value)) is not None:
            return f"uses {name}, which may change a {owner}"
    return None


def _owner(value: Any) -> str | None:
    """The type of the object that a method belongs to; None for functions, whose owner is a module or a class if anything."""
    owner = value.__self__ if isinstance(value, MethodType | BuiltinMethodType) else None
    return None if owner is None or isinstance(owner, _PLAIN) else type(owner).__name__


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _reached(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The names outside itself that a function uses, with what they are now."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
            elif name in _SPEAKS:
                yield name, None
