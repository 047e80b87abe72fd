"""The script as the user gave it, made ready: its arguments stand in its text, so that it runs without any. Without torch."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from dynadiag.errors import UnreadableInputError
from dynadiag.reduce.scripts.program import Program, of_tree, parsed

LARGEST_BYTES = 2 << 20


def read_script(path: Path, arguments: Sequence[str]) -> Program:
    """The program of a file. Raises UnreadableInputError when it cannot be read or is no Python."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UnreadableInputError(f"cannot read {path}: {error.strerror or error}") from error
    if len(raw) > LARGEST_BYTES:
        raise UnreadableInputError(f"{path} is larger than {LARGEST_BYTES >> 20} MiB: such scripts are not reduced")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableInputError(f"{path} is not UTF-8: {error}") from error
    return _with_arguments(parsed(text, str(path)), arguments)


def _with_arguments(program: Program, arguments: Sequence[str]) -> Program:
    if not arguments:
        return program
    tree = program.tree
    first = [must_be_first(node) for node in tree.body]
    place = first.index(False) if False in first else len(first)
    tree.body[place:place] = ast.parse(f"import sys\nsys.argv[1:] = {list(arguments)!r}").body
    return of_tree(tree)


def must_be_first(node: ast.stmt) -> bool:
    """Whether it is a docstring or an import from `__future__`."""
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def imported(program: Program) -> dict[str, list[ast.stmt]]:
    """The import statements of the script by the first part of the module's name; "." for relative ones."""
    found: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.setdefault(alias.name.partition(".")[0], []).append(node)
        elif isinstance(node, ast.ImportFrom):
            found.setdefault("." if node.level else str(node.module).partition(".")[0], []).append(node)
    return found
