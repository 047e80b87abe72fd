"""One recorded line of source as a syntax tree, and rewrites of it: a line is often only a part of a statement.

Lines come from strangers' logs. They are parsed, never compiled or run; what cannot be parsed simply yields no rewrite.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from dynadiag.facts.statements import parsed_module
from dynadiag.source.imports import USUAL, Imports, make_canonical

_MAX_CHARACTERS = 1_000
_MAX_OPEN_BRACKETS = 40
_OPENERS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, eq=False)
class SourceLine:
    """A line of source with the tree of what could be parsed of it; `shift` is where the line begins in the parsed text (bytes).

    `complete` says that no bracket stays open and nothing was put before it.
    """

    code: str
    tree: ast.Module | None
    shift: int
    complete: bool = True

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes that are wholly on the line, in the order of the text, outer ones first; empty when nothing could be parsed."""
        if self.tree is None:
            return ()
        end = len(self.code.encode()) + self.shift
        found = [node for node in ast.walk(self.tree) if hasattr(node, "col_offset") and (node.end_col_offset or 0) <= end]  # type: ignore[attr-defined]
        return tuple(sorted(found, key=lambda node: (node.lineno, node.col_offset, -(node.end_col_offset or 0))))  # type: ignore[attr-defined]

    @cached_property
    def parents(self) -> dict[int, ast.AST]:
        """The parent of each node, by `id(node)`."""
        if self.tree is None:
            return {}
        return {id(child): node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @property
    def statement(self) -> ast.stmt | None:
        """The first statement on the line if its header is wholly there, else None."""
        return self.tree.body[0] if self.tree is not None and self.tree.body and self.complete else None

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node that holds this one."""
        return self.parents.get(id(node))

    def text(self, node: ast.AST) -> str:
        """The node as it is written on the line."""
        start, end = self._span(node)
        return self.code.encode()[start:end].decode()

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls whose function is one of the dotted names, as written: `print`, `torch.save`."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and dotted(node.func) in names:
                yield node

    def methods(self, *names: str) -> Iterator[ast.Call]:
        """Calls of a method with one of the names on anything: `x.sum().item()` for "item"."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
                yield node

    def given(self, *names: str) -> tuple[ast.expr, ...]:
        """What calls on the line are given for keyword arguments with one of the names: `True` for "create_graph"."""
        calls = (node for node in self.nodes if isinstance(node, ast.Call))
        return tuple(keyword.value for call in calls for keyword in call.keywords if keyword.arg in names)

    def replaced(self, node: ast.AST, new: str) -> str:
        """The line with the text of `node` replaced."""
        start, end = self._span(node)
        raw = self.code.encode()
        return (raw[:start] + new.encode() + raw[end:]).decode()

    def replaced_all(self, changes: Iterable[tuple[ast.AST, str]]) -> str:
        """The line with the texts of several nodes replaced, none inside another."""
        raw = self.code.encode()
        for (start, end), new in sorted(((self._span(node), new) for node, new in changes), reverse=True):
            raw = raw[:start] + new.encode() + raw[end:]
        return raw.decode()

    def only_call(self) -> ast.Call | None:
        """The call, if the whole line is one complete call whose value nobody uses (`f.write("x")`), else None."""
        statement = self.statement
        if self.tree is None or len(self.tree.body) != 1 or not isinstance(statement, ast.Expr):
            return None
        return statement.value if isinstance(statement.value, ast.Call) and self.text(statement.value) == self.code else None

    def statement_is_call(self) -> bool:
        """Whether the line is, or begins, one call whose value nobody uses."""
        return self.only_call() is not None or self.begins_call()

    def begins_call(self) -> bool:
        """Whether the line is the beginning of one call whose value nobody uses and that goes on below: `print(`."""
        whole = self.tree is not None and len(self.tree.body) == 1 and isinstance(self.tree.body[0], ast.Expr)
        return whole and self.shift == 0 and not self.complete and self.code.rstrip()[-1:] in ("(", ",")

    def outer_call(self) -> ast.Call | None:
        """The outermost call on the line, for wording only."""
        return next((node for node in self.nodes if isinstance(node, ast.Call)), None)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start, end = node.col_offset - self.shift, node.end_col_offset - self.shift  # type: ignore[attr-defined]
        return max(0, start), max(0, min(end, len(self.code.encode())))


@lru_cache(maxsize=512)
def parse_line(code: str | None, imports: Imports = USUAL) -> SourceLine:
    """The line with its tree; a header such as `if x:` or an unclosed call is completed first, so that its parts can be named.

    `imports` are those of its file: what its names stand for is written in the tree.
    """
    text = _without_comment((code or "").strip())
    if not text or len(text) > _MAX_CHARACTERS or "\n" in text or "\0" in text:
        return SourceLine(text, None, 0)
    for prefix, body, suffix in _attempts(text):
        tree = parsed_module(prefix + body + suffix)
        if tree is not None:
            make_canonical(tree, imports)
            shift = len(prefix) - (len(text.encode()) - len(body.encode()))
            return SourceLine(text, tree, shift, complete=not prefix and suffix in ("", " pass", ": pass"))
    return SourceLine(text, None, 0)


def _without_comment(text: str) -> str:
    """The line without a trailing comment; as it is when tokens cannot be read (an open bracket or string only ends them early)."""
    if "#" not in text or "\n" in text or len(text) > _MAX_CHARACTERS:
        return text
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                return text[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError, ValueError):
        return text
    return text


def dotted(node: ast.AST) -> str | None:
    """`torch.optim.Adam` for such an expression of names and dots, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def root_of(node: ast.AST) -> str:
    """The first name of names and dots: `torch` of `torch.optim.Adam`; empty for any other expression."""
    return (dotted(node) or "").partition(".")[0]


def _attempts(text: str) -> Iterator[tuple[str, str, str]]:
    """What to put before and after the text (and the text to keep) until it parses, likeliest first."""
    closers = _closers(text)
    if closers is None:
        return
    yield "", text, closers
    yield "", text, f"{closers} pass"
    yield "", text, f"{closers}: pass"
    if text.startswith("elif"):
        yield "", text[2:], f"{closers} pass"
    yield "{", text, f"{closers}}}"


def _closers(text: str) -> str | None:
    """The brackets that the line leaves open; None if it closes brackets of an earlier line or nests too deep."""
    open_brackets: list[str] = []
    quote = ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _OPENERS:
            open_brackets.append(_OPENERS[character])
        elif character in _OPENERS.values() and (not open_brackets or open_brackets.pop() != character):
            return None
        if len(open_brackets) > _MAX_OPEN_BRACKETS:
            return None
    return "".join(reversed(open_brackets))
