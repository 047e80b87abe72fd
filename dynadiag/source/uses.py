"""Where values end in Python: numbers read out of tensors, and sizes and numbers whose value Python needs.

Where Python needs it, each value is compiled on its own, or not at all, whatever torch makes dynamic: `range(n)` and a text of `n` compile
each value (torch 2.11 and 2.15); `divmod(n, p)` of a symbol raises in Dynamo, and nothing is compiled.
"""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from dynadiag.source.function import Function
from dynadiag.source.line import SourceLine, dotted, root_of
from dynadiag.source.python_names import CASTS, KEEPS_SYMBOL, NEEDS_VALUE
from dynadiag.source.torch_names import is_torch_function

_MOST_STEPS = 6


def python_needs(function: Function, source: str) -> bool:
    """Whether the function may need the value of `source`: `x.size(0)` stands for all sizes of its tensors, `n` for this number."""
    node = function.node
    sizes = ".size(" in source
    names = {source.partition(".")[0]} if sizes else {source}
    known = set() if sizes else {source}
    for _ in range(_MOST_STEPS):
        more = {name for child in ast.walk(node) for name in _bound(child, known, sizes=sizes)}
        if more <= known:
            break
        known |= more
    return any(
        _needs(descendant, known, names if sizes else set(), sizes=sizes) for statement in node.body for descendant in ast.walk(statement)
    )


def _bound(node: ast.AST, known: set[str], *, sizes: bool) -> list[str]:
    """The names that a statement gives a value made from a size."""
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.NamedExpr) or not _mentions(node.value, known, sizes=sizes):
        return []
    if _gives_tensor(node.value):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [child.id for target in targets for child in ast.walk(target) if isinstance(child, ast.Name)]


def _gives_tensor(node: ast.expr) -> bool:
    """Whether the value surely is what torch computed, not a number: a call of torch, or a method that is no question for a size."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr not in ("size", "dim", "numel", "index", "count", "item", "bit_length") and root_of(node.func) != "math"


def _mentions(node: ast.AST, known: set[str], *, sizes: bool) -> bool:
    for child in ast.walk(node):
        if isinstance(child, ast.Name | ast.Attribute) and dotted(child) in known:
            return True
        if sizes and (
            (isinstance(child, ast.Attribute) and child.attr in ("shape", "size"))
            or (isinstance(child, ast.Call) and dotted(child.func) == "len")
        ):
            return True
    return False


def _needs(node: ast.AST, known: set[str], tensors: set[str], *, sizes: bool) -> bool:
    if isinstance(node, ast.For | ast.comprehension):
        return dotted(node.iter) in tensors | known  # a tensor is unrolled row by row
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left)):
        return _mentions(node, known, sizes=sizes)
    if isinstance(node, ast.Subscript):  # `cache[n]`, not `x[:n]`
        return not any(isinstance(child, ast.Slice | ast.Tuple) for child in ast.walk(node.slice)) and _mentions(
            node.slice, known, sizes=sizes
        )
    if not isinstance(node, ast.Call) or not any(_mentions(argument, known, sizes=sizes) for argument in (*node.args, *node.keywords)):
        return False
    name = dotted(node.func) or ""
    if name in NEEDS_VALUE:
        return True
    if name in KEEPS_SYMBOL or is_torch_function(name):
        return False
    return not isinstance(node.func, ast.Attribute) or name.partition(".")[0] in ("self", "math", "numpy")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_item(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether the node is a call of `.item()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args


def scalar_calls(line: SourceLine) -> list[ast.Call]:
    """All reads on the line: calls of `.item()`, or, where there is none, the first cast of something that is no constant."""
    casts = [call for call in line.calls(*CASTS) if len(call.args) == 1 and not isinstance(call.args[0], ast.Constant)]
    around = {id(call.args[0]): call for call in casts}
    methods = [around.get(id(call), call) for call in line.methods("item") if not call.args]
    return methods or casts[:1]


def in_hook(line: SourceLine, read: ast.AST) -> bool:
    """Whether the read is in a lambda that the line registers as a hook: what such a lambda returns takes the place of a gradient."""
    around = _around(line, read, ast.Lambda)
    call = None if around is None else line.parent(around)
    return isinstance(call, ast.Call) and re.search(r"(^|[._])register_\w*hook$", dotted(call.func) or "") is not None


def _around(line: SourceLine, node: ast.AST | None, kind: type[ast.AST]) -> ast.AST | None:
    while node is not None and not isinstance(node, kind):
        node = line.parent(node)
    return node


def draws(line: SourceLine) -> bool:
    """Whether the line draws a random number with Python or NumPy."""
    return re.search(r"(?<!torch\.)\brandom\.\w", line.code) is not None
