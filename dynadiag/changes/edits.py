"""Changes of a source text: statements of its concrete syntax tree are replaced, everything else stays as it is, byte by byte."""

from __future__ import annotations

import ast
import difflib
import io
import itertools
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import libcst as cst
from libcst import matchers

from dynadiag.changes.syntax import KEPT, Kind, Nodes, Span, Tree, read, rows_of, tree_of
from dynadiag.errors import EditError

__all__ = ["Edit", "Span", "alone", "applied", "codes", "dedented", "patch", "placed", "with_first", "with_parts", "with_value"]


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Statements of a file to replace. `old` are rows of code without indentation: statements, a header (`for x in xs:`) or decorators,
    which begin at line `near` (from 1) or stand alone.

    Where `old` is empty, `new` is put before the statement that begins at `near`, else behind the imports of the file. `observed` takes
    the place of `new` in the runs of a proof, and `seen` that of `old` where an earlier change made it otherwise there. `needs_torch`: the
    file gets an `import torch`.
    """

    file: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    near: int | None = None
    observed: tuple[str, ...] | None = None
    seen: tuple[str, ...] | None = None
    needs_torch: bool = False


def applied(text: str, edit: Edit) -> tuple[str, Span]:
    """The text after the edit, and where the new lines are. Raises EditError where it does not fit."""
    changed, was = _made(text, edit)
    return changed, Span(was.begin, was.end + changed.count("\n") - text.count("\n"))


def placed(text: str, edit: Edit) -> Span:
    """Where the old lines are; empty where there are none. Raises EditError where the edit cannot be made."""
    return _made(text, edit)[1]


def dedented(text: str, rows: range) -> tuple[str, ...]:
    """These lines of a text without the indentation of the first. Raises EditError where they are no whole statements."""
    return tuple(row for code in codes(text, rows) for row in code)


def codes(text: str, rows: range) -> list[list[str]]:
    """The same for each statement; those of all but the first have the comments and empty rows above it."""
    tree = tree_of(text)
    return list(tree.codes(tree.at(rows)))


def alone(text: str, statement: ast.stmt) -> tuple[str, ...]:
    """The rows of a statement without its indentation. Raises EditError where others stand on its lines."""
    rows = dedented(text, range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    if len(ast.parse("\n".join(rows)).body) != 1:
        raise EditError("other statements stand on the same line")
    return rows


def with_parts(
    text: str, statement: ast.stmt, parts: Sequence[tuple[ast.expr, Callable[[str], str]]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rows of a statement (of one with a block: its header), and the same with each part written as its function says.

    Parts do not overlap. Raises EditError where other statements stand on the same lines, or a text goes over several.
    """
    if any(isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno for node in ast.walk(statement)):
        raise EditError("a text over several lines stands there")
    block = getattr(statement, "body", None)
    rows = range(statement.lineno, block[0].lineno if block else (statement.end_lineno or statement.lineno) + 1)
    old = tuple(textwrap.dedent("\n".join(rows_of(text)[row - 1] for row in rows)).split("\n")) if block else alone(text, statement)
    lines = [row.encode() for row in rows_of(text)]
    for node, change in sorted(parts, key=lambda part: (part[0].lineno, part[0].col_offset), reverse=True):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before, behind = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        new = change(ast.get_source_segment(text, node) or "").encode()
        lines[first : last + 1] = [before + new + behind, *[b""] * (last - first)]
    kept = [lines[row - 1].decode() for row in rows]
    return old, tuple(row for row in textwrap.dedent("\n".join(kept)).split("\n") if row.strip())


def with_value(rows: Sequence[str], change: Callable[[Any], Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rows of one statement (`name = value`, or a value alone) with another value, and those of the value that it had."""
    module: Any = cst.parse_module("\n".join(rows))
    value = module.body[0].body[0].value
    return tuple(rows_of(module.deep_replace(value, change(value)).code)), tuple(rows_of(module.code_for_node(value)))


@lru_cache(maxsize=64)
def _made(text: str, edit: Edit) -> tuple[str, Span]:
    """The text after an edit, and where the old lines were."""
    tree = tree_of(text)
    if edit.old:
        kind, nodes = tree.found(edit.old, edit.near)
        was = tree.span(kind, nodes)
        changed = _replaced(tree, kind, nodes, edit.new)
    else:
        changed, row = _added(tree, edit)
        was = Span(row, row)
    try:
        ast.parse(changed)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise EditError(f"the text does not parse: {error}") from None
    return changed, was


def _replaced(tree: Tree, kind: Kind, nodes: Nodes, rows: Sequence[str]) -> str:
    """The text with these rows in the place of nodes that the tree has found."""
    if kind == "part":
        line, _ = tree.around[nodes[0]]
        new = _read(tree, rows, "statements")
        plain = all(isinstance(item, cst.SimpleStatementLine) for item in new) and len(new) < 2
        if plain and (new or len(line.body) > 1 or line not in tree.around):
            return _with(tree, line, _with_part(tree, line, nodes[0], new))
        if len(line.body) > 1 or line not in tree.around:
            raise EditError("other statements stand on the same line")
        kind, nodes = "statements", (line,)
    new = _read(tree, rows, kind)
    if kind in ("header", "elif"):
        (node,) = nodes
        *before, head = new
        if type(head) is not type(node):
            raise EditError("the line becomes another kind of statement")
        keep = KEPT if not getattr(head, "decorators", ()) else [name for name in KEPT if name != "decorators"]
        new = [*before, head.with_changes(**{name: getattr(node, name) for name in keep if hasattr(node, name)})]
        if not before:
            return _with(tree, node, new[0])
        new[-1] = new[-1].with_changes(leading_lines=head.leading_lines)
    elif kind == "decorators" and len(new) == len(nodes) == 1:
        new = [new[0].with_changes(trailing_whitespace=nodes[0].trailing_whitespace)]
    if new:
        comments = _lost(nodes, new) if kind == "statements" else ()
        new = [new[0].with_changes(leading_lines=(*nodes[0].leading_lines, *comments, *new[0].leading_lines)), *new[1:]]
    return _spliced(tree, *tree.around[nodes[0]], len(nodes), new, () if new else nodes[0].leading_lines)


def _with_part(tree: Tree, line: Any, node: Any, new: Nodes) -> Any:
    """A line with the parts of a new one in the place of one of its own."""
    at = line.body.index(node)
    parts = [*line.body[:at], *(part for item in new for part in item.body), *line.body[at + 1 :]] or [cst.Pass()]
    if node is line.body[-1]:
        parts[-1] = parts[-1].with_changes(semicolon=node.semicolon)
    elif new:
        last = at + len(new[0].body) - 1
        parts[last] = parts[last].with_changes(semicolon=node.semicolon)
    changes: dict[str, Any] = {"body": parts}
    if new and line.trailing_whitespace.comment is None and new[0].trailing_whitespace.comment is not None:
        changes["trailing_whitespace"] = new[0].trailing_whitespace
    if new and line in tree.around:
        changes["leading_lines"] = (*line.leading_lines, *_lost([node], new))
    return line.with_changes(**changes)


def _added(tree: Tree, edit: Edit) -> tuple[str, int]:
    """The text with the new rows before a statement or behind the imports, and the line where they begin."""
    new = _read(tree, edit.new, "statements")
    empty = sum(1 for _ in itertools.takewhile(lambda row: not row.strip(), reversed(edit.new)))
    below: list[Any] = [cst.EmptyLine(indent=False)] * empty
    if edit.near is None:
        at = _behind_imports(tree.module)
        return _spliced(tree, tree.module, at, 0, new, below), tree.end(tree.module.body[at - 1]) + 1
    node = tree.statement(edit.near)
    above = list(node.leading_lines)
    own = list(itertools.takewhile(lambda line: line.comment is not None, reversed(above)))[::-1]
    above = above[: len(above) - len(own)]
    new = [new[0].with_changes(leading_lines=(*above, *new[0].leading_lines)), *new[1:]]
    new.append(node.with_changes(leading_lines=(*below, *own)))
    return _spliced(tree, *tree.around[node], 1, new, ()), edit.near - len(own)


def _spliced(tree: Tree, holder: Any, at: int, count: int, new: Nodes, below: Iterable[Any]) -> str:
    """The text with `new` in the place of `count` statements or decorators of a holder; `below` are empty rows and comments behind it."""
    name = "decorators" if isinstance(holder, cst.FunctionDef | cst.ClassDef) else "body"
    there = getattr(holder, name)
    behind = list(there[at + count :])
    foot = "lines_after_decorators" if name == "decorators" else "footer"
    changes: dict[str, Any] = {}
    if behind:
        behind[0] = behind[0].with_changes(leading_lines=(*below, *behind[0].leading_lines))
    else:
        changes[foot] = (*below, *getattr(holder, foot))
    changes[name] = [*there[:at], *new, *behind]
    if not changes[name] and isinstance(holder, cst.IndentedBlock):
        changes[name] = [cst.SimpleStatementLine([cst.Pass()])]
    return _with(tree, holder, holder.with_changes(**changes))


def _with(tree: Tree, old: Any, new: Any) -> str:
    module = new if old is tree.module else tree.module.deep_replace(old, new)
    return f"{cst.ensure_type(module, cst.Module).code}{tree.tail}"


def _read(tree: Tree, rows: Sequence[str], kind: Kind) -> list[Any]:
    return list(read(rows, kind, tree.module.default_newline)[1]) if rows else []


def _lost(old: Nodes, new: Nodes) -> list[cst.EmptyLine]:
    """The comments in statements, beside and in them, that new ones do not have."""
    bare = (item.with_changes(leading_lines=()) if hasattr(item, "leading_lines") else item for item in old)
    had, have = ([match for node in nodes for match in matchers.findall(node, matchers.Comment())] for nodes in (bare, new))
    left = Counter(cst.ensure_type(cstnode, cst.Comment).value for cstnode in had)
    left -= Counter(cst.ensure_type(element, cst.Comment).value for element in have)
    return [cst.EmptyLine(comment=cst.Comment(value)) for value in left.elements()]


def _behind_imports(module: cst.Module) -> int:
    """The place behind the imports that the module begins with, of which one is of torch. Raises EditError where none is."""
    place, named = 0, False
    for at, line in enumerate(module.body):
        parts = line.body if isinstance(line, cst.SimpleStatementLine) else ()
        if parts and all(isinstance(part, cst.Import | cst.ImportFrom) for part in parts):
            place, named = at + 1, named or any(map(_binds_torch, parts))
        elif named and not (at == 0 and module.get_docstring() is not None):
            break
    if not named:
        raise EditError("the script does not import torch at its top with `import torch`, so there is no place for the option")
    return place


def _binds_torch(statement: Any) -> bool:
    """`import torch`, also under another name, and `import torch.nn`, but not `import torch.nn as nn`."""
    names = statement.names if isinstance(statement, cst.Import) else ()
    return any(
        (name.evaluated_name.partition(".")[0] if name.evaluated_alias is None else name.evaluated_name) == "torch" for name in names
    )


_FUTURE = matchers.SimpleStatementLine(
    [matchers.AtLeastN(matchers.ImportFrom(module=matchers.Name("__future__")), n=1), matchers.ZeroOrMore()]
)


def with_first(text: str, row: str) -> str:
    """The text with an import before all others but those of `__future__`; a docstring and the comments at the top stay above."""
    tree = tree_of(text)
    module, body = tree.module, list(tree.module.body)
    at = 1 if module.get_docstring() is not None else 0
    while at < len(body) and matchers.matches(body[at], _FUTURE):
        at += 1
    if at == 0 and body:  # `#!`, a coding line, what the file is: the rest of the comments belongs to the first statement
        top = list(itertools.takewhile(lambda line: line.comment is not None, module.header))
        body[0] = body[0].with_changes(leading_lines=(*module.header[len(top) :], *body[0].leading_lines))
        module = module.with_changes(header=top)
    module = module.with_changes(body=[*body[:at], *_read(tree, [row], "statements"), *body[at:]])
    return f"{module.code}{tree.tail}"


def patch(old: Mapping[str, str], new: Mapping[str, str], root: Path) -> str:
    """The changes of files (by path) as `git apply` takes them, names relative to `root`; a file that is not in `old` is a new one."""
    parts: list[str] = []
    for file in sorted(new):
        if old.get(file) == new[file]:
            continue
        name = Path(file).relative_to(root).as_posix()
        before, after = (list(io.StringIO(text.get(file, ""))) for text in (old, new))
        parts.append(f"diff --git a/{name} b/{name}\n" + ("" if file in old else "new file mode 100644\n"))
        for row in difflib.unified_diff(before, after, f"a/{name}" if file in old else "/dev/null", f"b/{name}"):
            parts.append(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n")
    return "".join(parts)
