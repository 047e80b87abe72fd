"""`@dynadiag.benchmark`, and finding what carries it without running anything."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dynadiag.errors import UnreadableInputError

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "benchmark"


def benchmark(function: Function) -> Function:
    """`function` itself, marked for `dynadiag bench FILE.py`.

    The function takes no arguments. What it returns decides what is timed: a callable (a whole step, called without arguments), or a tuple
    of a callable and its arguments (that call, with backward where an output needs it); anything else means that the function itself is
    the step.
    """
    function.__dynadiag_benchmark__ = True  # type: ignore[attr-defined]
    return function


def marked_functions(path: Path) -> tuple[str, ...]:
    """The names of the marked functions at the top of a file, in order. The file is parsed, not run; raises UnreadableInputError."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UnreadableInputError(f"{path} cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnreadableInputError(f"{path} is not a Python program") from None
    return tuple(node.name for node in tree.body if isinstance(node, ast.FunctionDef) and any(map(_is_mark, node.decorator_list)))


def _is_mark(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == _MARK) or (
        isinstance(node, ast.Attribute) and node.attr == _MARK and ast.unparse(node.value) in ("dynadiag", "dynadiag.bench")
    )
