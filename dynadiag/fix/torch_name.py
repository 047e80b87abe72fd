"""By which name a module knows torch, and new lines of code that use it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from dynadiag.changes.edits import Edit
from dynadiag.source.imports import TORCH, uses_torch, with_torch_as
from dynadiag.source.tree import children_of, nodes_in

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def with_torch_named(edit: Edit, text: str) -> Edit:
    """The edit with the name that torch has where it is made (`import torch as th`); `needs_torch` where it has none there."""
    if not uses_torch(edit.new) or uses_torch(edit.old):
        return edit
    names = names_of_torch(text, edit.near)
    if TORCH in names:
        return edit
    if not names:
        return replace(edit, needs_torch=True)
    observed = None if edit.observed is None else with_torch_as(edit.observed, names[0])
    return replace(edit, new=with_torch_as(edit.new, names[0]), observed=observed)


def names_of_torch(text: str, line: int | None) -> list[str]:
    """The names that torch has at a line of a module (None: at its top level), those of inner functions first."""
    tree = ast.parse(text)
    scopes: list[ast.AST] = [tree]
    if line is not None:
        functions = (node for node in nodes_in(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))  # outer ones first
        scopes += [function for function in functions if function.lineno <= line <= (function.end_lineno or 0)]
    return [name for scope in reversed(scopes) for name in _bound(scope)]


def _bound(scope: ast.AST) -> Iterator[str]:
    """The names by which imports of a scope bind torch itself, not those of scopes inside."""
    for child in children_of(scope):
        if isinstance(child, ast.Import):
            for name in child.names:
                if name.name == TORCH or (name.asname is None and name.name.startswith(f"{TORCH}.")):
                    yield name.asname or TORCH
        elif not isinstance(child, _SCOPES):
            yield from _bound(child)
