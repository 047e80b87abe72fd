"""By which name a module knows torch, and new lines of code that use it."""

from __future__ import annotations

import ast
import io
import itertools
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dynadiag.changes.edits import Edit

TORCH: Final = "torch"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def with_torch_named(edit: Edit, text: str) -> Edit:
    """The edit with the name that torch has where it is made (`import torch as th`); `needs_torch` where it has none there."""
    if not _uses(edit.new) or _uses(edit.old):
        return edit
    names = names_of_torch(text, edit.near)
    if TORCH in names:
        return edit
    if not names:
        return replace(edit, needs_torch=True)
    observed = None if edit.observed is None else _renamed(edit.observed, names[0])
    return replace(edit, new=_renamed(edit.new, names[0]), observed=observed)


def names_of_torch(text: str, line: int | None) -> list[str]:
    """The names that torch has at a line of a module (None: at its top level), those of inner functions first."""
    tree = ast.parse(text)
    scopes: list[ast.AST] = [tree]
    if line is not None:
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))  # outer ones first
        scopes += [function for function in functions if function.lineno <= line <= (function.end_lineno or 0)]
    return [name for scope in reversed(scopes) for name in _bound(scope)]


def _bound(scope: ast.AST) -> Iterator[str]:
    """The names by which imports of a scope bind torch itself, not those of scopes inside."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.Import):
            for name in child.names:
                if name.name == TORCH or (name.asname is None and name.name.startswith(f"{TORCH}.")):
                    yield name.asname or TORCH
        elif not isinstance(child, _SCOPES):
            yield from _bound(child)


def _uses(rows: Sequence[str]) -> bool:
    return next(_places(rows), None) is not None


def _renamed(rows: Sequence[str], name: str) -> tuple[str, ...]:
    new = list(rows)
    for row, column in sorted(_places(rows), reverse=True):
        new[row - 1] = f"{new[row - 1][:column]}{name}{new[row - 1][column + len(TORCH) :]}"
    return tuple(new)


def _places(rows: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Line and column of each use of the name, in code that may be a header without its block."""
    tokens = tokenize.generate_tokens(io.StringIO("".join(f"{row}\n" for row in rows)).readline)
    before = ""
    try:
        for token in itertools.takewhile(lambda token: token.type != tokenize.ENDMARKER, tokens):
            if token.type == tokenize.NAME and token.string == TORCH and before not in (".", "import", "from"):
                yield token.start
            before = token.string
    except (tokenize.TokenError, IndentationError):
        return
