"""Numbers read out of tensors for a function of Python's `math`, which reads a tensor again: torch's own function takes its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dynadiag.advice.break_context import BreakContext, rewrite
from dynadiag.advice.conditions import tensor_of
from dynadiag.advice.places import Place
from dynadiag.advice.source import SourceLine, dotted
from dynadiag.model.report import Advice

# What `math` and torch compute alike, from one number to one number.
_MATH = frozenset(
    ("exp", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "erf")
)
_TEXT = "Compute on the tensor with torch instead of math: every use computes with it (`detach()` because a number carries no gradient)"


def math_function(call: ast.Call) -> str | None:
    """The torch function that computes what a call of `math` computes, or None; `math.ceil` and its kin give integers."""
    name = dotted(call.func) or ""
    return name[5:] if name.startswith("math.") and name[5:] in _MATH and len(call.args) == 1 else None


def detached(inner: str) -> str:
    """The tensor without its gradient, as a number has none."""
    return inner if ".detach()" in inner else f"{inner}.detach()"


def of_math(line: SourceLine, read: ast.AST) -> ast.Call | None:
    """The call of `math` that the read is the argument of, alone or as a part of arithmetic."""
    node = read
    while isinstance(parent := line.parent(node), ast.BinOp | ast.UnaryOp):
        node = parent
    return parent if isinstance(parent, ast.Call) and node in parent.args and math_function(parent) is not None else None


def computed_with_torch(context: BreakContext, reads: Sequence[ast.Call], calls: Sequence[ast.Call]) -> Iterator[Advice]:
    """`math.exp(-t.item())` as `torch.exp(-t.detach())`."""
    line = context.line
    changes: list[tuple[ast.AST, str]] = [(call.func, f"torch.{math_function(call)}") for call in {id(one): one for one in calls}.values()]
    changes += [(one, detached(tensor_of(line, one))) for one in reads]
    yield from rewrite(context, "item-math", line.replaced_all(changes), _TEXT)


def math_call(context: BreakContext, place: Place) -> Iterator[Advice]:
    """`math.sqrt(t)` of a tensor as `torch.sqrt(t.detach())`."""
    line = context.line
    for node in line.nodes:
        if isinstance(node, ast.Call) and (function := math_function(node)) is not None:
            call = place.at(line, node)
            argument = place.at(line, node.args[0])
            if call is not None and argument is not None and place.is_tensor(argument) and place.tensor_serves(call):
                text = line.text(node.args[0])
                simple = isinstance(argument, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
                after = line.replaced(node, f"torch.{function}({detached(text if simple else f'({text})')})")
                yield from rewrite(context, "item-math", after, _TEXT)
            return
