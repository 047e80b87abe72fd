"""Parts that may be left out: arguments, decorators, bases, elements, imported names, the value of `return`, parts of `with`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from dynadiag.reduce.scripts.passes.editing import edited
from dynadiag.reduce.scripts.program import Program, calls_compiler, of_tree

_LISTS: tuple[tuple[type[ast.AST], str, int], ...] = (
    (ast.Call, "args", 0),
    (ast.Call, "keywords", 0),
    (ast.FunctionDef, "decorator_list", 0),
    (ast.ClassDef, "decorator_list", 0),
    (ast.ClassDef, "bases", 0),
    (ast.Import, "names", 1),
    (ast.ImportFrom, "names", 1),
    (ast.With, "items", 1),
    (ast.List, "elts", 0),
    (ast.Tuple, "elts", 1),
    (ast.Set, "elts", 1),
    (ast.JoinedStr, "values", 0),
    (ast.Try, "handlers", 1),
    (ast.Assign, "targets", 1),
)


def drop_parts(program: Program) -> Iterator[Program]:
    """All parts at once, each half of them, then each alone."""
    count = sum(len(_changes(node)) for node in ast.walk(program.tree))
    for first, last in ((0, count), (0, count // 2), (count // 2, count)):
        tree = program.tree
        changes = [change for node in ast.walk(tree) for change in _changes(node)][first:last]
        for change in changes:
            change()
        yield of_tree(tree)
    yield from edited(program, _changes)


def _changes(node: ast.AST) -> list[Callable[[], Any]]:
    changes: list[Callable[[], Any]] = []
    for kind, name, least in _LISTS:
        parts = getattr(node, name, None)
        if isinstance(node, kind) and isinstance(parts, list) and len(parts) > least:
            # torch.compile and its backend stay; what else it gets may go.
            places = [place for place, part in enumerate(parts) if not _is_kept(node, part)]
            changes += [partial(_drop, parts, parts[place], least) for place in reversed(places)]
    if isinstance(node, ast.Dict) and node.keys:
        changes += [partial(_drop_entry, node, place) for place in reversed(range(len(node.keys)))]
    if isinstance(node, ast.Return) and node.value is not None:
        changes.append(partial(setattr, node, "value", None))
    if isinstance(node, ast.AnnAssign | ast.arg) and getattr(node, "annotation", None) is not None and isinstance(node, ast.arg):
        changes.append(partial(setattr, node, "annotation", None))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        changes.append(partial(setattr, node, "returns", None))
    if isinstance(node, ast.Assert | ast.Raise):
        changes += [partial(setattr, node, name, None) for name in ("msg", "cause") if getattr(node, name, None) is not None]
    return changes


def _is_kept(node: ast.AST, part: ast.AST) -> bool:
    if isinstance(node, ast.Call) and calls_compiler(node.func):
        return isinstance(part, ast.expr) or getattr(part, "arg", None) == "backend"
    return isinstance(node, ast.FunctionDef) and (calls_compiler(part) or (isinstance(part, ast.Call) and calls_compiler(part.func)))


def _drop(parts: list[Any], part: Any, least: int) -> None:
    if len(parts) > least:
        parts[:] = [item for item in parts if item is not part]


def _drop_entry(node: ast.Dict, place: int) -> None:
    del node.keys[place], node.values[place]
