"""A printed graph (`GraphSource`) rebuilt node by node as `torch.fx.Graph`s. The text is never run: only its syntax tree is read."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from dynadiag.errors import NotRebuildableError, shorten
from dynadiag.fx import allowed, backward_calls
from dynadiag.fx.missing_operators import TRITON, MissingOperator, OperatorFacts
from dynadiag.fx.source_text import GraphSource, StackNote, annotation_text
from dynadiag.fx.values import Values, dotted_name, refused
from dynadiag.torch_compat.dispatch.operators import is_private_operator
from dynadiag.torch_compat.dispatch.writes import declared_schema

_DEFAULT_RANKS = 2


def group_sizes(module: GraphModule) -> dict[str, int]:
    """Ranks by group name; 2 where no argument tells."""
    found: dict[str, int] = {}
    for graph_module in module.modules():
        if isinstance(graph_module, GraphModule):
            for node in graph_module.graph.nodes:
                _collect(node, found)
    return {name: size or _DEFAULT_RANKS for name, size in found.items()}


def _collect(node: Node, found: dict[str, int]) -> None:
    schema = declared_schema(node.target)
    if schema is None:
        return
    arguments = {argument.name: node.args[i] for i, argument in enumerate(schema.arguments) if i < len(node.args)}
    arguments.update(node.kwargs)
    name = arguments.get("group_name")
    if isinstance(name, str):
        size = arguments.get("group_size")
        found[name] = max(found.get(name, 0), size if isinstance(size, int) and 0 < size < 65536 else 0)


_OPERATORS: Mapping[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_IN_PLACE: Mapping[type[ast.operator], Any] = {
    ast.Add: operator.iadd,
    ast.Sub: operator.isub,
    ast.Mult: operator.imul,
    ast.Div: operator.itruediv,
    ast.FloorDiv: operator.ifloordiv,
    ast.Mod: operator.imod,
    ast.Pow: operator.ipow,
    ast.MatMult: operator.imatmul,
    ast.LShift: operator.ilshift,
    ast.RShift: operator.irshift,
    ast.BitAnd: operator.iand,
    ast.BitOr: operator.ior,
    ast.BitXor: operator.ixor,
}
_MOVES_TO_DEVICE = frozenset({"cuda", "xpu", "mtia", "hpu"})
# Names that a module has of its own: a value from a log must not replace one.
_RESERVED = frozenset(dir(torch.fx.GraphModule)) | frozenset(vars(torch.nn.Module())) | {"graph"}
ANNOTATION = "dynadiag_annotation"
TARGET = "dynadiag_target"


@dataclass(slots=True)
class BuiltGraph:
    """An `fx.Graph` with what its annotations say of its inputs and of the attributes that it reads; sub graphs by attribute name."""

    graph: Graph
    placeholders: list[Node] = field(default_factory=list)
    attributes: list[Node] = field(default_factory=list)
    children: dict[str, BuiltGraph] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """`device` replaces every accelerator ("cpu"); operators of `extra_namespaces` are trusted, because the caller registered them.

    With `missing_operators`, an operator that is not here becomes a `MissingOperator`: such a graph can be followed, not run.
    """

    device: str | None = None
    extra_namespaces: frozenset[str] = frozenset()
    missing_operators: OperatorFacts | None = None


def build_graph(source: GraphSource, options: BuildOptions) -> BuiltGraph:
    """The graph with its sub graphs. Raises NotRebuildableError, saying exactly what cannot be rebuilt."""
    children = {name: build_graph(child, options) for name, child in source.children.items()}
    for name in children:
        _check_attribute_name(name)
    builder = _Builder(source, options, children)
    builder.build_nodes()
    return builder.built


class _Builder:
    """Reads the statements of one graph in order; one statement makes at most one node."""

    def __init__(self, source: GraphSource, options: BuildOptions, children: dict[str, BuiltGraph]) -> None:
        self._source = source
        self._options = options
        self._graph = Graph()
        self.built = BuiltGraph(self._graph, children=children)
        self._names: dict[str, Any] = {}
        self._values = Values(self._names, device=options.device, extra_namespaces=options.extra_namespaces)
        self._annotations = {parameter.name: parameter.annotation for parameter in source.parameters}
        self._note: StackNote | None = None
        self._annotation: str | None = None
        self._in_place_result: tuple[str, Node | None] = ("", None)

    def build_nodes(self) -> None:
        statements = list(self._source.statements)
        flattened = _flattened_inputs(statements)
        renames = _renames(statements, {parameter.name for parameter in self._source.parameters})
        for statement in statements:
            if isinstance(statement, ast.AnnAssign) and statement.value is None and isinstance(statement.target, ast.Name):
                self._annotations[statement.target.id] = annotation_text(statement.annotation)
        names = [parameter.name for parameter in self._source.parameters] if flattened is None else flattened
        for name in names:
            if self._annotations.get(name) == "list":
                self._list_input(name, renames.get(name, name), statements)
            else:
                self._placeholder(name, renames.get(name, name))
        for statement, following in zip(statements, [*statements[1:], None], strict=True):
            self._note = self._source.note(statement)
            if isinstance(statement, ast.AugAssign) and type(statement.op) in _IN_PLACE:
                self._in_place(statement, following)
            else:
                self._statement(statement)
        if not any(node.op == "output" for node in self._graph.nodes):
            raise NotRebuildableError("the text has no return statement: it is truncated")

    def _placeholder(self, name: str, node_name: str) -> None:
        node = self._graph.create_node("placeholder", name, (), {}, name=node_name)
        node.meta[ANNOTATION] = self._annotations.get(name)
        self._names[name] = self._names[node_name] = node
        self.built.placeholders.append(node)

    def _list_input(self, name: str, node_name: str, statements: list[ast.stmt]) -> None:
        """One input for each item, as AOTAutograd counts them (`flatten_graph_inputs`); the items that the graph reads are annotated."""
        said = backward_calls.item_annotations(statements)
        items = []
        for position, reader in enumerate(backward_calls.list_items((name, node_name), statements)):
            item = self._graph.create_node("placeholder", f"{name}{position}", (), {}, name=f"{node_name}{position}")
            item.meta[ANNOTATION] = annotation_text(said[reader]) if reader in said else "Sym(0)"
            items.append(item)
        self._names[name] = self._names[node_name] = items
        self.built.placeholders += items

    def _statement(self, statement: ast.stmt) -> None:
        self._annotation = None
        if isinstance(statement, ast.Return):
            self._output(statement.value)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if statement.value is not None:
                self._annotation = annotation_text(statement.annotation)
                self._assign(statement.target.id, statement.value)
        elif isinstance(statement, ast.Assign):
            self._assignment(statement)
        else:
            raise refused(statement)

    def _assignment(self, statement: ast.Assign) -> None:
        targets = statement.targets
        if isinstance(statement.value, ast.Constant) and statement.value.value is None and all(isinstance(t, ast.Name) for t in targets):
            return  # FX frees values after their last use: "x = y = None"
        if len(targets) != 1:
            raise refused(statement)
        target = targets[0]
        if isinstance(target, ast.Name):
            self._assign(target.id, statement.value)
        elif isinstance(target, ast.Subscript):
            key = self._values.make(target.slice)
            self._call(operator.setitem, (self._node(target.value), key, self._value(statement.value)))
        elif not (isinstance(target, ast.Tuple) and _is_flatten(statement.value)):
            raise refused(statement)

    def _in_place(self, statement: ast.AugAssign, following: ast.stmt | None) -> None:
        if not isinstance(statement.target, ast.Name):
            raise refused(statement)
        base = self._node(statement.target)
        name, value = backward_calls.assigned(following) if following is not None else (None, None)
        same = isinstance(value, ast.Name) and value.id == statement.target.id
        function, arguments = _IN_PLACE[type(statement.op)], (base, self._value(statement.value))
        self._annotation = annotation_text(following.annotation) if same and isinstance(following, ast.AnnAssign) else None
        node = self._call(function, arguments, name=name if same else None)
        # FX prints one node as two statements, "x += y;  iadd = x"; uses of x after it still mean the node x.
        self._in_place_result = (statement.target.id, node)

    def _assign(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Name) and value.id in self._names:
            written, node = self._in_place_result
            self._names[name] = node if written == value.id else self._names[value.id]
        else:
            self._names[name] = self._operation(name, value)
        self._in_place_result = ("", None)

    def _operation(self, name: str, value: ast.expr) -> Any:
        """The node (or plain value) that one right-hand side stands for."""
        if isinstance(value, ast.Call):
            return self._call_expression(name, value)
        if isinstance(value, ast.Attribute):
            return self._attribute(name, value)
        if isinstance(value, ast.Subscript):
            return self._item(name, self._node(value.value), self._values.make(value.slice), value)
        if isinstance(value, ast.BinOp) and type(value.op) in _OPERATORS and not _is_number(value):
            return self._call(_OPERATORS[type(value.op)], (self._value(value.left), self._value(value.right)), name=name)
        if isinstance(value, ast.UnaryOp) and type(value.op) in _OPERATORS and not _is_number(value):
            return self._call(_OPERATORS[type(value.op)], (self._value(value.operand),), name=name)
        if isinstance(value, ast.Compare) and len(value.ops) == 1 and type(value.ops[0]) in _OPERATORS:
            return self._call(_OPERATORS[type(value.ops[0])], (self._value(value.left), self._value(value.comparators[0])), name=name)
        return self._value(value)

    def _item(self, name: str, base: Any, key: Any, value: ast.Subscript) -> Any:
        if not isinstance(base, list):
            return self._call(operator.getitem, (base, key), name=name)
        if type(key) is not int or not -len(base) <= key < len(base):
            raise refused(value)
        return base[key]

    def _attribute(self, name: str, value: ast.Attribute) -> Any:
        path = _self_path(value)
        if path is not None:
            return self._get_attribute(name, path)
        root = dotted_name(value).split(".")[0]
        if root not in self._names:
            return self._values.make(value)
        return self._call(getattr, (self._node(value.value), allowed.attribute(value.attr)), name=name)

    def _get_attribute(self, name: str, path: tuple[str, ...]) -> Node:
        for part in path:
            _check_attribute_name(part)
        node = self._graph.create_node("get_attr", ".".join(path), (), {}, name=name)
        self._describe(node)
        if path[0] not in self.built.children:
            self.built.attributes.append(node)
        return node

    def _call_expression(self, name: str, call: ast.Call) -> Any:
        if isinstance(call.func, ast.Name) and call.func.id == "getattr":
            return self._getattr(name, call)
        path = _self_path(call.func)
        if path is not None:
            return self._call_module(name, path, call)
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id in self._names:
            return self._call_method(name, call.func, call)
        target = dotted_name(call.func)
        if target in ("device", "torch.device", "slice", "torch.Size", "complex"):
            return self._values.make(call)
        arguments, named = self._arguments(call)
        if target.startswith(backward_calls.PREFIX) and not named:
            results = backward_calls.expanded(target, arguments, self._call_plain_method)
            if results is not None:
                return results
        function = self._function(target)
        node = self._call(function, arguments, named, name=name)
        node.meta[TARGET] = target
        return node

    def _function(self, target: str) -> Any:
        try:
            return allowed.function(target, extra_namespaces=self._options.extra_namespaces)
        except NotRebuildableError:
            known = is_private_operator(target) or target == TRITON or target.startswith(backward_calls.OPERATORS)
            if self._options.missing_operators is None or not known:
                raise
            return MissingOperator(target, self._options.missing_operators)

    def _getattr(self, name: str, call: ast.Call) -> Any:
        path = _self_path(call)
        if path is not None:
            return self._get_attribute(name, path)
        arguments, named = self._arguments(call)
        if named or not 2 <= len(arguments) <= 3 or not isinstance(arguments[0], Node) or not isinstance(arguments[1], str):
            raise refused(call)
        return self._call(getattr, (arguments[0], allowed.attribute(arguments[1]), *arguments[2:]), name=name)

    def _call_module(self, name: str, path: tuple[str, ...], call: ast.Call) -> Node:
        if len(path) != 1 or path[0] not in self.built.children:
            raise NotRebuildableError(f"it calls the module `self.{shorten('.'.join(path), 80)}`, whose code is not in the graph's text")
        arguments, named = self._arguments(call)
        node = self._graph.create_node("call_module", path[0], arguments, named, name=name)
        self._describe(node)
        return node

    def _call_method(self, name: str, function: ast.Attribute, call: ast.Call) -> Node:
        arguments, named = self._arguments(call)
        method = allowed.method(function.attr)
        if self._options.device is not None and method in _MOVES_TO_DEVICE:
            method, arguments, named = "to", (self._options.device,), {}
        node = self._graph.create_node("call_method", method, (self._node(function.value), *arguments), named, name=name)
        self._describe(node)
        return node

    def _call_plain_method(self, method: str, arguments: tuple[Any, ...]) -> Node:
        node = self._graph.create_node("call_method", method, arguments)
        self._describe(node)
        return node

    def _arguments(self, call: ast.Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if any(keyword.arg is None for keyword in call.keywords):
            raise refused(call)
        named = {keyword.arg: self._value(keyword.value) for keyword in call.keywords if keyword.arg is not None}
        return tuple(self._value(argument) for argument in call.args), named

    def _call(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any] | None = None, *, name: str | None = None) -> Node:
        node = self._graph.create_node("call_function", function, arguments, named or {}, name=name)
        self._describe(node)
        return node

    def _describe(self, node: Node) -> None:
        node.meta[ANNOTATION] = self._annotation
        if self._note is not None:
            node.meta["stack_trace"] = self._note.stack_trace

    def _value(self, node: ast.expr) -> Any:
        return self._values.make(node)

    def _node(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._names[node.id]
        raise refused(node)

    def _output(self, value: ast.expr | None) -> None:
        if value is None:
            raise NotRebuildableError("it returns nothing, which FX never prints")
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "pytree.tree_unflatten" and len(value.args) == 2:
            value = value.args[0]
        self._graph.create_node("output", "output", (self._value(value),), {}, name="output")


def _is_number(value: ast.expr) -> bool:
    """Whether the expression is a printed number ("-1", "(1+2j)") and no operation on nodes."""
    if isinstance(value, ast.UnaryOp):
        return isinstance(value.op, ast.USub) and _is_number(value.operand)
    if isinstance(value, ast.BinOp):
        complex_part = isinstance(value.right, ast.Constant) and isinstance(value.right.value, complex)
        return complex_part and isinstance(value.op, (ast.Add, ast.Sub)) and _is_number(value.left)
    return isinstance(value, ast.Constant)


def _is_flatten(value: ast.expr) -> bool:
    """`fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)`, as FX prints at the start of a joint graph."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "fx_pytree.tree_flatten_spec"


def _flattened_inputs(statements: list[ast.stmt]) -> list[str] | None:
    """Names of the inputs when the graph takes them in containers; None when the arguments of `forward` are the inputs."""
    for statement in statements:
        if isinstance(statement, ast.Assign) and _is_flatten(statement.value) and isinstance(statement.targets[0], ast.Tuple):
            names = [item.id for item in statement.targets[0].elts if isinstance(item, ast.Name)]
            if len(names) == len(statement.targets[0].elts):
                return names
    return None


def _renames(statements: list[ast.stmt], parameters: set[str]) -> dict[str, str]:
    """Placeholders whose node has another name than the argument: "l_x_ = L_x_"."""
    found: dict[str, str] = {}
    for statement in statements:
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            continue
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Name) and isinstance(value, ast.Name) and value.id in parameters:
            found.setdefault(value.id, target.id)
    return found


def _self_path(node: ast.expr) -> tuple[str, ...] | None:
    """("a", "0") for `self.a` or `getattr(self.a, "0")`; None when the expression does not start at self."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) == 2:
            key = node.args[1]
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                return None
            parts.append(key.value)
            node = node.args[0]
        else:
            break
    if not parts or not isinstance(node, ast.Name) or node.id != "self":
        return None
    return tuple(reversed(parts))


def _check_attribute_name(name: str) -> None:
    """Refuse names that would replace something of a module, or that are no plain word."""
    if not name.replace("_", "a").isalnum() or name.startswith("__") or name in _RESERVED:
        raise NotRebuildableError(f"it reads the attribute `self.{shorten(name, 80)}`, which is not the name of a captured value")
