"""What the code behind a break counts or collects: without the break it is in the graph, which is compiled anew when a count changes."""

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
from dynadiag.source.place import Place
from dynadiag.source.tree import nodes_in

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
            known = functions.get(node.value.func.attr)  # of node that was not compiled nothing is known
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
