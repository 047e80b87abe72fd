"""A tensor of one number that is used as a size: read where it is made, so that all sizes that come of it are known to be numbers.

The option that captures it captures all numbers that are read; one that Python then branches on is read outside of the graph as before.
"""

from __future__ import annotations

import ast

import libcst as cst

from dynadiag.changes.edits import Edit, alone, with_value
from dynadiag.changes.kinds import Kind
from dynadiag.errors import EditError
from dynadiag.source.imports import imports_torch, parse_canonical
from dynadiag.source.torch_names import REDUCTIONS
from dynadiag.source.tree import names_in, nodes_of, reads_in


def read_once(file: str, text: str, row: int) -> Edit:
    """The line that makes the tensor which the statement at a row uses as a number, with `.item()`.

    It is assigned in that function or, for an argument of it, under the same name in one place of the module. Raises EditError where
    no such line is there: a reduction to one number, alone on the right of its name.
    """
    tree = ast.parse(text)
    statements = [node for node in nodes_of(ast.stmt, tree) if node.lineno <= row <= (node.end_lineno or node.lineno)]
    statement = max(statements, key=lambda child: child.lineno, default=None)
    if statement is None:
        raise EditError("the line is not there")
    names = reads_in(statement)
    made = [part for part in nodes_of(ast.Assign, tree) if _made(part) in names]
    if len(made) != 1:
        raise EditError("no line is known that makes the tensor which is used as a number")
    old = alone(text, made[0])
    new, _ = with_value(old, lambda value: cst.Call(cst.Attribute(value, cst.Name("item"))))
    return Edit(file=file, old=old, new=new, near=made[0].lineno)


def read_outside(file: str, text: str, row: int) -> Edit | None:
    """The line at a row that reads a number which an `if` of the module asks for, without its capture; None where it is no such line."""
    tree, _ = parse_canonical(text)
    read = next((node for node in nodes_of(ast.Assign, tree) if node.lineno == row == node.end_lineno), None)
    if read is None or not ast.unparse(read.value).endswith(".item()") or not isinstance(read.targets[0], ast.Name):
        return None
    tests = [child.test for child in nodes_of(ast.If, tree)]
    asked = names_in(*tests)
    if read.targets[0].id not in asked or not imports_torch(tree):
        return None
    old = alone(text, read)
    new = ("with torch._dynamo.patch_dynamo_config(capture_scalar_outputs=False):", *(f"    {line}" for line in old))
    return Edit(file=file, old=old, new=new, near=row)


def _made(statement: ast.Assign) -> str | None:
    """The name that gets a tensor of one number: `n = x.max()`."""
    call, target = statement.value, statement.targets[0]
    reduces = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in REDUCTIONS
    bare = isinstance(call, ast.Call) and not call.args and not call.keywords
    return target.id if reduces and bare and len(statement.targets) == 1 and isinstance(target, ast.Name) else None


KINDS = (
    Kind(
        slugs=("size-item",),
        applied="rule",
        does="in a library: a tensor of one number that is used as a size is read where it is made (`n = x.max().item()`) and captured; a "
        "number that an `if` asks for is read outside of the graph as before",
        asks="one line of the module makes it, by a reduction without arguments",
    ),
)
