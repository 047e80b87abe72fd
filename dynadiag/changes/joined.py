"""What one graph would join: what a function reads above a broken line and writes into behind it, and what it counts there.

The break keeps the two in different graphs. In one graph torch's backward pass may take what was read anew from the input, which then has
the values that were written: gradients were wrong without a word, with a number that is read (`item()`), with a copy (`clone()`) and,
under Inductor, with a sum (torch 2.11 and 2.15, aot_eager and Inductor).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from dynadiag.changes.break_context import BreakContext
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.run import Run
from dynadiag.source.changed_objects import changed_objects
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


# Modules, loggers and what breaks by itself: nothing of theirs is counted by a graph.
_APART = re.compile(
    r"(?:torch|np|numpy|F|nn|math|time|warnings|logging|sys|os|gc|dist|wandb|writer|(?:\w+\.)*_?log(?:ger|ging)?)\.|"
    r".*\.(?:backward|step|zero_grad|save_for_backward|manual_seed|synchronize|barrier|flush|debug|info|warning|error)$"
)
_CHANGES = re.compile(r"[-+]=|\.(?:append|extend|insert|add|update|pop\w*)\(")


def counted_behind(context: BreakContext, run: Run) -> str | None:
    """Why the function may be compiled again for each count of a line behind the break that counts or collects; None where there is none.

    `st.steps += 1` behind a print went from no recompile to the limit: behind the break no tensor was computed, so Python ran it
    uncompiled. In a called function `cut.count += 1` went from 3 recompiles to the limit: in its resume function the owner is an
    argument, whose numbers become dynamic, and in one graph it is reached through a global (both 2.11 and 2.15).
    """
    for text in () if context.place is None else _counts(context.place, context.functions):
        if text not in _compiled_lines(run):
            return f"`{text}` may run uncompiled behind this break; without it each count may be compiled separately"
        if not context.returns:
            return f"`{text}` counts for a caller; without this break torch may keep the number constant and compile each count separately"
    return None


def _counts(place: Place, functions: Mapping[str, FunctionText]) -> Iterator[str]:
    """The statements behind the row that add a number to what outlives the call, or call a method of it for what it does."""
    for node in place.behind():
        added = _added(node)
        if added is not None and _is_number(added[1]) and _outlives(place, added[0]):
            yield place.text(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            name = dotted(node.value.func)
            known = functions.get(node.value.func.attr)  # nothing is known of a function that was not compiled
            counts = known is None or _CHANGES.search(known.text) is not None
            if name is not None and counts and not name.endswith("_") and not _APART.match(name) and _outlives(place, node.value.func):
                yield place.text(node)


def _added(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """What `n += 1` and `n = n + 1` count in, and by how much."""
    if isinstance(node, ast.AugAssign):
        return node.target, node.value
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and ast.unparse(node.value.left) == ast.unparse(node.targets[0]):
        return node.targets[0], node.value.right
    return None


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or any(
        (isinstance(child, ast.Attribute) and child.attr in ("shape", "size", "numel", "ndim"))
        or (isinstance(child, ast.Call) and dotted(child.func) == "len")
        for child in nodes_in(node)
    )


def _outlives(place: Place, target: ast.expr) -> bool:
    """Whether the target is a name of another scope, or belongs to an object that the function has not made."""
    root = target
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    return (
        isinstance(root, ast.Name)
        and not place.is_local(root.id)
        and not place.is_tensor(target)
        and (root is not target or _shared(place, root.id))
    )


def _shared(place: Place, name: str) -> bool:
    return name in place.index.shared


@of_last_run
def _compiled_lines(run: Run) -> frozenset[str]:
    """The lines by which compiled code changes an object."""
    return frozenset(line.strip() for changes in changed_objects(run).values() for _, line in changes)
