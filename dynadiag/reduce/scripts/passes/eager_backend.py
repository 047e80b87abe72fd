"""Compile with Dynamo alone: the questions that follow cost less, and a break or a recompile is Dynamo's own."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from dynadiag.reduce.scripts.passes.editing import edited
from dynadiag.reduce.scripts.program import Program, calls_compiler, of_tree

_OTHERS = ("backend", "mode", "options")


def eager_backend(program: Program) -> Iterator[Program]:
    """All compile calls at once, then each alone."""
    tree = program.tree
    for node in list(ast.walk(tree)):
        for change in _changes(node):
            change()
    yield of_tree(tree)
    yield from edited(program, _changes)


def _changes(node: ast.AST) -> list[Callable[[], None]]:
    if isinstance(node, ast.Call) and calls_compiler(node.func):
        return [lambda: _make_eager(node)]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and any(map(calls_compiler, node.decorator_list)):
        return [lambda: _decorate(node)]
    return []


def _make_eager(call: ast.Call) -> None:
    call.keywords = [keyword for keyword in call.keywords if keyword.arg not in _OTHERS]
    call.keywords.append(ast.keyword("backend", ast.Constant("eager")))


def _decorate(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    eager = [ast.keyword("backend", ast.Constant("eager"))]
    node.decorator_list = [ast.Call(decorator, [], eager) if calls_compiler(decorator) else decorator for decorator in node.decorator_list]
