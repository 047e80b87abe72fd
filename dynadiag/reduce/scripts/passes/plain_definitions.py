"""Definitions become plainer: a class with one method a function, an unread assignment its value, another target of the compiler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.reduce.scripts.passes.editing import blocks_of, names_in
from dynadiag.reduce.scripts.program import Program, calls_compiler, of_tree


def plain_definitions(program: Program) -> Iterator[Program]:
    """One program for each class, each unread assignment, and each function or class that might be compiled instead."""
    yield from _functions_for_classes(program)
    yield from _unread(program)
    yield from _other_targets(program)


def _functions_for_classes(program: Program) -> Iterator[Program]:
    for block, (_, statements) in enumerate(blocks_of(program.tree)):
        for place, node in enumerate(statements):
            if not (isinstance(node, ast.ClassDef) and len(node.body) == 1 and isinstance(node.body[0], ast.FunctionDef)):
                continue
            tree = program.tree
            body = blocks_of(tree)[block][1]
            made = body[place].body[0]  # type: ignore[attr-defined]
            if not made.args.args or any(name.id == made.args.args[0].arg for statement in made.body for name in names_in(statement)):
                continue
            made.args.args.pop(0)
            made.name = node.name
            body[place] = made
            _Uncalled(node.name).visit(tree)
            yield of_tree(tree)


def _unread(program: Program) -> Iterator[Program]:
    for block, (_, statements) in enumerate(blocks_of(program.tree)):
        for place, node in enumerate(statements):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                tree = program.tree
                blocks_of(tree)[block][1][place] = ast.Expr(node.value)
                yield of_tree(tree)


def _other_targets(program: Program) -> Iterator[Program]:
    """Compile a part of what was compiled: `torch.compile(Block())` for `torch.compile(Net())`."""
    tree = program.tree
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for name in reversed(list(dict.fromkeys(names))):
        tree = program.tree
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and calls_compiler(node.func) and node.args]
        if calls:
            calls[0].args[0] = ast.parse(f"{name}()" if name in classes else name, mode="eval").body
            yield of_tree(tree)


class _Uncalled(ast.NodeTransformer):
    """`Name()` becomes `Name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.func if isinstance(node.func, ast.Name) and node.func.id == self._name and not node.args else node
