"""Advice for graphs that their back end refused: by the operator that it names, whose line torch records."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.changes.break_context import BreakContext, Rule, Said, line_name, option, quoted, rewrite, withhold
from dynadiag.source.line import dotted

_AT_OPERATOR = re.compile(r"^ *(?:Original traceback|Found from ?): ?$", re.MULTILINE)
_CAPTURES_INDEX = (2, 15)  # the first seen to: on 2.11 the back end raises another error then
# `table[step]` with a tensor without dimensions: torch reads it as a number, which the back end's tensors do not have.
_INDEXED = re.compile(r"_local_scalar_dense(?:.|\n)*?call_function\[target=\w*operator\.getitem\]\(args = \(%\w+, %\w+\)")


def refused(context: BreakContext) -> Iterator[Said]:
    """`table[step]` with a tensor without dimensions: index with one more, or capture numbers. Nothing for what else a back end refuses."""
    if _AT_OPERATOR.search(context.gb_context) is None:
        yield from withhold("no line of yours breaks the graph: the back end failed on the graph that ends here")
        return
    if _INDEXED.search(context.gb_context):
        yield from _indexed(context)
    yield from withhold(f"the back end refused what {line_name(context)} computes, for the reason that it gives")


def _indexed(context: BreakContext) -> Iterator[Said]:
    found = [
        node
        for node in context.line.nodes
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and dotted(node.slice) is not None
        and not _is_written(context.line.parent(node))
    ]
    if len(found) == 1:
        index = context.line.text(found[0].slice)
        new = f"{context.line.text(found[0].value)}[{index}.view(1)][0]"
        text = (
            f"Index with one dimension more: {quoted(index)} is a tensor without dimensions, which torch reads as a number to index with, "
            "and a graph has no numbers. The values are the same, in a copy"
        )
        yield from rewrite(context, "index-with-dimension", context.line.replaced(found[0], new), text)
    if context.torch is not None and context.torch >= _CAPTURES_INDEX:
        text = "Let Dynamo capture numbers that are read from tensors (without recompiles for their values)"
        yield from option(context, "index-capture", "capture_scalar_outputs", " = True", text)


def _is_written(parent: ast.AST | None) -> bool:
    return isinstance(parent, ast.Attribute) and parent.attr.endswith("_")


REFUSED: dict[str, tuple[Rule, ...]] = {"GB0219": (refused,)}
