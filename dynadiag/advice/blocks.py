"""The statement that broke with its body and what stands behind it in its block, where the run recorded it.

The text comes from strangers' logs: it is parsed, never compiled or run; what cannot be parsed or does not begin with the line is no block.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dynadiag.advice.source import dotted, parse_line, parsed_module


@dataclass(frozen=True, slots=True)
class Block:
    """The statements from the broken line on; `is_elif` when the first is an `elif`, which cannot be rewritten alone."""

    code: str
    statements: tuple[ast.stmt, ...]
    is_elif: bool = False

    def text(self, node: ast.AST) -> str:
        """The node as it is written."""
        return ast.get_source_segment(self.code, node) or ""

    def decided_later(self, broken: Container[str] = ()) -> str | None:
        """The first line behind the broken assignment that decides a branch or a loop by what it gave, or None where none is shown.

        A line among `broken` is left out: it breaks the graph already, whatever becomes of the first one.
        """
        first = self.statements[0]
        if not isinstance(first, ast.Assign | ast.For):
            return None
        bound, inside = (first.target, first.body) if isinstance(first, ast.For) else (first, [])
        names = {node.id for node in ast.walk(bound) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        return next((one for one in self._decisions((*inside, *self.statements[1:]), names) if one not in broken), None)

    def _decisions(self, statements: Sequence[ast.stmt], names: set[str]) -> Iterator[str]:
        for statement in statements:
            for node in ast.walk(statement):
                test = node.test if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp) else None
                if test is not None and not _asks_for_none(test) and names & _read(test):
                    yield self.text(node).partition("\n")[0].strip()
            if isinstance(statement, ast.Assign) and names & _read(statement.value):
                names |= {one.id for target in statement.targets for one in ast.walk(target) if isinstance(one, ast.Name)}


@lru_cache(maxsize=512)
def parse_block(text: str | None, line: str | None) -> Block | None:
    """The longest run of whole statements at the beginning of the text; None when the first of them does not begin with the line."""
    code, wanted = text or "", parse_line(line).code
    if not wanted or not code.startswith(wanted) or "\0" in code:
        return None
    is_elif = code.startswith("elif ")
    rows = (code[2:] if is_elif else code).split("\n")[:60]
    for end in range(len(rows), 0, -1):
        tree = parsed_module("\n".join(rows[:end]))
        if tree is not None and tree.body:
            cut = end < len(rows)
            return Block("\n".join(rows[:end]), tuple(tree.body), is_elif) if not (cut and len(tree.body) == 1 and end == 1) else None
    return None


def _asks_for_none(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in test.ops)


def _read(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def is_pure(node: ast.expr) -> bool:
    """Whether computing the expression in any case does no harm that its text shows: no in-place call, no text, no assignment inside."""
    for one in ast.walk(node):
        if isinstance(
            one, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom | ast.Lambda | ast.Dict | ast.List | ast.Tuple | ast.JoinedStr
        ):
            return False
        if isinstance(one, ast.Constant) and not isinstance(one.value, int | float):
            return False
        if isinstance(one, ast.Call):
            name = one.func.attr if isinstance(one.func, ast.Attribute) else dotted(one.func) or ""
            if name.endswith("_") or name in _EFFECTS or any(keyword.arg in ("inplace", "out") for keyword in one.keywords):
                return False
    return True


_EFFECTS = frozenset(
    ("pop", "popleft", "append", "item", "tolist", "numpy", "cpu", "next", "input", "open", "print", "len", "int", "float")
)
