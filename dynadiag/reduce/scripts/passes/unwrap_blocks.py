"""`if`, `for`, `while`, `with` and `try` give way to what stands in them, `if` and `while` to their condition."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from dynadiag.reduce.scripts.passes.editing import blocks_of, names_in
from dynadiag.reduce.scripts.program import Program, of_tree


def unwrap_blocks(program: Program) -> Iterator[Program]:
    """One program for each block statement and each of its bodies."""
    for block, (_, statements) in enumerate(blocks_of(program.tree)):
        for place, node in enumerate(statements):
            for number in range(len(_contents(node))):
                tree = program.tree
                body = blocks_of(tree)[block][1]
                body[place : place + 1] = _contents(body[place])[number]
                yield of_tree(tree)


def _contents(node: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(node, ast.If | ast.While):
        return [[ast.Expr(node.test)], *(part for part in (node.body, node.orelse) if part)]
    if isinstance(node, ast.For):
        first = ast.Call(ast.Name("next", ast.Load()), [ast.Call(ast.Name("iter", ast.Load()), [node.iter], [])], [])
        numbers = isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range"
        start: ast.expr = ast.Constant(0) if numbers else first
        return [node.body, _with_zeros(node), [ast.Assign([node.target], start), *node.body]]
    if isinstance(node, ast.With):
        bound = [ast.Assign([item.optional_vars], item.context_expr) for item in node.items if item.optional_vars is not None]
        return [node.body] if not bound else [node.body, [*bound, *node.body]]
    if isinstance(node, ast.Try | ast.TryStar):
        return [[*node.body, *node.orelse, *node.finalbody], *(handler.body for handler in node.handlers)]
    return []


def _with_zeros(loop: ast.For) -> list[ast.stmt]:
    """The body with 0 for what the loop binds: most often a number that is only read."""
    zeros = _Zeros({name.id for name in names_in(loop.target)})
    return [zeros.visit(copy.deepcopy(statement)) for statement in loop.body]


class _Zeros(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(0) if node.id in self._names and isinstance(node.ctx, ast.Load) else node
