"""Which tensors of a function something else may have too: a choice by `torch.where` gives a new tensor where the program kept that one."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dynadiag.source.line import dotted
from dynadiag.source.place import Place
from dynadiag.source.torch_names import (
    ELEMENTWISE,
    HOST_READS,
    NEW_MEMORY,
    ON_CONTAINERS,
    PROPERTIES,
    REDUCTIONS,
    SHARED_MEMORY,
    TENSOR_METHODS,
    torch_function,
)
from dynadiag.source.tree import called_method

_NEW_BY_METHOD = (TENSOR_METHODS | ELEMENTWISE | REDUCTIONS) & NEW_MEMORY - ON_CONTAINERS
_NUMBERS_BY_METHOD = (HOST_READS | PROPERTIES) - SHARED_MEMORY
_MOST_STEPS = 6


def is_new(place: Place, node: ast.expr, steps: int = 0) -> bool:
    """Whether the value surely is a tensor that nothing else has, or no tensor at all."""
    if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.Constant):
        return True
    if isinstance(node, ast.IfExp):
        return is_new(place, node.body, steps) and is_new(place, node.orelse, steps)
    if isinstance(node, ast.Call):
        return _computes(node)
    if not isinstance(node, ast.Name) or steps > _MOST_STEPS or not place.is_assigned(node.id):
        return False
    return all(is_new(place, expression, steps + 1) for expression in place.values(node.id)) and not has_other_name(place, node.id)


def has_other_name(place: Place, name: str) -> bool:
    """Whether something got the tensor, or a view of it, up to the row: another name, a list, a function that is not torch's."""
    behind = {id(node) for node in place.behind()}
    loop = place.inside(ast.For, ast.While)
    return any(goes_on(place, read, named=True) for read in place.reads(name) if loop or id(read) not in behind)


def goes_on(place: Place, node: ast.expr, seen: frozenset[str] = frozenset(), *, named: bool = False) -> bool:
    """Whether what is read here, or a view of it, is kept, returned or passed on, and not only computed with.

    With `named` a name counts that is only computed with.
    """
    top: ast.AST = node
    while (parent := place.parent(top)) is not None:
        if isinstance(parent, ast.BinOp | ast.UnaryOp | ast.Compare | ast.AugAssign | ast.Expr | ast.If | ast.While | ast.Assert):
            return False
        if isinstance(parent, ast.Call):
            if _computes(parent):
                return False
            if parent.func is not top and torch_function(dotted(parent.func)) not in SHARED_MEMORY:
                return True
        elif isinstance(parent, ast.IfExp) and parent.test is top:
            return False
        elif not isinstance(parent, ast.Attribute | ast.Subscript | ast.Tuple | ast.List | ast.Starred | ast.keyword | ast.IfExp):
            return not (isinstance(parent, ast.Assign) and top is not parent.value) and (named or _kept(place, parent, seen))
        top = parent
    return True


def _kept(place: Place, statement: ast.AST, seen: frozenset[str]) -> bool:
    """Whether a statement that gets the tensor keeps it: a plain name does not if all that becomes of it is arithmetic."""
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    (name,) = {target.id if isinstance(target, ast.Name) else None for target in targets} if len(targets) == 1 else (None,)
    if name is None or name in seen or len(seen) > _MOST_STEPS or not place.is_local(name):
        return True
    return any(goes_on(place, read, seen | {name}) for read in place.reads(name))


def reads_of_this(place: Place, statement: ast.stmt, name: str) -> list[ast.expr]:
    """Where the function may read what the name has behind the statement: up to the next statement that gives it another value."""
    found: list[ast.AST] = []
    inner: ast.AST | None = statement
    while inner is not None and inner is not place.node:
        parent = place.parent(inner)
        block = next((body for body in _blocks(parent) if inner in body), [])
        for node in block[block.index(inner) + 1 :] if inner in block else ():
            found.append(node)
            if isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == name for each in node.targets):
                return _reads_in(place, found, name)
        found += [parent] if isinstance(parent, ast.For | ast.While) else []
        inner = parent
    return _reads_in(place, found, name)


def _blocks(node: ast.AST | None) -> list[list[ast.AST]]:
    found = (getattr(node, literal, None) for literal in ("body", "orelse", "finalbody"))
    return [item for item in found if isinstance(item, list)]


def _reads_in(place: Place, nodes: Iterable[ast.AST], name: str) -> list[ast.expr]:
    inside = {id(child) for node in nodes for child in ast.walk(node)}
    return [read for read in place.reads(name) if id(read) in inside]


def kept_elsewhere(place: Place, values: Iterable[ast.expr], uses: Iterable[ast.expr]) -> ast.expr | None:
    """The first of these values that is not new and goes on in one of the uses, so that a new tensor may not take its place."""
    old = next((value for value in values if not is_new(place, value)), None)
    return old if old is not None and any(goes_on(place, use) for use in uses) else None


def _computes(call: ast.Call) -> bool:
    """Whether the call surely gives a new tensor, or a number."""
    name = dotted(call.func) or ""
    if any(one.arg in ("out", "inplace") for one in call.keywords):
        return False
    if (function := torch_function(name)) is not None:
        return function in NEW_MEMORY
    method = called_method(call)
    return name in ("float", "int", "bool", "len") or method in _NEW_BY_METHOD | _NUMBERS_BY_METHOD
