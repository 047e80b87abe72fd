"""Conditions of Python on tensors, written as tensors of truth values."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Sequence

from dynadiag.advice.places import Place
from dynadiag.advice.reads import is_item
from dynadiag.advice.source import SourceLine, dotted, parse_line
from dynadiag.advice.uses import takes_tensors
from dynadiag.source.torch_names import ANSWERS, INTEGERS, PROPERTIES, REDUCTIONS, TENSOR_METHODS, TRUTHS

_OF_TENSORS = TENSOR_METHODS | TRUTHS | REDUCTIONS | {"item"}
# Functions of torch that give a value of Python's.
_NO_TENSORS = frozenset(f"torch.{name}" for name in ANSWERS | PROPERTIES | {"is_tensor"})


def condition_of(line: SourceLine) -> ast.expr | None:
    """The condition that the line decides by, or None."""
    statement = line.statement
    if isinstance(statement, ast.If | ast.While | ast.Assert):
        return statement.test
    choice = if_expression(line)
    return None if choice is None else choice.test


def if_expression(line: SourceLine) -> ast.IfExp | None:
    """The `a if c else b` on the line, or None."""
    return next((node for node in line.nodes if isinstance(node, ast.IfExp)), None)


def only_chosen(line: SourceLine, test: ast.expr, read: ast.Call) -> bool:
    """Whether the read is one side of `a if c else b` and no part of what decides: `c` may be a plain bool (`torch.is_tensor(x)`)."""
    return if_expression(line) is not None and all(one is not read for one in ast.walk(test))


def tensor_condition(line: SourceLine, node: ast.expr, drop: ast.Call | None = None) -> str | None:
    """The condition as a tensor of truth values: without `.item()`, `not` and `and` written as torch functions; None if it cannot be.

    It cannot where a function that wants a number (Python's, NumPy's) stands around a read: without the read it gives no tensor.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = tensor_condition(line, node.operand, drop)
        return None if inner is None else negated(inner)
    if isinstance(node, ast.BoolOp):
        parts = [tensor_condition(line, value, drop) if reads_a_tensor(value) else None for value in node.values]
        return _joined("logical_and" if isinstance(node.op, ast.And) else "logical_or", parts)
    if isinstance(node, ast.Call) and dotted(node.func) == "bool" and node is not drop and len(node.args) == 1:
        return tensor_condition(line, node.args[0], drop)
    if _asks_python(node, drop):
        return None
    if isinstance(node, ast.Compare):
        return _compared(line, node, drop)
    if _number_for_python(line, node, drop):
        return None
    text = without(line, node, drop)
    return text if _is_truth(node) else boolean(text)


def _asks_python(node: ast.expr, drop: ast.Call | None) -> bool:
    """Whether a part is no tensor, though it is made of one: `max(x, 3)`, `torch.equal(x, y)`, an integer of what may be a fraction."""
    for one in ast.walk(node):
        name = dotted(one.func) if isinstance(one, ast.Call) else None
        if name is None or not isinstance(one, ast.Call) or _is_float_of_tensor(one, drop):
            continue
        whole = name == "int" and one is drop and _is_integer(one.args[0])
        kept = name in ("abs", "len") or all(isinstance(each, ast.Constant) for each in one.args)
        if name in _NO_TENSORS or (hasattr(builtins, name) and not (whole or kept or (one is drop and name != "int"))):
            return True
    return False


def _is_float_of_tensor(call: ast.Call, drop: ast.Call | None) -> bool:
    """Whether this is a cast that says nothing of the value: `float(x.max())` beside the one that the caller drops."""
    return drop is not None and dotted(call.func) == "float" and len(call.args) == 1 and reads_a_tensor(call.args[0])


def _is_integer(node: ast.expr) -> bool:
    """Whether the tensor surely holds whole numbers."""
    function = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if function is None:
        return False
    return function.attr in INTEGERS or (function.attr == "sum" and isinstance(function.value, ast.Compare))


def boolean(text: str) -> str:
    """A tensor of numbers as the truth value that Python's `if` would take."""
    return f"({text}) != 0" if re.search(r"[^\w.()\[\]]", text) else f"{text} != 0"


def _compared(line: SourceLine, node: ast.Compare, drop: ast.Call | None) -> str | None:
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return _member(line, node, drop)
    if _number_for_python(line, node, drop) or not all(
        isinstance(op, ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops
    ):
        return None
    if len(node.ops) == 1:
        return without(line, node, drop)
    sides = [without(line, side, drop) for side in (node.left, *node.comparators)]
    parts = [f"{one} {_COMPARES[type(op)]} {other}" for one, op, other in zip(sides, node.ops, sides[1:], strict=False)]
    return _joined("logical_and", parts)


def _member(line: SourceLine, node: ast.Compare, drop: ast.Call | None) -> str | None:
    """`t in [1, 2]` with a plain list of constants."""
    values = node.comparators[0]
    if not isinstance(values, ast.List | ast.Tuple) or not all(isinstance(one, ast.Constant) for one in values.elts):
        return None
    tensor = without(line, node.left, drop)
    text = f"torch.isin({tensor}, torch.tensor([{', '.join(line.text(one) for one in values.elts)}], device={tensor}.device))"
    return text if isinstance(node.ops[0], ast.In) else f"torch.logical_not({text})"


def _joined(name: str, parts: Sequence[str | None]) -> str | None:
    text = parts[0]
    for part in parts[1:]:
        text = None if text is None or part is None else f"torch.{name}({text}, {part})"
    return text


def without(line: SourceLine, node: ast.expr, drop: ast.Call | None) -> str:
    """The text of the node with the reads of scalars (`.item()`, and the cast `drop`) replaced by their tensors."""
    text = line.text(node)
    casts = [one for one in ast.walk(node) if isinstance(one, ast.Call) and one is not drop and _is_float_of_tensor(one, drop)]
    for read in ([] if drop is None else [drop]) + casts + [one for one in ast.walk(node) if is_item(one)]:
        text = text.replace(line.text(read), tensor_of(line, read))
    for call in ast.walk(node):
        name = dotted(call.func) or "" if isinstance(call, ast.Call) else ""
        text = text.replace(f"{name}(", f"torch.{name[5:]}(") if _of_math(name) else text
    return text


def _of_math(name: str) -> bool:
    """Whether torch has the function of `math` under the same name, from one number to one number."""
    return name.startswith("math.") and name[5:] in ("isfinite", "isnan", "isinf", "exp", "log", "log2", "log10", "log1p", "sqrt")


def _number_for_python(line: SourceLine, node: ast.expr, drop: ast.Call | None) -> bool:
    """Whether a number that the expression reads goes to a function that is not torch's, which gives no tensor for a tensor."""
    for read in ast.walk(node):
        if read is not drop and not is_item(read):
            continue
        inner: ast.AST = read
        while inner is not node and (parent := line.parent(inner)) is not None:
            given = isinstance(parent, ast.Call) and parent.func is not inner and parent is not drop
            if given and isinstance(parent, ast.Call) and not takes_tensors(parent, inner) and not _of_math(dotted(parent.func) or ""):
                return True
            inner = parent
    return False


def tensor_of(line: SourceLine, read: ast.Call) -> str:
    """The tensor that `t.item()` or `float(t)` reads."""
    inner = read.func.value if isinstance(read.func, ast.Attribute) else read.args[0]
    if is_item(inner):
        return tensor_of(line, inner)
    text = line.text(inner)
    simple = isinstance(inner, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return text if simple else f"({text})"


def as_number(line: SourceLine, place: Place | None, read: ast.Call) -> str | None:
    """The tensor so that its text is that of the number; None for a cast, which may give another one (`int(x)`, `float(n)`).

    A tensor is formatted as its number only where it has no dimension and is no parameter (`Tensor.__format__`, 2.11 and 2.15).
    """
    if not (isinstance(read.func, ast.Attribute) and read.func.attr == "item"):
        return None
    tensor, text = read.func.value, tensor_of(line, read)
    computed = isinstance(tensor, ast.Call | ast.BinOp) or (isinstance(tensor, ast.Name) and place is not None and place.values(tensor.id))
    return text if place is not None and computed and place.is_single(tensor) else f"{text}.squeeze()"


def reads_a_tensor(node: ast.expr) -> bool:
    """Whether the expression surely has the value of a tensor in it: it calls a reduction or a torch function."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            name = dotted(one.func) or ""
            last = one.func.attr if isinstance(one.func, ast.Attribute) else ""
            if name.startswith("torch.") or last in _OF_TENSORS:
                return True
    return False


def _is_truth(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitAnd | ast.BitOr) and _is_truth(node.left) and _is_truth(node.right)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert) and _is_truth(node.operand)
    if isinstance(node, ast.Call):
        last = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
        return last in TRUTHS
    return isinstance(node, ast.Compare)


def negated(condition: str) -> str:
    """The opposite of a condition on tensors, as text: `torch.logical_not(c)` of `c` and the other way round."""
    line = parse_line(condition)
    call = line.statement.value if isinstance(line.statement, ast.Expr) else None
    if isinstance(call, ast.Call) and dotted(call.func) == "torch.logical_not" and len(call.args) == 1 and line.text(call) == condition:
        return line.text(call.args[0])
    return f"torch.logical_not({condition})"


_COMPARES = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
