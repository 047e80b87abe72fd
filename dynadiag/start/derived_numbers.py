"""Numbers that a program computes from another number that changed: `1 - MOMENTUM` follows from MOMENTUM and is no cause of its own."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dynadiag.start.result import Cause

_MOST_EXPRESSIONS = 20_000
_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,
}
_CALLED: Mapping[str, Callable[[float], float]] = {"sqrt": math.sqrt, "exp": math.exp, "log": math.log, "float": float, "int": math.trunc}


def apart_from_derived(causes: Sequence[Cause], trees: Iterable[ast.AST]) -> list[Cause]:
    """The causes without each number that an expression of the program makes of another of these numbers, in both starts.

    `trees` are the program's files; the recorded line of each number is looked at too.
    """
    numbers = {cause: pair for cause in causes if cause.kind == "constant" and (pair := _values(cause)) is not None}
    if len(numbers) < 2:
        return list(causes)
    lines = [tree for cause in numbers if (tree := _line_of(cause)) is not None]
    expressions = list(_expressions([*lines, *trees]))
    roots = dict(numbers)
    # 0.9 is as well 1 - 0.09999999999999998: what was computed has more digits.
    for cause, pair in sorted(numbers.items(), key=lambda item: -len(f"{item[0].old}{item[0].new}")):
        others = [other for known, other in roots.items() if known is not cause]
        if any(_gives(node, *other, *pair) for node in expressions for other in others):
            del roots[cause]
    return [cause for cause in causes if cause not in numbers or cause in roots]


def _values(cause: Cause) -> tuple[float, float] | None:
    try:
        return float(cause.old or ""), float(cause.new or "")
    except ValueError:
        return None


def _line_of(cause: Cause) -> ast.AST | None:
    """The line alone, where it is a statement of its own."""
    try:
        return ast.parse((cause.place.source or "").strip()) if cause.place is not None else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _expressions(trees: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """The arithmetic on one name, such as `1 - self.momentum`."""
    count = 0
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Call)) and len(set(_names(node))) == 1:
                count += 1
                if count > _MOST_EXPRESSIONS:
                    return
                yield node


def _names(node: ast.expr) -> Iterator[str]:
    """The names that an expression reads, or a mark for what is no arithmetic."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield ast.dump(node)
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        yield from _names(node.left)
        yield from _names(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from _names(node.operand)
    elif isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords and _called(node) in _CALLED:
        yield from _names(node.args[0])
    elif not (isinstance(node, ast.Constant) and isinstance(node.value, (int, float))):
        yield from ("", " ")


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def _gives(node: ast.expr, old: float, new: float, wanted_old: float, wanted_new: float) -> bool:
    """Whether an expression makes the wanted numbers of these."""
    try:
        return _value(node, old) == wanted_old and _value(node, new) == wanted_new
    except (ArithmeticError, ValueError, TypeError):
        return False


def _value(node: ast.expr, name: float) -> float:
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, name), _value(node.right, name))
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, name)
    if isinstance(node, ast.Call):
        return _CALLED[_called(node)](_value(node.args[0], name))
    return float(node.value) if isinstance(node, ast.Constant) else name  # type: ignore[arg-type]  # a number, by `_names`
