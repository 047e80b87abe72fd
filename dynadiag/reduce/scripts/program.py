"""A candidate that is a whole script: its canonical text names it, and one total order says which of two is simpler. Without torch."""

from __future__ import annotations

import ast
import functools
import hashlib
from dataclasses import dataclass
from typing import Any

from dynadiag.errors import UnreadableInputError
from dynadiag.reduce.scripts.names import undefined_names

Measure = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """A script as `ast.unparse` writes it: without comments, so that equal programs have equal texts."""

    text: str

    @functools.cached_property
    def key(self) -> str:
        """A digest of the text."""
        return hashlib.sha256(self.text.encode("utf-8", "backslashreplace")).hexdigest()[:32]

    @property
    def tree(self) -> ast.Module:
        """A fresh syntax tree, which the caller may change."""
        return ast.parse(self.text)

    @functools.cached_property
    def statements(self) -> int:
        """How many statements it has, at all depths; `pass` and docstrings do not count."""
        return sum(isinstance(node, ast.stmt) and not is_filler(node) for node in ast.walk(self.tree))

    @property
    def nodes(self) -> int:
        """The size that a progress display shows."""
        return self.statements

    @functools.cached_property
    def measure(self) -> Measure:
        """The total order: less is simpler. A compiler that only traces first, since each later question then costs less.

        What is written down (`[torch.randn(2, 3)]`) counts as nothing beside what must be computed or looked up.
        """
        nodes = list(ast.walk(self.tree))
        constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
        return (
            sum(map(_compiles_code, nodes)),
            self.statements,
            _expressions(self.tree),
            sum(map(_weight, constants)),
            len(self.text),
            self.text,
        )


def parsed(source: str, name: str) -> Program:
    """The program behind a source text. Raises UnreadableInputError when it is no Python."""
    try:
        return of_tree(ast.parse(source, name))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UnreadableInputError(f"{name} is not Python: {error}") from error


def of_tree(tree: ast.Module) -> Program:
    """The program that a tree is; blocks that lost all statements get a `pass`."""
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list) and not node.body and not isinstance(node, ast.Module):  # type: ignore[attr-defined]
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
    return Program(ast.unparse(ast.fix_missing_locations(tree)) + "\n")


def why_it_cannot_run(program: Program) -> str | None:
    """Why the program is none, found without running it; None when it may run."""
    try:
        compile(program.text, "candidate", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        return str(error)
    missing = undefined_names(program.tree)
    return f"{', '.join(sorted(missing))} is not defined" if missing else None


def is_filler(node: ast.AST) -> bool:
    """Whether a statement does nothing: `pass`, or a constant on a line of its own."""
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def calls_compiler(node: ast.AST) -> bool:
    """Whether an expression is `torch.compile`, `model.compile` or `compile` imported from torch."""
    return (isinstance(node, ast.Attribute) and node.attr == "compile") or (isinstance(node, ast.Name) and node.id == "compile")


def _compiles_code(node: ast.AST) -> bool:
    """Whether a call or a bare decorator compiles with more than Dynamo alone."""
    if isinstance(node, ast.Call) and calls_compiler(node.func):
        return not any(
            keyword.arg == "backend" and isinstance(keyword.value, ast.Constant) and keyword.value.value == "eager"
            for keyword in node.keywords
        )
    return isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and any(map(calls_compiler, node.decorator_list))


def _expressions(node: ast.AST) -> int:
    """How many expressions and names of parts stand in it, those of values that are written down left out."""
    if isinstance(node, ast.expr) and _is_written_down(node):
        return 0
    own = isinstance(node, ast.expr | ast.alias | ast.arg | ast.keyword)
    return own + sum(map(_expressions, ast.iter_child_nodes(node)))


def _is_written_down(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.List | ast.Tuple):
        return all(map(_is_written_down, node.elts))
    if isinstance(node, ast.Dict):
        return all(map(_is_written_down, [expression for expression in (*node.keys, *node.values) if expression is not None]))
    if isinstance(node, ast.UnaryOp):
        return _is_written_down(node.operand)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in _TENSORS:
        return all(map(_is_written_down_or_dtype, [*node.args, *(keyword.value for keyword in node.keywords)]))
    return False


_TENSORS = ("torch.randn", "torch.randint", "torch.ones", "torch.zeros")


def _is_written_down_or_dtype(node: ast.expr) -> bool:
    return _is_written_down(node) or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch")


def _weight(constant: object) -> int:
    if constant is None or constant is False or (isinstance(constant, int | float) and constant == 0):
        return 1
    return 2 if constant == 1 else 3 + len(repr(constant))
