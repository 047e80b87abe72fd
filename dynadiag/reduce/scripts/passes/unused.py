"""What nothing needs any more goes with what made it needed: definitions, imports and values that are never read. Without torch."""

from __future__ import annotations

import ast

from dynadiag.reduce.scripts.names import Statement, statements_of
from dynadiag.reduce.scripts.passes.editing import blocks_of, names_in
from dynadiag.reduce.scripts.program import Program, calls_compiler, of_tree

_PREPARING = frozenset(
    (
        "add_argument",
        "add_argument_group",
        "set_defaults",
        "append",
        "extend",
        "train",
        "eval",
        "to",
        "update",
        "close",
        "add_scalar",
        "add",
    )
)
"""Methods that only make an object ready for later: what such a call did is gone with the object."""
_BINDING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


def without_unused(program: Program) -> Program:
    """The program without statements that only bind names which nothing reads, and without what only makes such a value ready.

    A guess, for an oracle to judge: a value may be needed for what making it does.
    """
    while (fewer := _once(program)) is not None:
        program = fewer
    return program


def _once(program: Program) -> Program | None:
    tree = program.tree
    statements = statements_of(tree)
    gone = {id(child.node) for statement in statements for child in _group(statement, statements)}
    if not gone:
        return None
    for _, body in blocks_of(tree):
        body[:] = [node for node in body if id(node) not in gone]
    return of_tree(tree)


def _group(statement: Statement, statements: list[Statement]) -> list[Statement]:
    """The statement and those that only do something to what it binds; nothing where a name is read by another one."""
    if not isinstance(statement.node, _BINDING) or not statement.binds or statement.binds_attributes or statement.scope.is_class:
        return []
    if isinstance(statement.node, ast.ImportFrom) and statement.node.module == "__future__":
        return []
    if any(isinstance(node, ast.Call) and calls_compiler(node.func) for node in ast.walk(statement.node)):
        return []  # what is compiled stays compiled
    group = [statement]
    for name in statement.binds:
        for reader in statements:
            if name in reader.reads and not _is_inside(reader, statement, statements):
                if not _only_does_to(reader.node, name):
                    return []
                group.append(reader)
    return group


def _is_inside(reader: Statement, statement: Statement, statements: list[Statement]) -> bool:
    """Whether it is the definition itself or a part of it: a function that calls itself is not needed for that."""
    at: Statement | None = reader
    while at is not None and at is not statement:
        at = statements[at.parent] if at.parent is not None else None
    return at is statement and not isinstance(statement.node, ast.Assign | ast.AnnAssign)


def _only_does_to(node: ast.stmt, name: str) -> bool:
    """Whether it is `name.append(...)` or `name.attribute = ...`, and reads the name for nothing else."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        if node.value.func.attr not in _PREPARING:
            return False
        target: ast.expr = node.value.func
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and not isinstance(node.targets[0], ast.Name):
        target = node.targets[0]
    else:
        return False
    root = target
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    reads = [name_node for name_node in names_in(node) if name_node.id == name]
    return root is not target and len(reads) == 1 and reads[0] is root
