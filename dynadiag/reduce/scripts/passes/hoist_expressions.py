"""An expression gives way to one of its parts: `self.layer(x)` to `x` (the submodule becomes the identity), `a + b` to `a`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from dynadiag.reduce.scripts.passes.editing import replaced
from dynadiag.reduce.scripts.program import Program, calls_compiler


def hoist_expressions(program: Program) -> Iterator[Program]:
    """One program for each expression and each of its parts."""
    modules = frozenset(
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(program.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )
    return replaced(program, partial(_parts, modules))


def _parts(modules: frozenset[str], node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Call):
        # What is compiled stays compiled: else the search wanders to a program without a compiler.
        inside = [argument.value if isinstance(argument, ast.Starred) else argument for argument in node.args] + [
            keyword.value for keyword in node.keywords
        ]
        own = [node.func.value] if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value, modules) else []
        if calls_compiler(node.func):
            return []
        # A frame without any operator is not compiled at all: one plain operator may have to stay.
        plain = [ast.BinOp(inside[0], ast.Add(), ast.Constant(1))] if inside and not _is_module(node.func, modules) else []
        return [*inside, *own, *plain]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Load):
        return [] if calls_compiler(node) or _is_module(node.value, modules) else [node.value]
    if isinstance(node, ast.JoinedStr):
        return [ast.Constant("")]
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        return [ast.List([node.elt], ast.Load())]
    return [node.elts[0]] if isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 1 and isinstance(node.ctx, ast.Load) else []


def _is_module(node: ast.expr, modules: frozenset[str]) -> bool:
    """Whether it is an imported module or a module in one: nothing that a value could give way to."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in modules
