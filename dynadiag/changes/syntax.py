"""The concrete syntax tree of a text (LibCST): its statements, where they stand, and what they say apart from layout and comments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from dynadiag.errors import EditError

Kind = Literal["statements", "part", "header", "elif", "decorators"]
Block = cst.Module | cst.IndentedBlock
Line = cst.SimpleStatementLine | cst.SimpleStatementSuite
Nodes = Sequence[Any]
KEPT: Final = ("leading_lines", "body", "orelse", "lines_after_decorators", "decorators")
"""What a statement with another header keeps."""
_AROUND: Final[dict[Kind, tuple[str, str]]] = {
    "statements": ("", ""),
    "header": ("", "    pass\n"),
    "decorators": ("", "def f():\n    pass\n"),
    "elif": ("if a:\n    pass\n", "    pass\n"),
}
"""What is put around rows until they parse."""


@dataclass(frozen=True)
class Span:
    """Lines of a text, from 1, the end not included."""

    begin: int
    end: int


class Tree:
    """A text and its statements. Raises EditError for a syntax that the parser does not know.

    `around` has the block of each statement, the line of each part of one (`a = 1; b = 2`) and the function or class of each decorator,
    with its place there.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        # LibCST changes spaces on the last lines.
        stem = text.rstrip()
        self.tail = text[len(stem) :]
        self.module = _parsed(stem)
        try:
            self._positions = MetadataWrapper(self.module, unsafe_skip_copy=True).resolve(PositionProvider)
            same = self.module.code == stem
        except RecursionError:
            raise EditError("LibCST does not know its syntax: it nests too deep") from None
        if not same:
            raise EditError("LibCST does not give its text back as it is")
        self.around: dict[Any, tuple[Any, int]] = {}
        for position in self._positions:
            held = getattr(position, "body" if isinstance(position, Block | Line) else "decorators", ())
            self.around |= {each: (position, at) for at, each in enumerate(held)}

    def row(self, node: Any) -> int:
        """The line on which a statement, or the first decorator on it, begins."""
        return int(self._positions[next(iter(getattr(node, "decorators", ())), node)].start.line)

    def end(self, node: Any) -> int:
        """The last line of a statement."""
        return int(self._positions[node].end.line)

    def span(self, kind: Kind, nodes: Nodes) -> Span:
        """The lines of what `found` gives, without what stands above."""
        begin = self.row(nodes[0])
        if kind in ("header", "elif"):
            nodes = [_bare(nodes[0])]
        return Span(begin, begin + sum(map(len, self.codes(nodes))))

    def codes(self, nodes: Nodes) -> Iterator[list[str]]:
        """The rows of each without its indentation; of all but the first with the comments and empty rows above it."""
        for number, node in enumerate(nodes):
            bare = node if number or not hasattr(node, "leading_lines") else node.with_changes(leading_lines=())
            yield rows_of(self.module.code_for_node(bare).rstrip("\r\n"))

    def at(self, rows: range) -> Nodes:
        """The statements of one block that take these lines. Raises EditError where there are no such."""
        first = self.statement(rows.start)
        _, at = self.around[first]
        among = self.beside(first)
        last = next((end for end in range(at, len(among)) if self.end(among[end]) == rows.stop - 1), None)
        if last is None:
            raise EditError("the lines are no statements of their own")
        return among[at : last + 1]

    def statement(self, row: int) -> Any:
        """The statement that begins on a line. Raises EditError where none does."""
        found = next((item for item in self.around if _is_statement(item) and self.row(item) == row), None)
        if found is None:
            raise EditError("no statement begins on the line")
        return found

    def found(self, old: Sequence[str], near: int | None) -> tuple[Kind, Nodes]:
        """What says the same as these rows: on the line `near`, else the only such place. Raises EditError for none, or several."""
        kind, wanted = read(old, None)
        if kind == "statements" and len(wanted) == 1 and isinstance(wanted[0], cst.SimpleStatementLine) and len(wanted[0].body) == 1:
            kind, wanted = "part", wanted[0].body
        places = list(self._places(kind, wanted, near)) if near is not None else []
        places = places or list(self._places(kind, wanted, None))
        if len(places) == 1:
            return kind, places[0]
        if places:
            raise EditError("the same line stands in several places")
        there = any(row.strip().startswith(old[0].strip()) for row in self.text.split("\n"))
        raise EditError("the line is only a part of a statement" if there else "the recorded line is not in the file as it is now")

    def _places(self, kind: Kind, wanted: Nodes, near: int | None) -> Iterator[Nodes]:
        said = [_said(kind, item) for item in wanted]
        starts = (
            self.around
            if kind != "elif"
            else [position for position in self._positions if isinstance(position, cst.If) and position not in self.around]
        )
        for first in starts:
            if type(first) is type(wanted[0]) and near in (None, self.row(first)):
                nodes = [first] if kind == "elif" else self.beside(first)[self.around[first][1] :][: len(wanted)]
                if [_said(kind, node) for node in nodes] == said:
                    yield nodes

    def beside(self, node: Any) -> Nodes:
        """The statements, parts or decorators that one of them stands among, itself included."""
        holder, _ = self.around[node]
        return tuple(holder.decorators if isinstance(node, cst.Decorator) else holder.body)


@lru_cache(maxsize=8)
def tree_of(text: str) -> Tree:
    """The tree of a text, made once."""
    return Tree(text)


def read(rows: Sequence[str], kind: Kind | None, newline: str = "\n") -> tuple[Kind, Nodes]:
    """Rows of code, of this kind or (None) of whichever they are. Raises EditError for what is none."""
    code = "".join(f"{row}{newline}" for row in rows)
    for literal, (before, behind) in _AROUND.items():
        if kind not in (None, literal):
            continue
        try:
            module = cst.parse_module(f"{before}{code}{behind}", cst.PartialParserConfig(default_newline=newline))
        except (cst.ParserSyntaxError, cst.CSTValidationError, RecursionError):
            continue
        nodes = _with_all_lines(module)
        if literal == "decorators":
            nodes = nodes[0].decorators if len(nodes) == 1 else ()
        elif literal == "elif":
            nodes = (nodes[0].orelse,)
        if nodes or not rows:
            return literal, nodes
    raise EditError("the lines are no statements of their own")


def _with_all_lines(module: cst.Module) -> Nodes:
    """The statements of rows of code; what stands above the first and below the last belongs to them, as it would inside of a block."""
    body = list(module.body)
    if body:
        body[0] = body[0].with_changes(leading_lines=[_flush(empty_line) for empty_line in (*module.header, *body[0].leading_lines)])
    return tuple(body)


def _flush(line: cst.EmptyLine) -> cst.EmptyLine:
    """An empty row without indentation, and a comment with that of its block."""
    return line.with_changes(indent=line.comment is not None)


def _is_statement(node: Any) -> bool:
    return isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement)


def _bare(node: Any) -> Any:
    """A statement with nothing but its header."""
    nothing = {name: () if name == "leading_lines" else None for name in ("leading_lines", "orelse") if hasattr(node, name)}
    return node.with_changes(body=cst.SimpleStatementSuite([cst.Pass()]), **nothing)


def _said(kind: Kind, node: Any) -> str:
    """What a node says: its syntax tree as Python has it, without layout and comments."""
    if kind in ("header", "elif"):
        node = _bare(node)
    elif kind == "decorators":
        node = node.decorator
    return ast.dump(ast.parse(cst.Module([]).code_for_node(node)))


def rows_of(text: str) -> list[str]:
    """The rows of a text as Python counts them: only a line feed ends one."""
    return [row.removesuffix("\r") for row in text.removesuffix("\n").split("\n")]


def _parsed(text: str) -> cst.Module:
    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        raise EditError(f"LibCST does not know its syntax: line {error.raw_line}") from None
    except (cst.CSTValidationError, RecursionError) as error:
        raise EditError(f"LibCST does not know its syntax: {str(error).partition(chr(10))[0]}") from None
