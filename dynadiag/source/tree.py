"""Questions to a part of a syntax tree: which nodes of a kind it holds, what it calls, names, stores and mentions.

Nodes come in the order of `ast.walk`, the part itself first; `None` holds nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from typing import TypeVar

from dynadiag.source.line import dotted

_Node = TypeVar("_Node", bound=ast.AST)


def nodes_in(*parts: ast.AST | None) -> Iterator[ast.AST]:
    """All nodes of these parts."""
    for part in parts:
        if part is not None:
            yield from ast.walk(part)


def nodes_of(kind: type[_Node], *parts: ast.AST | None) -> Iterator[_Node]:
    """The nodes of one kind in these parts."""
    return (node for node in nodes_in(*parts) if isinstance(node, kind))


def ids_in(*parts: ast.AST | None) -> frozenset[int]:
    """The identities of all nodes in these parts: to ask whether another node is one of them."""
    return frozenset(id(node) for node in nodes_in(*parts))


def holds(part: ast.AST | None, *kinds: type[ast.AST]) -> bool:
    """Whether a node of one of these kinds is in the part."""
    return any(isinstance(node, kinds) for node in nodes_in(part))


def calls_in(*parts: ast.AST | None) -> Iterator[ast.Call]:
    """The calls in these parts."""
    return nodes_of(ast.Call, *parts)


def called_name(call: ast.Call) -> str:
    """The last part of the name that is called: `sum` of `x.sum()` and of `sum(x)`; empty where something else is called."""
    return call.func.id if isinstance(call.func, ast.Name) else called_method(call)


def called_method(node: ast.AST | None) -> str:
    """The attribute that a call calls: `sum` of `x.sum()`; empty for every other node."""
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def names_in(*parts: ast.AST | None) -> set[str]:
    """The plain names in these parts, read or bound: `x` of `x.y`."""
    return {node.id for node in nodes_of(ast.Name, *parts)}


def reads_in(*parts: ast.AST | None) -> set[str]:
    """The plain names that these parts read."""
    return {node.id for node in nodes_of(ast.Name, *parts) if isinstance(node.ctx, ast.Load)}


def mentions(names: Container[str], *parts: ast.AST | None) -> bool:
    """Whether one of these names, plain or dotted, is in the parts."""
    return any(isinstance(node, ast.Name | ast.Attribute) and dotted(node) in names for node in nodes_in(*parts))


def parameters_of(node: ast.AST) -> set[str]:
    """The names of all arguments of the functions and lambdas in the part."""
    return {argument.arg for argument in nodes_of(ast.arg, node)}


def parents_in(*parts: ast.AST | None) -> dict[ast.AST, ast.AST]:
    """The node that holds each node of these parts, but for the parts themselves."""
    return {child: parent for parent in nodes_in(*parts) for child in ast.iter_child_nodes(parent)}


def children_of(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that a node holds itself, in the order of the text."""
    return ast.iter_child_nodes(node)


def written_names(nodes: Iterable[ast.AST | None]) -> set[str]:
    """The names and attributes that get another value in these nodes; of `x[i] = y` the name of the container."""
    found: set[str] = set()
    for node in nodes_in(*nodes):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            name = dotted(node.value if isinstance(node, ast.Subscript) else node)
            found.update(() if name is None else (name,))
    return found
