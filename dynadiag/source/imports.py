"""What the names that a file imports stand for, so that `th.where`, `where` and `torch.where` are one function to every reader.

Trees are made canonical where a text is parsed: of `import torch as th` a `th` in it is a `torch`, of `from torch import where` a `where`
is a `torch.where`. Places in the text stay as they were, and `spelled` writes a node by the names of its program again. Only modules that
readers know by name are resolved; a name that the text binds itself is left alone.
"""

from __future__ import annotations

import ast
import io
import itertools
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dynadiag.facts.statements import parsed_module
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.run import Run

_KNOWN = frozenset(
    ("copy", "functools", "itertools", "logging", "math", "numpy", "operator", "os", "random", "sys", "time", "torch", "warnings")
)
_STATEMENTS = ("import ", "from ")
_WRITTEN = "_written_as"


@dataclass(frozen=True, slots=True)
class Imports:
    """Names and what each stands for, where that is another name: `th` for `torch`, `F` for `torch.nn.functional`."""

    names: frozenset[tuple[str, str]] = frozenset()


USUAL = Imports(frozenset({("F", "torch.nn.functional"), ("nn", "torch.nn"), ("np", "numpy")}))
"""What everybody calls these modules: taken where the imports of a file were not recorded, or show no other."""


def imports_of(file: str | None, run: Run) -> Imports:
    """What the names that a file imports stand for, as far as its imports were recorded."""
    return USUAL if file is None else _imports_by_file(run).get(file, USUAL)


def recorded_names(file: str, run: Run) -> Mapping[str, str]:
    """The whole name that each name stands for which a file imports, of whatever package, as far as its imports were recorded."""
    trees = filter(None, map(parsed_module, _statements_by_file(run).get(file, "").split("\n")))
    return {name: whole for tree in trees for name, whole in imported_names(tree).items()}


@of_last_run
def _imports_by_file(run: Run) -> Mapping[str, Imports]:
    return {file: parse_imports(text) for file, text in _statements_by_file(run).items()}


@of_last_run
def _statements_by_file(run: Run) -> Mapping[str, str]:
    """The recorder writes the imports of a file as one block."""
    found: dict[str, list[str]] = {}
    for (file, _), text in run.blocks.items():
        if text.startswith(_STATEMENTS) and all(row.startswith(_STATEMENTS) for row in text.split("\n")):
            found.setdefault(file, []).append(text)
    return {file: "\n".join(texts) for file, texts in found.items()}


@lru_cache(maxsize=64)
def parse_imports(text: str) -> Imports:
    """The usual names as these import statements change them, one on each row; what cannot be parsed is left out."""
    trees = filter(None, map(parsed_module, text.split("\n")))
    return _with_statements(USUAL, (statement for tree in trees for statement in tree.body))


def _with_statements(imports: Imports, statements: Iterable[ast.AST]) -> Imports:
    names = dict(imports.names)
    for name, origin in _imported(statements):
        names.pop(name, None)
        if origin is not None and origin != name and origin.partition(".")[0] in _KNOWN:
            names[name] = origin
    return Imports(frozenset(names.items()))


def _imported(statements: Iterable[ast.AST]) -> Iterator[tuple[str, str | None]]:
    """Each name that import statements bind, with what it stands for; None for what lies beside the file."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            for each in statement.names:
                yield (each.asname, each.name) if each.asname else (each.name.partition(".")[0],) * 2
        elif isinstance(statement, ast.ImportFrom):
            for each in statement.names:
                yield each.asname or each.name, f"{statement.module}.{each.name}" if statement.module and not statement.level else None


def imported_names(tree: ast.Module) -> Mapping[str, str]:
    """What each name that a module imports, anywhere in it, stands for; not those that lie beside the file."""
    return {name: origin for name, origin in _imported(ast.walk(tree)) if origin is not None}


def parse_canonical(text: str, imports: Imports = USUAL) -> tuple[ast.Module, Imports]:
    """The tree of a module, or of lines of it, made canonical, and what its names stand for. Raises what `ast.parse` raises."""
    tree = ast.parse(text)
    return tree, make_canonical(tree, imports)


def make_canonical(tree: ast.Module, imports: Imports) -> Imports:
    """Writes in the tree what names stand for in their place, and gives the names that it did so for: none that the text binds itself."""
    nodes = tuple(ast.walk(tree))
    inside = _with_statements(imports, (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)))
    names = dict(inside.names)
    for name in {name for node in nodes for name in _bound(node)} if names else ():
        names.pop(name, None)
    if not any(isinstance(node, ast.Name) and node.id in names for node in nodes):
        return Imports(frozenset(names.items()))
    for parent in nodes:
        for field, value in ast.iter_fields(parent):
            if isinstance(value, ast.Name) and value.id in names:
                setattr(parent, field, _chain(names[value.id], value))
            elif isinstance(value, list):
                value[:] = [_chain(names[each.id], each) if isinstance(each, ast.Name) and each.id in names else each for each in value]
    return Imports(frozenset(names.items()))


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node binds, but for imports."""
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, _BINDS) and node.name is not None:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest


_BINDS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar


def _chain(origin: str, name: ast.Name) -> ast.expr:
    """`torch.where` in the place of a `where`; the outermost node knows how it was written."""
    root, *attributes = origin.split(".")
    node: ast.expr = ast.copy_location(ast.Name(root, ast.Load()), name)
    for attribute in attributes:
        node = ast.copy_location(ast.Attribute(node, attribute, ast.Load()), name)
    setattr(node, _WRITTEN, name.id)
    return node


def spelled(node: ast.AST) -> str:
    """The node as code, by the names that its program has for modules."""
    return ast.unparse(_as_written(node))


def _as_written(node: ast.AST) -> ast.AST:
    written = getattr(node, _WRITTEN, None)
    if written is not None:
        return ast.Name(written, ast.Load())
    new = copy(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            setattr(new, field, _as_written(value))
        elif isinstance(value, list):
            setattr(new, field, [_as_written(each) if isinstance(each, ast.AST) else each for each in value])
    return new


TORCH: Final = "torch"


def imports_torch(tree: ast.Module) -> bool:
    """Whether statements of the module's top level import torch or something of it, under whatever name."""
    return any(origin is not None and origin.partition(".")[0] == TORCH for _, origin in _imported(tree.body))


def name_of_torch(imports: Imports) -> str | None:
    """Another name that torch has there: `th`."""
    return min((name for name, origin in imports.names if origin == TORCH), default=None)


def uses_torch(rows: Sequence[str]) -> bool:
    """Whether lines of code name torch itself."""
    return next(_places_of_torch(rows), None) is not None


def with_torch_as(rows: Sequence[str], name: str) -> tuple[str, ...]:
    """The lines of code with another name for torch."""
    new = list(rows)
    for row, column in sorted(_places_of_torch(rows), reverse=True):
        new[row - 1] = f"{new[row - 1][:column]}{name}{new[row - 1][column + len(TORCH) :]}"
    return tuple(new)


def _places_of_torch(rows: Sequence[str]) -> Iterator[tuple[int, int]]:
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
