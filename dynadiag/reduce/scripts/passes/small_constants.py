"""Numbers shrink: sizes, counts of layers and steps."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial

from dynadiag.reduce.scripts.passes.editing import edited
from dynadiag.reduce.scripts.program import Program, of_tree


def small_constants(program: Program) -> Iterator[Program]:
    """Equal numbers together (they may have to fit each other), then each alone."""
    found = {value for node in ast.walk(program.tree) if (value := _number(node)) is not None}
    for value in sorted(found, key=lambda number: (-abs(number), isinstance(number, float))):
        for smaller in _smaller(value):
            tree = program.tree
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and (_number(node), type(node.value)) == (value, type(value)):
                    node.value = smaller
            yield of_tree(tree)
    yield from edited(program, _changes)


def _changes(node: ast.AST) -> list[Callable[[], None]]:
    value = _number(node)
    return [] if value is None else [partial(setattr, node, "value", smaller) for smaller in _smaller(value)]


def _number(node: ast.AST) -> int | float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    return None


def _smaller(value: float) -> list[int | float]:
    tried = (1, 2, 4, value // 2) if isinstance(value, int) else (1.0,)
    return list(dict.fromkeys(number for number in tried if 0 < abs(number) < abs(value)))
