"""The text of a captured graph, from any log, as a `torch.fx.GraphModule` with example inputs; or exactly why it cannot be one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynadiag.errors import NotRebuildableError, shorten
from dynadiag.fx import details as recorded
from dynadiag.fx import inputs as making
from dynadiag.fx.building import ANNOTATION, BuildOptions, BuiltGraph, build_graph, group_sizes
from dynadiag.fx.inputs import FILLINGS, Filling, InputSpec, SizeFactors
from dynadiag.fx.missing_operators import OperatorFacts
from dynadiag.fx.source_text import SymbolNote, TensorNote, parse_annotation, read_graph_source
from dynadiag.torch_compat.dispatch.state import lazy_graph_module
from dynadiag.trace import sizes

MODULE_STACK = "dynadiag_module_stack"
_MOST_HELD_BYTES = 4 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """`device` replaces every accelerator by this one ("cpu"); `extra_namespaces` names operator libraries that the caller trusts.

    `factors` says how symbolic sizes whose values nobody recorded are chosen. With `missing_operators`, operators and tensor subclasses
    that this torch lacks are kept by name: the probe can follow such a graph, nothing can run it. `lazy` writes the module's code when it
    is called.
    `values_on` is the device on which inputs and attributes are made, whatever device their specs name: for a process that forks and must
    not initialise CUDA.
    """

    device: str | None = None
    extra_namespaces: frozenset[str] = frozenset()
    factors: SizeFactors = "rising"
    missing_operators: OperatorFacts | None = None
    lazy: bool = False
    values_on: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A rebuilt graph. `inputs` and `attributes` say what it takes; `symbols` the values of symbolic sizes, of which `unknown_symbols`
    were chosen because nobody recorded them; `groups` the process groups it needs, by name with their number of ranks.
    """

    graph_module: GraphModule
    inputs: tuple[InputSpec, ...]
    attributes: tuple[InputSpec, ...] = ()
    symbols: Mapping[str, sizes.Number] = field(default_factory=dict)
    unknown_symbols: int = 0
    groups: Mapping[str, int] = field(default_factory=dict)
    grad: bool | None = None
    values_on: str | None = None

    def example_inputs(self, filling: Filling = FILLINGS[0], *, seed: int = 0) -> list[Any]:
        """Fresh inputs, the same each time for one seed; inputs known to share storage share it."""
        return making.make_inputs([making.on_device(spec, self.values_on) for spec in self.inputs], filling, seed=seed)

    @property
    def input_bytes(self) -> int:
        """Memory of the inputs and attributes, in bytes."""
        return making.total_bytes([*self.inputs, *self.attributes])


def rebuild(text: str, *, details: Mapping[str, Any] | None = None, options: RebuildOptions | None = None) -> Rebuilt:
    """The graph printed in `text`, never run as text. `details` is the `dynadiag_graph` record of a live run.

    Raises NotRebuildableError whose message is the exact reason.
    """
    options = options or RebuildOptions()
    # The syntax tree is kept by nobody: it is as large as the graph.
    built = build_graph(
        read_graph_source(text),
        BuildOptions(device=options.device, extra_namespaces=options.extra_namespaces, missing_operators=options.missing_operators),
    )
    known = recorded.detail_specs(details)
    recorded_values = _recorded_symbols(built, known)
    annotations = [node.meta.get(ANNOTATION) for node in (*built.placeholders, *_all_attributes(built))]
    symbols = making.choose_symbols(annotations, known=recorded_values, factors=options.factors)
    inputs = tuple(_input(node, known.get(node.name), symbols, options) for node in built.placeholders)
    attributes: list[InputSpec] = []
    held = recorded.attribute_specs(details)
    try:
        module = _assemble(built, "", symbols, options, attributes, held)
    except (SyntaxError, RecursionError) as error:
        raise NotRebuildableError(f"FX cannot write it as code: {type(error).__name__}: {shorten(str(error), 100)}") from None
    _attach_stacks(module, details)
    grad = details.get("grad") if isinstance(details, Mapping) else None
    return Rebuilt(
        graph_module=module,
        inputs=inputs,
        attributes=tuple(attributes),
        symbols=symbols,
        unknown_symbols=len(symbols) - len(recorded_values),
        groups=group_sizes(module),
        grad=grad if isinstance(grad, bool) else None,
        values_on=options.values_on,
    )


def _recorded_symbols(built: BuiltGraph, known: Mapping[str, InputSpec]) -> dict[str, sizes.Number]:
    equations: list[tuple[str, int]] = []
    numbers: dict[str, sizes.Number] = {}
    for node in built.placeholders:
        spec, note = known.get(node.name), parse_annotation(node.meta.get(ANNOTATION))
        if isinstance(note, TensorNote) and spec is not None and spec.shape is not None and len(spec.shape) == len(note.shape):
            equations += zip(note.shape, spec.shape, strict=True)
        if isinstance(note, SymbolNote) and spec is not None and spec.value is not None and note.expression.isidentifier():
            numbers[note.expression] = spec.value
    return numbers | sizes.solve(equations)


def _all_attributes(built: BuiltGraph) -> list[Node]:
    return [*built.attributes, *(node for child in built.children.values() for node in _all_attributes(child))]


def _input(node: Node, spec: InputSpec | None, symbols: Mapping[str, sizes.Number], options: RebuildOptions) -> InputSpec:
    if any("run_with_rng_state" in str(user.target) and user.args and user.args[0] is node for user in node.users):
        return InputSpec(name=node.name, kind="rng_state", basis="use")
    if spec is None:
        spec = making.spec_from_annotation(node.name, node.meta.get(ANNOTATION), symbols, any_class=options.missing_operators is not None)
    elif spec.subclass is not None and options.missing_operators is None:
        raise making.subclass_refused(node.name, spec.subclass)
    return making.on_device(spec, options.device)


def _assemble(
    built: BuiltGraph,
    path: str,
    symbols: Mapping[str, sizes.Number],
    options: RebuildOptions,
    attributes: list[InputSpec],
    held: Mapping[str, InputSpec],
) -> GraphModule:
    root = torch.nn.Module()
    for name, child in built.children.items():
        setattr(root, name, _assemble(child, f"{path}{name}.", symbols, options, attributes, held))
    specs: list[InputSpec] = []
    for node in built.attributes:
        known = held.get(f"{path}{node.target}")
        said = known or making.spec_from_annotation(f"self.{node.target}", _annotation_of(node), symbols)
        spec = making.on_device(said, options.device)
        specs.append(spec)
    values = _held_values([making.on_device(spec, options.values_on) for spec in specs])
    for node, spec, value in zip(built.attributes, specs, values, strict=True):
        attributes.append(replace(spec, name=f"{path}{node.target}"))
        _set_attribute(root, str(node.target).split("."), value)
    return lazy_graph_module(root, built.graph) if options.lazy else GraphModule(root, built.graph, class_name="GraphModule")


def _held_values(specs: Sequence[InputSpec]) -> list[Any]:
    """Tensors that the graph holds itself; a log may say of them what no memory has room for."""
    if making.total_bytes(specs) > _MOST_HELD_BYTES:
        raise NotRebuildableError(f"its own tensors would take more than {_MOST_HELD_BYTES >> 30} GiB")
    try:
        return making.make_inputs(specs, FILLINGS[0])
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:
        raise NotRebuildableError(f"its own tensors cannot be created: {shorten(str(error), 120)}") from None


def _annotation_of(node: Node) -> str | None:
    """The annotation of an attribute; when it has none, that of the node that merely copies it (`lift_fresh_copy`)."""
    own: str | None = node.meta.get(ANNOTATION)
    if own is not None:
        return own
    for user in node.users:
        if user.op == "call_function" and "lift_fresh" in str(user.target):
            copied: str | None = user.meta.get(ANNOTATION)
            return copied
    return None


def _set_attribute(root: torch.nn.Module, path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        if not hasattr(root, part):
            setattr(root, part, torch.nn.Module())
        root = getattr(root, part)
    if isinstance(value, torch.Tensor):
        root.register_buffer(path[-1], value)
    else:
        setattr(root, path[-1], value)


def _attach_stacks(module: GraphModule, details: Mapping[str, Any] | None) -> None:
    """The recorded stacks replace the one line that the text has: they are whole."""
    stacks, modules = recorded.stack_traces(details), recorded.module_stacks(details)
    for node in module.graph.nodes:
        if node.name in stacks:
            node.meta["stack_trace"] = stacks[node.name]
        if node.name in modules:
            node.meta[MODULE_STACK] = modules[node.name]
