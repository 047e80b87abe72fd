"""Numbers read out of tensors for a function of Python's `math`, which reads a tensor again: torch's own function takes its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dynadiag.changes.break_context import BreakContext, rewrite
from dynadiag.changes.condition import tensor_of
from dynadiag.model.report import Advice
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.place import Place
from dynadiag.source.torch_names import INFINITE_GRADIENT, MATH_FUNCTIONS, is_of_torch

_MOST_STEPS = 6
_EVERYWHERE = MATH_FUNCTIONS - INFINITE_GRADIENT
_TEXT = "Compute on the tensor with torch instead of math: every use computes with it (`detach()` because a number carries no gradient)"


def math_function(call: ast.Call) -> str | None:
    """The torch function that computes what a call of `math` computes, or None; `math.ceil`, `floor` and `trunc` give integers."""
    name = dotted(call.func) or ""
    return name[5:] if name.startswith("math.") and name[5:] in MATH_FUNCTIONS and len(call.args) == 1 else None


def _never_raises(place: Place, call: ast.AST | None) -> bool:
    """Whether `math` has a value for all that the argument can be, where torch has `nan` or infinity."""
    if not isinstance(call, ast.Call):
        return False
    if (function := math_function(call)) in _EVERYWHERE:
        return True
    return function == "sqrt" and _is_positive(place, call.args[0])


def _is_positive(place: Place, node: ast.expr, steps: int = 0) -> bool:
    """Whether the expression is surely not negative: a norm, a variance, a sum of squares or of what is counted."""
    if steps > _MOST_STEPS:
        return False
    if isinstance(node, ast.Call):
        name = dotted(node.func) or ""
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name
        if last in ("norm", "var", "std", "abs", "square", "relu", "numel") or (last == "pow" and _is_two(node.args[-1:])):
            return True
        inner = node.args[0] if node.args and (is_of_torch(name) or last in ("float", "int")) else getattr(node.func, "value", None)
        return (
            last in ("sum", "mean", "item", "detach", "float", "max", "min") and inner is not None and _is_positive(place, inner, steps + 1)
        )
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow):
            return _is_two([node.right])
        square = isinstance(node.op, ast.Mult) and ast.dump(node.left) == ast.dump(node.right)
        both = isinstance(node.op, ast.Add | ast.Mult) and all(
            _is_positive(place, expression, steps + 1) for expression in (node.left, node.right)
        )
        return square or both
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and node.value >= 0
    return (
        isinstance(node, ast.Name)
        and place.is_assigned(node.id)
        and all(_is_positive(place, item, steps + 1) for item in place.values(node.id))
    )


def _is_two(nodes: Sequence[ast.expr]) -> bool:
    return len(nodes) == 1 and isinstance(nodes[0], ast.Constant) and nodes[0].value == 2


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
    line, place = context.line, context.place
    if place is None or not all(_never_raises(place, place.at(line, call)) for call in calls):
        return
    changes: list[tuple[ast.AST, str]] = [
        (call.func, f"torch.{math_function(call)}") for call in {id(item): item for item in calls}.values()
    ]
    changes += [(read, detached(tensor_of(line, read))) for read in reads]
    yield from rewrite(context, "item-math", line.replaced_all(changes), _TEXT)


def math_call(context: BreakContext, place: Place) -> Iterator[Advice]:
    """`math.sqrt(t)` of a tensor as `torch.sqrt(t.detach())`."""
    line = context.line
    for node in line.nodes:
        if isinstance(node, ast.Call) and (function := math_function(node)) is not None:
            call = place.at(line, node)
            argument = place.at(line, node.args[0])
            if call is None or argument is None or not (place.float32 and place.is_single(argument)):
                return
            if place.is_tensor(argument) and place.tensor_serves(call) and _never_raises(place, call):
                text = line.text(node.args[0])
                simple = isinstance(argument, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
                after = line.replaced(node, f"torch.{function}({detached(text if simple else f'({text})')})")
                yield from rewrite(context, "item-math", after, _TEXT)
            return
