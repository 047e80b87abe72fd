"""Whether a line uses a number in arithmetic only, so that a tensor can take its place."""

from __future__ import annotations

import ast

from dynadiag.advice.source import SourceLine

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)


def used_in_arithmetic(line: SourceLine, name: str) -> bool:
    """True if the line names `name`, and each time as an operand of arithmetic with something else than numbers.

    What the arithmetic makes must be assigned, returned or have a method called on it: an argument of another call may have to be a number.
    """
    named = [node for node in line.nodes if isinstance(node, ast.Name | ast.Attribute) and line.text(node) == name]
    return bool(named) and all(_is_operand(line, node) for node in named)


def _is_operand(line: SourceLine, node: ast.AST) -> bool:
    top, others = node, 0
    while isinstance(parent := line.parent(top), ast.BinOp) and isinstance(parent.op, _OPERATORS):
        other = parent.right if parent.left is top else parent.left
        others += not all(isinstance(one, ast.Constant | ast.UnaryOp | ast.BinOp | ast.operator | ast.unaryop) for one in ast.walk(other))
        top = parent
    if not others:
        return isinstance(parent, ast.AugAssign) and parent.value is top and isinstance(parent.op, _OPERATORS)
    if isinstance(parent, ast.Attribute):
        call = line.parent(parent)
        return isinstance(call, ast.Call) and call.func is parent
    return isinstance(parent, ast.Assign | ast.AugAssign | ast.Return | ast.AnnAssign)
