"""Where a line reads numbers out of tensors."""

from __future__ import annotations

import ast
from typing import TypeGuard

from dynadiag.advice.source import SourceLine

TAKE_BACK = "take the option back if compilation then raises"
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
