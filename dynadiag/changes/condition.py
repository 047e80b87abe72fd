"""Conditions of Python on tensors, written as tensors of truth values."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from copy import copy
from typing import Any

from dynadiag.source.imports import spelled
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.place import Place
from dynadiag.source.python_names import takes_tensors
from dynadiag.source.torch_names import ANSWERS, INTEGERS, PROPERTIES, REDUCTIONS, TENSOR_METHODS, TRUTHS, is_torch_function
from dynadiag.source.tree import called_method, nodes_in, parents_in
from dynadiag.source.uses import is_item

DRAWN = "Python's random numbers are not known while the code is traced, and torch draws different ones"
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
    return if_expression(line) is not None and all(node is not read for node in nodes_in(test))


def tensor_condition(line: SourceLine, node: ast.expr, drop: ast.Call | None = None) -> str | None:
    """The text of `tensor_test`: as the line has it, where nothing changes."""
    test = tensor_test(node, drop)
    return None if test is None else line.text(node) if ast.dump(test) == ast.dump(node) else spelled(test)


def tensor_test(node: ast.expr, drop: ast.Call | None = None) -> ast.expr | None:
    """The condition as a tensor of truth values: without `.item()`, `not` and `and` written as torch functions; None if it cannot be.

    `drop` is a cast around a read that need not stay. It cannot be where a function that wants a number (Python's, NumPy's) stands around a
    read: without the read it gives no tensor.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = tensor_test(node.operand, drop)
        return None if inner is None else negated_test(inner)
    if isinstance(node, ast.BoolOp):
        return _joined(node, drop)
    if isinstance(node, ast.Call) and dotted(node.func) == "bool" and node is not drop and len(node.args) == 1:
        return tensor_test(node.args[0], drop)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "allclose":
        close = ast.Call(ast.Attribute(node.func.value, "isclose", ast.Load()), node.args, node.keywords)
        return ast.Call(ast.Attribute(close, "all", ast.Load()), [], [])
    if _asks_python(node, drop):
        return None
    if isinstance(node, ast.Compare):
        return _compared(node, drop)
    if _gives_number_to_python(node, drop):
        return None
    value: ast.expr = _replace_reads(node, drop)
    return value if _is_truth(node) else ast.Compare(value, [ast.NotEq()], [ast.Constant(0)])


def split_python_part(test: ast.expr) -> tuple[ast.expr | None, ast.expr]:
    """What of a condition Python decides (`x is not None and`), if it stands before or behind all of the rest, which a tensor decides."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    by_python = list(map(_is_decided_by_python, parts))
    count = sum(by_python)
    if 0 < count < len(parts) and all(by_python[:count]):
        return _all_of(parts[:count]), _all_of(parts[count:])
    if 0 < count < len(parts) and all(by_python[-count:]):
        return _all_of(parts[-count:]), _all_of(parts[:-count])
    return None, test


def _all_of(parts: list[ast.expr]) -> ast.expr:
    """All of neighbouring parts of an `and`, with their place in the text."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    end, end_column = last.end_lineno or last.lineno, last.end_col_offset or last.col_offset
    return ast.BoolOp(ast.And(), parts, lineno=first.lineno, col_offset=first.col_offset, end_lineno=end, end_col_offset=end_column)


def _is_decided_by_python(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _is_decided_by_python(node.operand)
    is_none = isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
    asks = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "hasattr", "callable")
    keyed = (
        isinstance(node, ast.Compare)
        and all(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        and not reads_a_tensor(node)
        and not any(isinstance(part, ast.List | ast.Tuple) for part in node.comparators)
    )
    return is_none or asks or keyed or ast.unparse(node) in ("self.training", "torch.is_grad_enabled()")


def _asks_python(node: ast.expr, drop: ast.Call | None) -> bool:
    """Whether a part is no tensor, though it is made of one: `max(x, 3)`, `torch.equal(x, y)`, an integer of what may be a fraction."""
    for child in nodes_in(node):
        name = dotted(child.func) if isinstance(child, ast.Call) else None
        if name is None or not isinstance(child, ast.Call) or _is_float_of_tensor(child, drop):
            continue
        whole = name == "int" and child is drop and _is_integer(child.args[0])
        kept = name in ("abs", "len") or all(isinstance(each, ast.Constant) for each in child.args)
        if name in _NO_TENSORS or (hasattr(builtins, name) and not (whole or kept or (child is drop and name != "int"))):
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


def _compared(node: ast.Compare, drop: ast.Call | None) -> ast.expr | None:
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return _member(node, drop)
    if _gives_number_to_python(node, drop) or not all(type(op) in _COMPARES for op in node.ops):
        return None
    sides = [_replace_reads(side, drop) for side in (node.left, *node.comparators)]
    parts: list[ast.expr] = [ast.Compare(left, [op], [right]) for left, op, right in zip(sides, node.ops, sides[1:], strict=False)]
    return parts[0] if len(parts) == 1 else _call_torch("logical_and", *parts)


def _member(node: ast.Compare, drop: ast.Call | None) -> ast.expr | None:
    """`t in [1, 2]` with a plain list of constants."""
    values = node.comparators[0]
    if not isinstance(values, ast.List | ast.Tuple) or not all(isinstance(part, ast.Constant) for part in values.elts):
        return None
    tensor = _replace_reads(node.left, drop)
    device = ast.keyword("device", ast.Attribute(tensor, "device", ast.Load()))
    found = _call_torch("isin", tensor, _call_torch("tensor", ast.List(values.elts, ast.Load()), keywords=[device]))
    return found if isinstance(node.ops[0], ast.In) else negated_test(found)


def _joined(node: ast.BoolOp, drop: ast.Call | None) -> ast.expr | None:
    """The parts of `and` or `or` in one; a part that may be a bool of Python's is joined by `&` or `|`, which take it beside a tensor."""
    parts = [tensor_test(value, drop) for value in node.values]
    sure = [reads_a_tensor(value) for value in node.values]
    comparisons = all(known or isinstance(value, ast.Compare) for known, value in zip(sure, node.values, strict=True))
    if not any(sure) or not comparisons or None in parts:
        return None
    first, *others = (part for part in parts if part is not None)
    for part in others:
        if all(sure):
            first = _call_torch("logical_and" if isinstance(node.op, ast.And) else "logical_or", first, part)
        else:
            first = ast.BinOp(first, ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr(), part)
    return first


def _call_torch(name: str, *arguments: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load()), list(arguments), list(keywords))


def _replace_reads(node: Any, drop: ast.Call | None) -> Any:
    """The node with the reads of scalars (`.item()`, and the cast `drop`) replaced by their tensors, and `math` by torch."""
    if isinstance(node, ast.Call) and (node is drop or is_item(node) or _is_float_of_tensor(node, drop)):
        return _replace_reads(node.func.value if isinstance(node.func, ast.Attribute) else node.args[0], drop)
    new = copy(node)
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            setattr(new, name, [_replace_reads(part, drop) if isinstance(part, ast.AST) else part for part in value])
        elif isinstance(value, ast.AST):
            setattr(new, name, _replace_reads(value, drop))
    if isinstance(new, ast.Call) and _of_math(name := dotted(new.func) or ""):
        new.func = ast.Attribute(ast.Name("torch", ast.Load()), name[5:], ast.Load())
    return new


def _of_math(name: str) -> bool:
    """Whether torch has the function of `math` under the same name, from one number to one number."""
    return name.startswith("math.") and name[5:] in ("isfinite", "isnan", "isinf", "exp", "log", "log2", "log10", "log1p", "sqrt")


def _gives_number_to_python(node: ast.expr, drop: ast.Call | None) -> bool:
    """Whether a number that the expression reads goes to a function that is not torch's, which gives no tensor for a tensor."""
    parents = parents_in(node)
    for read in nodes_in(node):
        if read is not drop and not is_item(read):
            continue
        inner: ast.AST = read
        while inner is not node:
            parent = parents[inner]
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
    for one in nodes_in(node):
        if isinstance(one, ast.Call):
            name = dotted(one.func) or ""
            last = called_method(one)
            if is_torch_function(name) or last in _OF_TENSORS:
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


def negated_test(test: ast.expr) -> ast.expr:
    """The opposite of a condition on tensors: `torch.logical_not(c)` of `c` and the other way round."""
    doubled = isinstance(test, ast.Call) and dotted(test.func) == "torch.logical_not" and len(test.args) == 1
    return test.args[0] if doubled and isinstance(test, ast.Call) else _call_torch("logical_not", test)


_COMPARES = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
