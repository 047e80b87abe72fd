"""The command line goes: what `parse_args` gave stands in its place, and then each value where it is read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dynadiag.reduce.scripts.passes.editing import names_in
from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.program import Program, of_tree


def freezing_arguments(values: Mapping[str, Any]) -> Callable[[Program], Iterator[Program]]:
    """The pass for a script whose parser gave these values."""

    def freeze_arguments(program: Program) -> Iterator[Program]:
        for with_reads in (True, False):
            tree = program.tree
            _Freezing(values).visit(tree)
            if with_reads:
                _Reading(values, _holders(program.tree)).visit(tree)
            yield without_unused(of_tree(tree))

    return freeze_arguments


def _is_parsing(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parse_args"


def _holders(tree: ast.Module) -> set[str]:
    """Names that hold the namespace: assigned from `parse_args`, or from a function that returns it."""
    makers = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(child, ast.Return) and _makes(child.value, node) for child in ast.walk(node))
    }
    return {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and (_is_parsing(node.value) or _calls_one_of(node.value, makers))
        for target in node.targets
        for name in names_in(target)
    }


def _makes(value: ast.expr | None, function: ast.FunctionDef) -> bool:
    if _is_parsing(value):
        return True
    own = {name.id for node in ast.walk(function) if isinstance(node, ast.Assign) and _is_parsing(node.value) for name in names_in(node)}
    return isinstance(value, ast.Name) and value.id in own


def _calls_one_of(value: ast.expr, makers: set[str]) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in makers


class _Freezing(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not _is_parsing(node):
            return self.generic_visit(node)
        inside = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return ast.parse(f"__import__('types').SimpleNamespace({inside})", mode="eval").body


class _Reading(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, Any], holders: set[str]) -> None:
        self._values, self._holders = values, holders

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        known = isinstance(node.value, ast.Name) and node.value.id in self._holders and node.attr in self._values
        if known and isinstance(node.ctx, ast.Load):
            return ast.parse(repr(self._values[node.attr]), mode="eval").body
        return self.generic_visit(node)
