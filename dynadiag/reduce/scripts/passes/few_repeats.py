"""Counts become one, all at once and then each: layers, epochs, steps, `range(...)`. They cost most and matter least."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.reduce.scripts.program import Program, of_tree

_COUNT = re.compile(r"layer|depth|block|epoch|step|iter|repeat|round|stage|n_l\b|num_workers", re.IGNORECASE)


def few_repeats(program: Program) -> Iterator[Program]:
    """All counts, then each alone, the last first; one and, where that does not do, two."""
    count = len(_counts(program.tree))
    for wanted in (range(count), *([number] for number in reversed(range(count)))):
        for small in (1, 2):
            tree = program.tree
            found = _counts(tree)
            for number in wanted:
                found[number].value = small if isinstance(found[number].value, int) else found[number].value
            made = of_tree(tree)
            if made.key != program.key:
                yield made


def _counts(tree: ast.Module) -> list[ast.Constant]:
    found: list[ast.Constant] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg and _COUNT.search(node.arg):
            found += _large(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is not None and any(_COUNT.search(ast.unparse(target)) for target in targets):
                found += _large(node.value)
        elif isinstance(node, ast.arguments):
            for name, value in zip(reversed([*node.posonlyargs, *node.args]), reversed(node.defaults), strict=False):
                found += _large(value) if _COUNT.search(name.arg) else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            found += [constant for argument in node.args for constant in _large(argument)]
    return found


def _large(value: ast.expr) -> list[ast.Constant]:
    is_count = isinstance(value, ast.Constant) and isinstance(value.value, int) and not isinstance(value.value, bool) and value.value > 1
    return [value] if is_count and isinstance(value, ast.Constant) else []
