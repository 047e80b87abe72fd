"""A number that a function reads of a tensor, kept as a tensor: what the function computes with it, or makes a tensor of, takes that.

A branch on it becomes one on a tensor, which is the next thing to cure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.changes import legality
from dynadiag.changes.edits import Edit, alone
from dynadiag.changes.kinds import Kind
from dynadiag.errors import EditError
from dynadiag.source.line import dotted
from dynadiag.source.program import program_of
from dynadiag.source.tree import calls_in, names_in, nodes_of

SLUG = "number-as-tensor"


def with_tensor(file: str, text: str, row: int) -> tuple[Edit, ...]:
    """The edits of `NAME = TENSOR.item()` at a row, and of the lines that make a tensor of it again. Raises EditError for other lines."""
    tree = program_of(text).tree
    around = [node for node in nodes_of(ast.FunctionDef, tree) if node.lineno <= row <= (node.end_lineno or node.lineno)]
    if not around:
        raise EditError("the line is in no function")
    function = max(around, key=lambda node: node.lineno)
    statement = next((node for node in nodes_of(ast.Assign, *function.body) if node.lineno == row), None)
    target = statement.targets[0] if statement is not None and len(statement.targets) == 1 else None
    tensor = None if statement is None else _read(statement.value)
    if statement is None or tensor is None or not isinstance(target, ast.Name):
        raise EditError("the line does not give one name to a number that it reads")
    why = legality.why_not_kept(function, range(row, (statement.end_lineno or row) + 1))
    if why is not None:
        raise EditError(why)
    source = ast.get_source_segment(text, tensor) or ""
    owner = source if isinstance(tensor, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({source})"
    copy = "" if isinstance(tensor, ast.Call) else ".clone()"  # a number does not change with the tensor
    read = Edit(file=file, old=alone(text, statement), new=(f"{target.id} = {owner}.detach(){copy}",), near=row)
    return (read, *_made_again(file, text, function, target.id))


def _read(value: ast.expr) -> ast.expr | None:
    """The tensor of `TENSOR.item()` or `float(TENSOR)`."""
    if not isinstance(value, ast.Call) or value.keywords:
        return None
    if isinstance(value.func, ast.Attribute) and value.func.attr == "item" and not value.args:
        return value.func.value
    return value.args[0] if dotted(value.func) == "float" and len(value.args) == 1 else None


def _made_again(file: str, text: str, function: ast.FunctionDef, name: str) -> Iterator[Edit]:
    """`torch.tensor(...)` of what the name is in: of a tensor it warns, and `torch.as_tensor` takes it as it is."""
    for statement in nodes_of(ast.stmt, *function.body):
        if not isinstance(statement, ast.Assign | ast.Return | ast.AugAssign | ast.Expr):
            continue
        made = [
            call for call in calls_in(statement) if dotted(call.func) == "torch.tensor" and call.args and name in names_in(call.args[0])
        ]
        rows = alone(text, statement) if made else ()
        if made and "\n".join(rows).count("torch.tensor(") == len(made):
            new = tuple(line.replace("torch.tensor(", "torch.as_tensor(") for line in rows)
            yield Edit(file=file, old=rows, new=new, near=statement.lineno)


KINDS = (
    Kind(
        slugs=(SLUG,),
        applied="rule",
        does="a number that is read into a name stays a tensor, and `torch.tensor` of it becomes `torch.as_tensor`; a branch on it is the "
        "next thing to cure",
        asks="`NAME = TENSOR.item()` or `float(TENSOR)` is a statement of its own, and nothing is divided by the number",
    ),
)
