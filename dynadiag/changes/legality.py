"""What a change has to show before it is advised, or applied by `dynadiag fix`: one judge of both.

What is computed although the program would not have computed it must have no effect and never raise: only what is listed here by name
counts as such. Where a gradient flows, it must not become NaN either where the value is not chosen (`torch.where` multiplies what is not
chosen by zero, and zero times infinity is NaN).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from dynadiag.source.imports import USUAL, Imports, make_canonical, spelled
from dynadiag.source.line import dotted
from dynadiag.source.place import Place
from dynadiag.source.torch_names import ASKS_FINITE, COMPUTABLE, DATA_DEPENDENT, INFINITE_GRADIENT, NO_GRADIENT, PURE, torch_function
from dynadiag.source.tree import called_method, called_name, calls_in, children_of, nodes_in, nodes_of

_COMPUTABLE = COMPUTABLE - (DATA_DEPENDENT - {"item"})
_OF_PYTHON = frozenset(("math", "numpy", "random"))
_ATTRIBUTES = frozenset(("T", "mT", "shape", "dtype", "device", "data", "real", "imag"))
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.MatMult, ast.BitAnd, ast.BitOr, ast.BitXor)
_RAISES = "raises an error for integers where the divisor is zero", "can raise an error for an index out of range"
_PLAIN = (ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Slice, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop)


def why_not_computed(node: ast.expr, *, gradients: bool) -> str | None:
    """Why the expression may not be computed where the program would not have; None where it may.

    `gradients`: a gradient may flow through it.
    """
    for child in nodes_in(node):
        why = _why_not(child, gradients=gradients)
        if why is not None:
            return f"`{spelled(child)}` {why}"
    return None


def why_not_pure(node: ast.expr) -> str | None:
    """Why the expression may have an effect besides its value, even where the program computes it; None where it has none."""
    for child in nodes_in(node):
        if isinstance(child, ast.Call):
            why = _call(child, "", gradients=False, may_raise=True)
        else:
            known = (*_PLAIN, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Attribute, ast.Subscript)
            why = None if isinstance(child, known) else "is not known to have no effect"
        if why is not None:
            return f"`{spelled(child)}` {why}"
    return None


def _why_not(node: ast.AST, *, gradients: bool) -> str | None:
    nan = "can have a gradient that is NaN where it is not chosen"
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.FloorDiv | ast.Mod):
            return _RAISES[0]
        if isinstance(node.op, ast.Div | ast.Pow):
            return nan if gradients and not isinstance(node.right, ast.Constant) else None
        return None if isinstance(node.op, _OPERATORS) else "is not known to have no effect"
    if isinstance(node, ast.Call):
        return _call(node, nan, gradients=gradients)
    if isinstance(node, ast.Attribute):
        return None
    if isinstance(node, ast.Subscript):
        return None if is_plain_index(node.slice) else _RAISES[1]
    if isinstance(node, (*_PLAIN, ast.UnaryOp, ast.Compare, ast.IfExp)):
        return None
    return "is not known to have no effect"


def _call(node: ast.Call, nan: str, *, gradients: bool, may_raise: bool = False) -> str | None:
    name = dotted(node.func)
    owner, _, last = (name or "").rpartition(".")
    if isinstance(node.func, ast.Attribute):
        last = node.func.attr
    known = isinstance(node.func, ast.Attribute) and (torch_function(name) is not None or owner.partition(".")[0] not in _OF_PYTHON)
    if not known or last not in (PURE if may_raise else _COMPUTABLE) or any(one.arg in (None, "out") for one in node.keywords):
        return "may do more than compute"
    if owner.startswith("self") and "." not in owner and owner == "self":
        return "may do more than compute"
    return nan if gradients and last in INFINITE_GRADIENT else None


def is_plain_index(node: ast.expr) -> bool:
    """Whether these are slices, `None` and `...` alone: they give a view, and raise nothing."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return all(
        isinstance(part, ast.Slice) or (isinstance(part, ast.Constant) and (part.value is None or part.value is Ellipsis)) for part in parts
    )


_LARGE = 1e3
_MOST_STEPS = 6


def why_not_differentiated(place: Place, condition: ast.expr, iterable: Iterable[ast.expr], other: Iterable[ast.expr]) -> str | None:
    """Why a gradient may become NaN where the program had none: what one side alone is computed from gets a gradient of zero where it is
    not chosen, and zero times infinity is NaN. None where no gradient flows, or both sides are computed from the same.
    """
    alone = _differentiated(iterable) ^ _differentiated(other)
    if place.no_gradient or not alone:
        return None
    asked = _with_values(place, condition)
    if any(_is_guard(node) for node in asked):
        return f"a gradient of zero into `{min(alone)}` becomes NaN where that is not finite, and the condition is about such values"
    for name in sorted(alone):
        values = [node for value in place.values(name) for node in _with_values(place, value)]
        partial = next((node for node in values if _is_partial(node)), None)
        if partial is not None:
            return f"`{spelled(partial)}` can have a gradient that is NaN where it is not chosen"
    return None


def _differentiated(values: Iterable[ast.expr]) -> frozenset[str]:
    """The names that a gradient goes to from these values."""
    found: set[str] = set()
    left: list[ast.AST] = list(values)
    while left:
        node = left.pop()
        name = dotted(node) if isinstance(node, ast.Name | ast.Attribute) else None
        last = called_method(node)
        if last in NO_GRADIENT or isinstance(node, ast.Compare):
            continue
        if name is not None:
            found.update((name,) if not name.endswith(tuple(f".{text}" for text in _ATTRIBUTES)) else ())
        elif isinstance(node, ast.Call):
            owner = node.func.value if isinstance(node.func, ast.Attribute) and torch_function(dotted(node.func)) is None else None
            left += [*node.args, *(each.value for each in node.keywords), *([] if owner is None else [owner])]
        else:
            left += children_of(node)
    return frozenset(found)


def _with_values(place: Place, node: ast.expr) -> list[ast.AST]:
    """The nodes of an expression, and of what the names in it were given."""
    found: list[ast.AST] = []
    seen: set[str] = set()
    left, steps = [node], 0
    while left and steps <= _MOST_STEPS:
        inner = list(nodes_in(*left))
        found += inner
        names = {each.id for each in inner if isinstance(each, ast.Name)} - seen
        seen |= names
        left, steps = [value for name in sorted(names) for value in place.values(name)], steps + 1
    return found


def _is_guard(node: ast.AST) -> bool:
    """Whether this asks for values that are not finite, or very large."""
    if isinstance(node, ast.Call):
        return called_name(node) in ASKS_FINITE
    if not isinstance(node, ast.Compare):
        return False
    sides = (node.left, *node.comparators)
    itself = isinstance(node.ops[0], ast.NotEq | ast.Eq) and ast.unparse(sides[0]) == ast.unparse(sides[1])
    large = any(
        isinstance(expression, ast.Constant) and isinstance(expression.value, int | float) and abs(expression.value) >= _LARGE
        for expression in sides
    )
    return itself or large or any(_is_infinite(child) for side in sides for child in nodes_in(side))


def _is_infinite(node: ast.AST) -> bool:
    """Whether this is infinity as a program writes it: `math.inf`, `np.Inf`, `float("-inf")`; not `info`."""
    if isinstance(node, ast.Name | ast.Attribute):
        return (dotted(node) or "").rpartition(".")[2].lower().strip("_") in ("inf", "infinity", "infty")
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lower().lstrip("+-") in ("inf", "infinity")


def _is_partial(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Div | ast.Pow) and not isinstance(node.right, ast.Constant)
    last = called_method(node)
    return last in INFINITE_GRADIENT


def selections(node: ast.AST, torch: Collection[str] = ("torch",)) -> Iterator[ast.Call]:
    """The calls of `torch.where` with three arguments in a tree, in the order of the text; `torch` are the names that torch has there."""
    called = {f"{name}.where" for name in torch}
    found = [child for child in calls_in(node) if dotted(child.func) in called and len(child.args) == 3]
    yield from sorted(found, key=lambda call: (call.lineno, call.col_offset))


def why_not_selected(new: str, *, gradients: bool, imports: Imports = USUAL) -> str | None:
    """Why a branch may not become the `torch.where` of the new rows; None where it may."""
    rows = ast.parse(new)
    make_canonical(rows, imports)
    for statement in rows.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "taken":
            why = _why_not_asked(statement.value)
            if why is not None:
                return why
    found = list(selections(rows))
    if not found:
        return "it has no selection"
    for call in found:
        condition, *values = call.args
        whys = [_why_not_asked(condition), *(why_not_computed(expression, gradients=gradients) for expression in values)]
        if (why := next(filter(None, whys), None)) is not None:
            return why
    return None


def _why_not_asked(condition: ast.expr) -> str | None:
    """Why the condition may not be computed as a whole. What the program computes anyway raises nothing new; a part behind `and` may."""
    parts = any(
        (isinstance(one, ast.BinOp) and isinstance(one.op, ast.BitAnd | ast.BitOr))
        or (isinstance(one, ast.Call) and (torch_function(dotted(one.func)) or "").startswith("logical_"))
        for one in nodes_in(condition)
    )
    for node in nodes_in(condition):
        why = _why_not(node, gradients=False)
        if why is not None and (parts or why not in _RAISES):
            return f"`{spelled(node)}` {why}"
    return None


def why_not_kept(function: ast.AST, rows: range) -> str | None:
    """Why the numbers that these rows read may not become tensors: Python raises where it divides by zero, torch does not."""
    found = next(raising(function, rows), None)
    return None if found is None else f"`{spelled(found)}` raises an error for some numbers, and not for tensors"


def raising(function: ast.AST, rows: range) -> Iterator[ast.BinOp]:
    """The operations of a function that may raise for a number that these rows read."""
    names = {child.id for child in nodes_of(ast.Name, function) if isinstance(child.ctx, ast.Store) and child.lineno in rows}
    for node in nodes_in(function):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod | ast.Pow | ast.LShift):
            continue
        inside = list(nodes_in(node.right)) + (list(nodes_in(node.left)) if isinstance(node.op, ast.Pow | ast.LShift) else [])
        reads = any(
            isinstance(descendant, ast.Call) and ast.unparse(descendant.func).rpartition(".")[2] in ("item", "float", "int")
            for descendant in inside
        )
        uses = any(isinstance(part, ast.Name) and part.id in names for part in inside)
        if (node.lineno in rows and reads) or uses:
            yield node
