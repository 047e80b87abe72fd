"""Where a line reads numbers out of tensors."""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from dynadiag.source.line import SourceLine, dotted

DRAWN = "Python's random numbers are not known while the code is traced, and torch draws different ones"
_CASTS = ("float", "int", "bool")


def is_item(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether the node is a call of `.item()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args


def scalar_calls(line: SourceLine) -> list[ast.Call]:
    """All reads on the line: calls of `.item()`, or, where there is none, the first cast of something that is no constant."""
    casts = [call for call in line.calls(*_CASTS) if len(call.args) == 1 and not isinstance(call.args[0], ast.Constant)]
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
