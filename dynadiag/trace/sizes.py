"""Symbolic sizes ("2*s0", "(s1//2)", "Max(1, s0)") evaluated for chosen symbol values, by walking the syntax tree. No torch, no eval.

The function names are those of torch/utils/_sympy/functions.py (2.11 and 2.15) that its printer uses.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from dynadiag.errors import NotRebuildableError, shorten

if TYPE_CHECKING:
    Number = int | float | bool
_LARGEST_EXPONENT = 64
_LONGEST = 2000
_LARGEST_SIZE = 2**40

_BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _ceil_divide(left: Number, right: Number) -> Number:
    return -((-left) // right)


def _modular_index(base: Number, divisor: Number, modulus: Number) -> Number:
    return (base // divisor) % modulus


_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": _ceil_divide,
    "ModularIndexing": _modular_index,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": float,
    "TruncToInt": math.trunc,
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "RoundToInt": round,
    "Abs": abs,
    "Eq": operator.eq,
    "Ne": operator.ne,
    "Lt": operator.lt,
    "Le": operator.le,
    "Gt": operator.gt,
    "Ge": operator.ge,
    "And": lambda *parts: all(parts),
    "Or": lambda *parts: any(parts),
    "Not": operator.not_,
    "Identity": operator.pos,
    "OpaqueUnaryFn_sqrt": math.sqrt,
    "floor": math.floor,
    "ceiling": math.ceil,
}


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise NotRebuildableError(f"the size {shorten(text, 60)} is too long")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotRebuildableError(f"the size {shorten(text, 60)} is not an expression") from None


def symbols_of(text: str) -> tuple[str, ...]:
    """The symbols in an expression, in order of appearance."""
    called = {id(node.func) for node in ast.walk(_parse(text)) if isinstance(node, ast.Call)}
    names = [node.id for node in ast.walk(_parse(text)) if isinstance(node, ast.Name) and id(node) not in called]
    return tuple(dict.fromkeys(names))


def evaluate(text: str, values: Mapping[str, Number]) -> Number:
    """The value of the expression. Raises NotRebuildableError for an unknown symbol or anything that is no size."""
    try:
        return _evaluate(_parse(text), values)
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise NotRebuildableError(f"the size {shorten(text, 60)} has no value: {shorten(str(error), 60)}") from None


def whole(text: str, values: Mapping[str, Number]) -> int:
    """The value of the expression as a size or stride. Raises NotRebuildableError where it is not whole, negative or absurdly large."""
    value = evaluate(text, values)
    if not 0 <= value <= _LARGEST_SIZE or value != int(value):
        raise NotRebuildableError(f"the size {shorten(text, 60)} is {shorten(str(value), 40)}")
    return int(value)


def _evaluate(node: ast.expr, values: Mapping[str, Number]) -> Number:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, bool)):
        return node.value
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        inner = _evaluate(node.operand, values)
        return -inner if isinstance(node.op, ast.USub) else not inner
    if isinstance(node, ast.BinOp):
        return _binary(node, values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return _COMPARE[type(node.ops[0])](_evaluate(node.left, values), _evaluate(node.comparators[0], values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords:
        return _FUNCTIONS[node.func.id](*(_evaluate(argument, values) for argument in node.args))
    raise ValueError(f"{shorten(ast.unparse(node), 40)} is not known")


def _binary(node: ast.BinOp, values: Mapping[str, Number]) -> Number:
    left, right = _evaluate(node.left, values), _evaluate(node.right, values)
    if isinstance(node.op, ast.Pow):
        if not isinstance(right, int) or abs(right) > _LARGEST_EXPONENT or abs(left) > 2**32:
            raise ValueError("the exponent is too large")
        return _as_number(left**right)
    if isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        return bool(left and right) if isinstance(node.op, ast.BitAnd) else bool(left or right)
    function = _BINARY.get(type(node.op))
    if function is None:
        raise ValueError("the operator is not known")
    return function(left, right)


def _as_number(value: object) -> Number:
    if isinstance(value, (int, float)):
        return value
    raise ValueError("the value is not a number")


def solve(equations: Iterable[tuple[str, int]]) -> dict[str, Number]:
    """Symbol values that follow from known sizes: a lone symbol gives its value at once ("s0" = 8)."""
    return {text.strip(): value for text, value in equations if text.strip().isidentifier()}
