"""The statement that a recorded line belongs to, in a form that does not depend on how it is laid out, and its names apart from the rest.

Sources come from strangers' logs: they are parsed, never compiled or run. What cannot be parsed is compared as text.
"""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from dynadiag.facts.user_frames import of_last_run, source_function
from dynadiag.model.location import Location
from dynadiag.model.run import Run, SourceFunction

_LONGEST_LINE = 2_000
_DEEPEST = 60
_MOST_DECORATORS = 8
_LINES_OF_STATEMENT = 40
_STRING_OR_COMMENT = re.compile(r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\#.*""", re.DOTALL)
_OWNER = frozenset({"self", "cls"})
_BLOCKS = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})
# Fields that say nothing, or that not every Python has.
_LEFT_OUT = frozenset({"ctx", "kind", "type_comment", "type_ignores", "type_params"})


class Statement(NamedTuple):
    """What a statement does with its own names left out (`shape`), and these names in order; equal for texts that differ in layout only."""

    shape: str
    names: tuple[str, ...]


NOTHING = Statement("", ())


class FunctionAt(NamedTuple):
    """The function that a place is in: its qualified name where its source was recorded, and that source."""

    name: str
    source: SourceFunction | None


def function_at(where: Location, run: Run) -> FunctionAt:
    """The function of a place, as a person named it."""
    name = (source_function(where.function) or "").rpartition(".")[2]
    found = None if where.line is None else recorded_function(where.file, where.line, run)
    if found is not None and found.name.rpartition(".")[2] == name:
        return FunctionAt(found.name, found)
    return FunctionAt(name, found)


def statement_at(where: Location, run: Run) -> Statement:
    """The innermost statement at a place, only the header of one that has a block.

    It is taken from the recorded source of the function where that has the line; else the line itself is taken. The line on which a
    function begins has none: its shape is empty, and what the function does stands in the place of names.
    """
    code = (where.code or "").strip()
    if code and not code.startswith("@"):
        recorded = None if where.line is None else _recorded_statement(where, run)
        found = of_line(code) if recorded is None else _taken_apart(recorded[0])
        if found != NOTHING:
            return found
    function = function_at(where, run).source
    return NOTHING if function is None else Statement("", _body(function.text))


def statement_lines(where: Location, run: Run) -> range:
    """The lines of the innermost statement at a place, without its block; its one line where no more was recorded."""
    line = where.line or 0
    found = _recorded_statement(where, run)
    if found is None:
        return range(line, line + 1)
    node, moved_by = found
    body: Sequence[ast.AST] = getattr(node, "body", ())
    last = max(node.lineno, _first(body[0]) - 1) if body else _last(node)
    return range(node.lineno + moved_by, last + moved_by + 1)


def _recorded_statement(where: Location, run: Run) -> tuple[ast.stmt, int] | None:
    """The innermost statement at a place in a recorded text, and what its lines are to be moved by."""
    for text, line in _texts_with(where, run):
        rows = text.split("\n")
        if 0 < line <= len(rows) and rows[line - 1].strip() == (where.code or "").strip():
            found = _of_function(text, line)
            if found is not None:
                return found, (where.line or 0) - line
    return None


def _texts_with(where: Location, run: Run) -> Iterator[tuple[str, int]]:
    """Recorded texts that have the line, with its number in them."""
    line = where.line or 0
    function = recorded_function(where.file, line, run)
    if function is not None:
        yield function.text, line - function.line + 1
    for begin in range(line, max(0, line - _LINES_OF_STATEMENT), -1):
        block = run.blocks.get((where.file, begin))
        if block is not None:
            yield block, line - begin + 1


def recorded_function(file: str, line: int, run: Run) -> SourceFunction | None:
    """The innermost recorded function around a line."""
    starts, functions = _functions_by_file(run).get(file, ((), ()))
    for at in range(bisect_right(starts, line) - 1, max(-1, bisect_right(starts, line) - 1 - _DEEPEST), -1):
        if line < functions[at].line + functions[at].text.count("\n") + 1:
            return functions[at]
    return None


def function_with_decorators(location: Location, run: Run) -> SourceFunction | None:
    """The recorded function around a location; where that is a line of decorators, at which its code begins, the decorated one."""
    if location.line is None:
        return None
    found = recorded_function(location.file, location.line, run)
    name = (location.function or "").rpartition(".")[2]
    if found is not None and found.name.rpartition(".")[2] == name:
        return found
    starts, functions = _functions_by_file(run).get(location.file, ((), ()))
    after = functions[bisect_right(starts, location.line) :]
    decorated = next((each for each in after if each.line - location.line <= _MOST_DECORATORS), None)
    return decorated if decorated is not None and decorated.name.rpartition(".")[2] == name else found


def recorded_functions(file: str, run: Run) -> Sequence[SourceFunction]:
    """The recorded functions of a file, by their lines."""
    return _functions_by_file(run).get(file, ((), ()))[1]


@of_last_run
def _functions_by_file(run: Run) -> Mapping[str, tuple[Sequence[int], Sequence[SourceFunction]]]:
    by_file: dict[str, list[SourceFunction]] = {}
    for function in sorted(run.functions, key=lambda source_function: source_function.line):
        by_file.setdefault(function.file, []).append(function)
    return {file: ([item.line for item in functions], functions) for file, functions in by_file.items()}


@lru_cache(maxsize=4096)
def _of_function(text: str, line: int) -> ast.stmt | None:
    """The innermost statement at a line of a text; None where it cannot be told."""
    tree = _parsed(text)
    if tree is None:
        return None
    found: ast.stmt | None = None
    inside: Sequence[ast.AST] = tree.body
    while inside:
        here = next((node for node in inside if _first(node) <= line <= _last(node)), None)
        if here is None:
            break
        found = here if isinstance(here, ast.stmt) else found
        inside = [item for field in _BLOCKS for item in getattr(here, field, ())]
        if line == _first(here) and not isinstance(here, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            break  # `if x: y = 1` begins with its header
    return found


def _first(node: ast.AST) -> int:
    """The first line of a node; a case of `match` has none of its own."""
    return int(getattr(node, "lineno", 0)) or node.pattern.lineno  # type: ignore[attr-defined]


def _last(node: ast.AST) -> int:
    return int(getattr(node, "end_lineno", 0)) or node.body[-1].end_lineno  # type: ignore[attr-defined]


@lru_cache(maxsize=256)
def _parsed(text: str) -> ast.Module | None:
    return parsed_module(text)


@lru_cache(maxsize=4096)
def of_line(code: str) -> Statement:
    """The statement on one line; where the line is only a part of one, its text without comment and blanks."""
    text = code.strip()
    if text and len(text) <= _LONGEST_LINE and "\n" not in text:
        for attempt in (text, f"{text}\n pass", f"{text[2:]}\n pass" if text.startswith("elif") else ""):
            tree = parsed_module(attempt) if attempt else None
            if tree is not None:
                return _taken_apart(tree.body[0]) if tree.body else NOTHING
    return Statement("".join(_STRING_OR_COMMENT.sub(lambda match: match["string"] or "", text).split()), ())


@lru_cache(maxsize=4096)
def _taken_apart(node: ast.stmt) -> Statement:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return NOTHING
    names: list[str] = []
    shape = "".join(_shape(node, names, 0))
    return Statement(shape, tuple(names))


@lru_cache(maxsize=4096)
def _body(text: str) -> tuple[str, ...]:
    """The shapes of all statements in a function, but for its docstring; nothing where its source cannot be parsed."""
    tree = _parsed(text)
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)] if tree is not None else []
    first = getattr(inside[0], "body", [None])[0] if inside else None
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return tuple(_taken_apart(node).shape for node in inside[1:] if not (documented and node is first))


def _shape(value: object, names: list[str], depth: int) -> Iterator[str]:
    """The parts of a tree but for its blocks; names of variables and of what belongs to `self` go to `names`."""
    if depth > _DEEPEST:
        yield "..."
    elif isinstance(value, list):
        for item in value:
            yield from _shape(item, names, depth + 1)
            yield ","
    elif not isinstance(value, ast.AST):
        yield f"{type(value).__name__}:{value!r}"
    else:
        yield f"{type(value).__name__}("
        owned = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id in _OWNER
        for field, part in ast.iter_fields(value):
            named = isinstance(part, str) and (owned or isinstance(value, ast.Name | ast.arg | ast.FunctionDef | ast.ClassDef))
            if named:
                names.append(str(part))
            elif field not in _LEFT_OUT and part not in (None, []) and not (field in _BLOCKS and isinstance(value, ast.stmt)):
                yield f"{field}="
                yield from _shape(part, names, depth + 1)
        yield ")"


def parsed_module(text: str) -> ast.Module | None:
    """The syntax tree of text that a log quoted, None where it is not Python; what Python warns of in it is not shown."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
