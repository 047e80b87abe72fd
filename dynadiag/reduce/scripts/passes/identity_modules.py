"""Submodules become `torch.nn.Identity()`: all, each half of them, then each alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.program import Program, calls_compiler, of_tree

_IDENTITY = "torch.nn.Identity()"


def identity_modules(program: Program) -> Iterator[Program]:
    """One program for each group of `self.NAME = CALL(...)` in `__init__`."""
    if not any(
        isinstance(node, ast.Import) and any(name.name == "torch" and not name.asname for name in node.names) for node in program.tree.body
    ):
        return
    count = len(_modules(program.tree))
    groups = [range(count), range(count // 2), range(count // 2, count), *([number] for number in reversed(range(count)))]
    for group in dict.fromkeys(tuple(sequence) for sequence in groups if sequence):
        tree = program.tree
        for number, node in enumerate(_modules(tree)):
            if number in group:
                node.value = ast.parse(_IDENTITY, mode="eval").body
        yield without_unused(of_tree(tree))


def _modules(tree: ast.Module) -> list[ast.Assign]:
    makers = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return [node for maker in makers for node in ast.walk(maker) if isinstance(node, ast.Assign) and _makes_module(node)]


def _makes_module(node: ast.Assign) -> bool:
    target = node.targets[0]
    of_self = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return of_self and isinstance(node.value, ast.Call) and ast.unparse(node.value) != _IDENTITY and not calls_compiler(node.value.func)
