"""Changes of a source text: lines replaced, everything else as it was, character by character, and proven so by the syntax trees."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.advice.source import parse_line
from dynadiag.errors import DynadiagError


class EditError(DynadiagError):
    """An edit that cannot be made; the message says why in one clause."""

    slug = "not-applicable"


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Lines of a file to replace. `old` are lines of code without indentation, found at line `near` (from 1) or wherever they stand alone.

    Where `old` is empty, `new` is put behind the imports of the file. `observed` takes the place of `new` in the runs of a proof.
    """

    file: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    near: int | None = None
    observed: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Span:
    """Lines of a text, from 1, the end not included."""

    begin: int
    end: int


def applied(text: str, edit: Edit) -> tuple[str, Span]:
    """The text after the edit, and where the new lines are. Raises EditError where it does not fit, or changes anything else."""
    lines = text.splitlines(keepends=True)
    tree = _parsed(text)
    was = _found(lines, edit) if edit.old else _behind_imports(tree, len(lines))
    rows = lines[was.begin - 1 : was.end - 1]
    indent = rows[0][: len(rows[0]) - len(rows[0].lstrip())] if rows else ""
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    comment = _comment(rows[0], edit.old[0]) if len(rows) == 1 and len(edit.new) == 1 else ""
    new = [f"{indent}{row}{comment}{ending}" if row.strip() else ending for row in edit.new]
    if not new and rows and _is_whole_block(tree, was):
        new = [f"{indent}pass{ending}"]
    before = lines[: was.begin - 1]
    if before and not before[-1].endswith("\n"):
        before[-1] += ending
    changed = "".join([*before, *new, *lines[was.end - 1 :]])
    now = Span(was.begin, was.begin + len(new))
    if _outline(tree, was) != _outline(_parsed(changed), now):
        raise EditError("the change would touch more than these lines")
    return changed, now


def dedented(text: str, rows: range) -> tuple[str, ...]:
    """These rows of a text without the indentation of the first. Raises EditError where one has less."""
    found = text.splitlines()[rows.start - 1 : rows.stop - 1]
    indent = len(found[0]) - len(found[0].lstrip())
    if any(row[:indent].strip() for row in found):
        raise EditError("the lines are not indented as a block")
    return tuple(row[indent:] for row in found)


def _found(lines: Sequence[str], edit: Edit) -> Span:
    """Where the old lines stand: at the recorded line, else at the only place that has them."""
    places = [at for at in range(1, len(lines) + 1) if _stands(lines, at, edit.old)]
    if edit.near is not None and edit.near in places:
        return Span(edit.near, edit.near + len(edit.old))
    if len(places) != 1:
        raise EditError("the recorded line is not in the file as it is now" if not places else "the same line stands in several places")
    return Span(places[0], places[0] + len(edit.old))


def _stands(lines: Sequence[str], at: int, old: Sequence[str]) -> bool:
    rows = lines[at - 1 : at - 1 + len(old)]
    if len(rows) != len(old):
        return False
    there = textwrap.dedent("".join(rows)).splitlines()
    return all(_normal(one) == _normal(two) for one, two in zip(there, old, strict=True))


def _normal(row: str) -> tuple[int, str]:
    """The indentation and the code of a row, without a comment."""
    return len(row) - len(row.lstrip()), parse_line(row).code


def _comment(row: str, code: str) -> str:
    """What stands behind the code on its line: two spaces and a comment."""
    behind = row.strip().removeprefix(code)
    return f"  {behind.strip()}" if row.strip().startswith(code) and behind.strip().startswith("#") else ""


def _behind_imports(tree: ast.Module, count: int) -> Span:
    """Behind the imports that the module begins with, of which one names torch. Raises EditError where none does."""
    place, named = 0, False
    for at, statement in enumerate(tree.body):
        docstring = at == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not isinstance(statement, ast.Import | ast.ImportFrom) and not docstring:
            if named:
                break
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            place = statement.end_lineno or statement.lineno
            named = named or _binds_torch(statement)
    if not named:
        raise EditError("the script does not import torch at its top with `import torch`, so there is no place for the option")
    if any(one.lineno <= place < (one.end_lineno or one.lineno) for one in tree.body):
        raise EditError("the imports share their line with other statements")
    return Span(min(place, count) + 1, min(place, count) + 1)


def _binds_torch(statement: ast.Import | ast.ImportFrom) -> bool:
    names = statement.names if isinstance(statement, ast.Import) else ()
    return any((one.asname or one.name.partition(".")[0]) == "torch" and one.name.partition(".")[0] == "torch" for one in names)


def _is_whole_block(tree: ast.Module, span: Span) -> bool:
    """Whether the lines are all that a block holds: it needs a statement."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and not isinstance(node, ast.Module):
                first, last = block[0].lineno, block[-1].end_lineno or block[-1].lineno
                if span.begin <= first and last < span.end:
                    return True
    return False


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise EditError(f"the text does not parse: {error}") from None


def _outline(tree: ast.Module, span: Span) -> list[str]:
    """All statements outside of the lines, in order: what they say without the statements inside them."""
    return list(_said(tree, span, 0))


def _said(node: ast.AST, span: Span, depth: int) -> Iterator[str]:
    for field, value in ast.iter_fields(node):
        block = value if isinstance(value, list) and value and isinstance(value[0], ast.stmt | ast.excepthandler | ast.match_case) else None
        if block is None:
            continue
        yield f"{depth} {field}"
        for one in block:
            first = getattr(one, "lineno", None)
            if first is not None and span.begin <= first < span.end and (one.end_lineno or first) < span.end:
                continue
            body = getattr(one, "body", None)
            # Of a loop whose first line alone is replaced, the kind and what is in it stay.
            alone = first is not None and span.begin <= first < span.end and body and body[0].lineno >= span.end
            yield f"{depth} {type(one).__name__ if alone else _header(one)}"
            decorators: list[ast.expr] = getattr(one, "decorator_list", [])
            yield from (f"{depth} @{ast.dump(each)}" for each in decorators if not span.begin <= each.lineno < span.end)
            yield from _said(one, span, depth + 1)


def _header(node: ast.AST) -> str:
    """The node as a dump without the blocks in it and the decorators on it."""
    parts = []
    for field, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt | ast.excepthandler | ast.match_case):
            continue
        if field == "decorator_list":
            continue
        dumped = [ast.dump(one) if isinstance(one, ast.AST) else repr(one) for one in (value if isinstance(value, list) else [value])]
        parts.append(f"{field}={dumped}")
    return f"{type(node).__name__}({', '.join(parts)})"


def patch(old: Mapping[str, str], new: Mapping[str, str], root: Path) -> str:
    """The changes of files (by path) as `git apply` takes them, names relative to `root`; a file that is not in `old` is a new one."""
    parts: list[str] = []
    for file in sorted(new):
        if old.get(file) == new[file]:
            continue
        name = Path(file).relative_to(root).as_posix()
        before, after = (text.get(file, "").splitlines(keepends=True) for text in (old, new))
        parts.append(f"diff --git a/{name} b/{name}\n" + ("" if file in old else "new file mode 100644\n"))
        for row in difflib.unified_diff(before, after, f"a/{name}" if file in old else "/dev/null", f"b/{name}"):
            parts.append(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n")
    return "".join(parts)
