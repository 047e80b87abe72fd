"""What the text of a graph loses: where its inputs come from and lie in memory, which it holds itself, the module and line of each node."""

from __future__ import annotations

import itertools
import operator
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.dispatch.own_operators import operator_schemas
from dynadiag.torch_compat.dynamo.backend import name_backend
from dynadiag.torch_compat.dynamo.unguarded import UnguardedState
from dynadiag.torch_compat.dynamo.user_compiler import watch_compiler
from dynadiag.torch_compat.trace.compiled_work import WorkMeter
from dynadiag.torch_compat.trace.cost import CostMeter
from dynadiag.torch_compat.trace.hooks import Hooks

# By the identity of a parameter: what a graph called it, and its shape.
Names = dict[int, tuple[str, tuple[int, ...]]]


def watch_graphs(output_graph: ModuleType, hooks: Hooks, cost: CostMeter | None, work: WorkMeter, state: UnguardedState) -> None:
    """Record each graph before it goes to the backend, and what the backend raised."""
    ordinals = itertools.count()
    names: Names = {}

    def begin(graph: Any, module: Any, inputs: Callable[[], Sequence[Any]]) -> None:
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            description = _describe(names, graph, module, inputs())
        count = count_operators(module)
        hooks.sink.artifact("dynadiag_graph", {"graph": next(ordinals), "operator_count": count, **description})
        work.graph(count)
        state.look_at(graph)

    def failed(begun: None, raised: Exception) -> None:
        _note_failure(hooks, raised)

    def put_in() -> None:
        name = "call_user_compiler"
        watch_compiler(output_graph, hooks.shielded(name, begin), failed=hooks.shielded(name, failed), replace=hooks.replace)
        if cost is not None:
            cost.count_calls_of(output_graph, hooks)

    hooks.install("call_user_compiler", put_in)


def _note_failure(hooks: Hooks, raised: Exception) -> None:
    """The backend raised; say whether AOTAutograd refused the graph or what came after it failed. Inductor calls it, and it inductor."""
    cause = raised.__cause__ or raised
    files = [frame.filename for frame in traceback.extract_tb(cause.__traceback__)]
    parts = [part for file in files for part in ("/torch/_functorch/", "/torch/_inductor/") if part in file]
    kind = "aot_rejected" if parts and parts[-1] == "/torch/_functorch/" else "backend_error"
    text = f"{type(cause).__name__}: {str(cause).strip()[:4000]}"
    hooks.sink.artifact("dynadiag_problem", {"kind": kind, "text": text, "stack": []})


def _describe(names: Names, output_graph: Any, module: Any, inputs: Any) -> dict[str, Any]:
    torch = sys.modules["torch"]
    storages: dict[int, int] = {}
    strings: dict[str, int] = {}
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    pairs = zip(placeholders, inputs)
    return {
        "inputs": [_describe_input(node, value, storages, names) for node, value in pairs],
        "attributes": describe_attributes(module, output_graph, lambda value: _describe_value(value, storages)),
        "operators": operator_schemas(module),
        "nodes": [_describe_node(node, strings) for node in module.graph.nodes],
        "strings": list(strings),
        "classes": _classes(module),
        "grad": bool(torch.is_grad_enabled()),
        "inference": bool(torch.is_inference_mode_enabled()),
        "autocast": {device: bool(torch.is_autocast_enabled(device)) for device in ("cpu", "cuda")},
        "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        "backend": _with_cuda_graphs(name_backend(output_graph.compiler_fn)),
        **({"side_streams": streams} if (streams := _side_streams(module)) else {}),
    }


def _with_cuda_graphs(backend: dict[str, Any]) -> dict[str, Any]:
    """The back end, and of Inductor whether CUDA graphs are on for this graph: by its own options, else by the config (and environment)."""
    config = sys.modules.get("torch._inductor.config")
    if backend["backend"] != "inductor" or config is None:
        return backend
    return {**backend, "cuda_graphs": bool(backend["options"].get("triton.cudagraphs", config.triton.cudagraphs))}


def _describe_input(node: Any, value: Any, storages: dict[int, int], names: Names) -> dict[str, Any]:
    """One input; of a list (the `inputs` of a backward graph of compiled autograd) each item."""
    entry = {"name": node.name, "source": input_source(node), "static": static_kind(node), **_describe_value(value, storages)}
    if isinstance(value, list):
        return entry | {"items": _describe_items(entry, value, storages, names)}
    if isinstance(value, sys.modules["torch"].nn.Parameter) and entry["source"]:
        names[id(value)] = (entry["source"], tuple(value.shape))
    return entry


def _describe_items(entry: dict[str, Any], values: list[Any], storages: dict[int, int], names: Names) -> list[dict[str, Any]]:
    """Each item, with what an earlier graph called it (`known_as`), and the position of the item whose `.grad` it is (`grad_of`)."""
    grads = {id(item.grad): position for position, item in enumerate(values) if _may_hold_grad(item) and item.grad is not None}
    items = []
    for position, item in enumerate(values):
        source = f"{entry['source']}[{position}]" if entry["source"] else None
        described = {"name": f"{entry['name']}{position}", "source": source, "static": None, **_describe_value(item, storages)}
        known, shape = names.get(id(item), (None, None))
        described |= {"known_as": known} if known is not None and described.get("shape") == list(shape or ()) else {}
        items.append(described | ({"grad_of": grads[id(item)]} if id(item) in grads else {}))
    return items


def _may_hold_grad(item: Any) -> bool:
    """Whether `.grad` may be read: of a tensor that is no leaf torch warns."""
    return isinstance(item, sys.modules["torch"].Tensor) and bool(item.is_leaf)


def input_source(node: Any) -> str | None:
    """Dynamo's name of where an input of a graph comes from, such as L['x']; None for other nodes."""
    return source_name(getattr(node.meta.get("grapharg"), "source", None))


def _describe_node(node: Any, strings: dict[str, int]) -> list[Any]:
    modules = node.meta.get("nn_module_stack")
    stack = node.meta.get("stack_trace")
    module_text = " > ".join(str(entry[0]) for entry in modules.values()) if modules else None
    return [node.name, _intern(module_text, strings), _intern(stack, strings)]


def _classes(module: Any) -> dict[str, str]:
    """The class names of the modules that the nodes are in, by path; an entry of a stack is a path and a class, or the class's name."""
    stacks = [node.meta.get("nn_module_stack") or {} for node in module.graph.nodes]
    return {str(path): str(getattr(kind, "__name__", kind)).rpartition(".")[2] for stack in stacks for path, kind in stack.values()}


def _side_streams(module: Any) -> dict[str, int]:
    """The nodes that the program runs on another stream than the one that is current at the call, and the number of that stream.

    `with torch.cuda.stream(s)` leaves no node, only the number as an annotation (torch/_dynamo/variables/streams.py, 2.11 to 2.15).
    """
    annotated = ((node.name, node.meta.get("custom")) for node in module.graph.nodes)
    named = {name: custom["stream"] for name, custom in annotated if isinstance(custom, dict) and type(custom.get("stream")) is int}
    others = {number for number in set(named.values()) if _is_other_stream(number)}
    return {name: number for name, number in named.items() if number in others}


def _is_other_stream(number: int) -> bool:
    """Whether a stream that torch keeps under a number is not the current one of its device; False where it is not kept."""
    try:
        stream = sys.modules["torch._dynamo.graph_bytecode_inputs"].get_external_object_by_index(number)
        return bool(stream.stream_id != sys.modules["torch"].accelerator.current_stream(stream.device).stream_id)
    except (AssertionError, AttributeError, KeyError, RuntimeError):
        return False


def _intern(text: str | None, strings: dict[str, int]) -> int | None:
    return None if not text else strings.setdefault(text, len(strings))


def _describe_value(value: Any, storages: dict[int, int]) -> dict[str, Any]:
    """One input without its contents; `storage` is a number that inputs of the same memory share."""
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor):
        scalar = isinstance(value, (int, float, bool, str, torch.SymInt, torch.SymFloat, torch.SymBool))
        return {"type": type(value).__name__} | ({"value": str(value)[:200]} if scalar else {}) | _hint(value)
    described = {
        "type": type(value).__name__,
        "shape": [_size(size) for size in value.shape],
        "dtype": str(value.dtype),
        "device": str(value.device),
        "requires_grad": bool(value.requires_grad),
        "is_leaf": bool(value.is_leaf),
        "is_view": bool(value._is_view()),
    }
    return described | _describe_memory(value, storages, torch)


def _hint(value: Any) -> dict[str, Any]:
    """The number behind a symbolic one in this call (`SymNode.hint`); nothing when there is none."""
    hint = getattr(getattr(value, "node", None), "hint", None)
    return {"hint": hint} if type(hint) in (int, float, bool) else {}


def _describe_memory(value: Any, storages: dict[int, int], torch: Any) -> dict[str, Any]:
    if value.layout is not torch.strided:
        return {"layout": str(value.layout)}
    memory: dict[str, Any] = {"stride": [_size(size) for size in value.stride()], "offset": _size(value.storage_offset())}
    try:
        storage = value.untyped_storage()
        memory |= {"storage": storages.setdefault(storage._cdata, len(storages)), "storage_bytes": _size(storage.nbytes())}
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        memory["storage_why"] = f"{type(error).__name__}: a tensor without own memory"
    return memory


def _size(size: Any) -> int | str:
    return size if type(size) is int else str(size)


# -- operators

_READS = frozenset({"item", "tolist"})  # of a tensor, for a number


def count_operators(module: Any) -> int:
    """The calls in a graph that a plain run would dispatch: those that give or write a tensor, or read a number from one.

    An item of a tuple, a size and arithmetic on sizes are none. An operator that wraps a graph (`torch.utils.checkpoint`) counts as that
    graph does; a loop or a branch in a graph as one.
    """
    return sum(_operators(node, module) for node in module.graph.nodes if node.op in ("call_function", "call_method", "call_module"))


def _operators(node: Any, module: Any) -> int:
    first = node.args[0] if node.args else None
    body = _body(first, module)
    if body is not None:
        return count_operators(body)
    result = node.meta.get("example_value")
    if node.target is operator.getitem:
        return int(_is_tensor(_value(first)))
    name = getattr(node.target, "__name__", node.target)
    return int(
        _holds_tensor(result) or name in _READS or (result is None and any(_holds_tensor(_value(argument)) for argument in node.args))
    )


def _body(argument: Any, module: Any) -> Any:
    """The graph that the first argument of an operator names, or None."""
    if getattr(argument, "op", None) != "get_attr":
        return None
    value: Any = module
    for part in str(argument.target).split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, sys.modules["torch"].fx.GraphModule) else None


def _value(argument: Any) -> Any:
    return argument.meta.get("example_value") if hasattr(argument, "meta") else argument


def _is_tensor(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor)


def _holds_tensor(value: Any) -> bool:
    """Whether it is a tensor, or a list or tuple with one, however deep (of nodes: with one that is)."""
    if isinstance(value, (list, tuple)):
        return any(_holds_tensor(_value(item)) for item in value)
    return _is_tensor(value)


def describe_attributes(module: Any, output_graph: Any, describe_value: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    """The parameters and buffers of a graph (an optimizer's, for example) in the order in which AOTAutograd puts them before its inputs.

    Dynamo keeps their sources in `OutputGraph.param_name_to_source` (2.11 to 2.15).
    """
    sources = getattr(output_graph, "param_name_to_source", None) or {}
    own = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
    return [{"name": name, "source": source_name(sources.get(name)), **describe_value(value)} for name, value in own.items()]


def source_name(source: Any) -> str | None:
    """Dynamo's name for where an input comes from ("L['self'].cache"); a method in 2.11, a property in 2.15."""
    name = getattr(source, "name", None)
    return str(name() if callable(name) else name) if name is not None else None


def static_kind(node: Any) -> str | None:
    """How an input is marked that keeps its address, guarded or unguarded (`mark_static_address`, tensors of modules); else None."""
    marks = node.meta.get("tensor_dict")
    kind = marks.get("_dynamo_static_input_type") if isinstance(marks, dict) else None
    return kind if isinstance(kind, str) else None
