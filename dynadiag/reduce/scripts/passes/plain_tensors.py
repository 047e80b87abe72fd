"""A call whose result is assigned or returned gives way to one of its arguments or to a plain tensor: whole models go at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from dynadiag.reduce.scripts.passes.editing import replaced
from dynadiag.reduce.scripts.program import Program, calls_compiler

_TENSORS = ("torch.ones((), requires_grad=True)", "torch.ones(2, 2)")


def plain_tensors(program: Program) -> Iterator[Program]:
    """One program for each such call and each value to put in its place; the last calls first."""
    values = [
        node.value
        for node in ast.walk(program.tree)
        if isinstance(node, ast.Assign | ast.Return) and node.value is not None and not _is_plain(node.value)
    ]
    texts = {ast.dump(value, include_attributes=True) for value in values}
    for text in _tensors(program):
        yield from replaced(program, partial(_instead, texts, text))


def _instead(places: set[str], text: str, node: ast.AST) -> list[ast.AST]:
    return [ast.parse(text, mode="eval").body] if isinstance(node, ast.expr) and ast.dump(node, include_attributes=True) in places else []


def _tensors(program: Program) -> tuple[str, ...]:
    """Only where the script itself says `import torch`."""
    names = {alias.asname or alias.name for node in ast.walk(program.tree) if isinstance(node, ast.Import) for alias in node.names}
    return _TENSORS if "torch" in names else ()


def _is_plain(value: ast.expr) -> bool:
    """Whether nothing is gained: no call, what is compiled, or a tensor already."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    return not calls or any(calls_compiler(call.func) for call in calls) or ast.unparse(value) in _TENSORS
