"""What a module computes gives way to one of its parameters: it has a gradient, as a loss has, and nothing is computed any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.program import Program, calls_compiler, of_tree


def parameter_values(program: Program) -> Iterator[Program]:
    """One program for each value that is assigned or returned and each object that is called in it."""
    count = len(_values(program.tree))
    for number in reversed(range(count)):
        for called in dict.fromkeys(map(ast.unparse, _called(_values(program.tree)[number].value))):
            tree = program.tree
            _values(tree)[number].value = ast.parse(f"next({called}.parameters()).sum()", mode="eval").body
            yield without_unused(of_tree(tree))


def _values(tree: ast.Module) -> list[ast.Assign | ast.Return]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.Return) and _called(node.value)]


def _called(value: ast.expr | None) -> list[ast.expr]:
    """What is called and may be a module: a name or an attribute of `self` that is no import of the compiler's."""
    if value is None or any(isinstance(node, ast.Call) and calls_compiler(node.func) for node in ast.walk(value)):
        return []
    called = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    return [expression for expression in called if isinstance(expression, ast.Name) or ast.unparse(expression).startswith("self.")]
