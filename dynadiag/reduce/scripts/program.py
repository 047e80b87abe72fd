"""A candidate that is a whole script: its canonical text names it, and one total order says which of two is simpler. Without torch."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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


@dataclass(frozen=True, kw_only=True)
class Facts:
    """`lines` of the program with this `key` ran; `values` are expressions by the text of the statement that gave such a value, of the
    arguments of a function by the line that defines it (`definition_text`).
    """

    key: str = ""
    lines: frozenset[int] = frozenset()
    values: Mapping[str, str] = field(default_factory=dict)
    cpu_s: float = 0.0


FactsOf = Callable[[Program], Facts]


def loop_text(node: ast.For) -> str:
    """The first line of a loop."""
    return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"


def definition_text(name: str, arguments: Sequence[str]) -> str:
    """The first line of a function with these positional arguments."""
    return f"def {name}({', '.join(arguments)})"
