"""What a function reads above a broken line and writes into behind it.

The break keeps the two in different graphs. In one graph torch's backward pass may take what was read anew from the input, which then has
the values that were written: gradients were wrong without a word, with a number that is read (`item()`), with a copy (`clone()`) and,
under Inductor, with a sum (torch 2.11 and 2.15, aot_eager and Inductor).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from dynadiag.changes.break_context import BreakContext
from dynadiag.source.function import FunctionText
from dynadiag.source.line import dotted
from dynadiag.source.memory import is_new
from dynadiag.source.place import Place
from dynadiag.source.torch_names import PROPERTIES
from dynadiag.source.tree import holds, nodes_in

_MOST_CALLS = 3


def read_then_written(context: BreakContext) -> str | None:
    """The tensor that is read up to the line of the break and written behind it, by the functions on the stack; None where there is none,
    or no gradient flows.
    """
    place = context.place
    if place is None or place.no_history:
        return None
    places = (place, *(caller for caller in context.callers if caller.node is not place.node))
    written = {name for item in places for name in _written(item, context.functions)}
    return next((name for element in places for name in _read(element) if name in written), None)


def _read(place: Place) -> Iterator[str]:
    """The names of what the function reads up to the end of the row's statement, and in a loop around it."""
    own = place.statement()
    last = place.row if own is None else own.end_lineno or place.row
    for node in place.up_to(last):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and (name := dotted(node)) is not None:
            parent = place.parent(node)
            method = parent.attr if isinstance(parent, ast.Attribute) else ""
            if method not in PROPERTIES and not _is_in_place(method):
                yield name


def _written(place: Place, functions: Mapping[str, FunctionText], depth: int = 0) -> Iterator[str]:
    """The names of what the function writes into from the row on, other than tensors that it made itself; what it calls of `functions`,
    the user's by their names, counts as well.
    """
    for node in (*nodes_in(place.statement()), *place.behind()):
        target = _target(place, node)
        name = None if target is None else dotted(target)
        if target is not None and name is not None and not (place.is_local(name) and is_new(place, target)):
            yield name
        if isinstance(node, ast.Call) and depth < _MOST_CALLS:
            yield from _written_by(node, functions, depth)


def _written_by(call: ast.Call, functions: Mapping[str, FunctionText], depth: int) -> Iterator[str]:
    """The names, as the caller has them, of what a function of the user's writes into: its arguments, and what its object holds."""
    owner, _, last = (dotted(call.func) or "").rpartition(".")
    function = functions[last].parsed() if owner in ("", "self") and last in functions else None
    if function is None:
        return
    inner = Place(function.node, function.code, imports=function.imports, row=function.node.lineno)
    given = dict(zip(function.parameters, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg is not None}
    for name in _written(inner, functions, depth + 1):
        passed = dotted(given[name]) if name in given else name if owner == "self" and name.startswith("self.") else None
        if passed is not None:
            yield passed


def _target(place: Place, node: ast.AST) -> ast.expr | None:
    """The tensor that the node writes into in place."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_in_place(node.func.attr):
        return _base(node.func.value)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name | ast.Attribute):
        return node.target if place.is_tensor(node.target) else None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        base = _base(node)
        cut = holds(node.slice, ast.Slice, ast.Tuple)
        return base if cut or place.is_tensor(base) else None
    return None


def _base(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _is_in_place(method: str) -> bool:
    return method.endswith("_") and not method.startswith("_") and method != "requires_grad_"
