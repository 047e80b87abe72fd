"""Arguments go: what the command line gave stands in its place, and parameters that nothing reads go with what is given for them."""

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
                _ArgumentReads(values, _holders(program.tree)).visit(tree)
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


class _ArgumentReads(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, Any], holders: set[str]) -> None:
        self._values, self._holders = values, holders

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        known = isinstance(node.value, ast.Name) and node.value.id in self._holders and node.attr in self._values
        if known and isinstance(node.ctx, ast.Load):
            return ast.parse(repr(self._values[node.attr]), mode="eval").body
        return self.generic_visit(node)


def drop_parameters(program: Program) -> Iterator[Program]:
    """One program for each parameter of a function of the script."""
    functions = [node for node in ast.walk(program.tree) if isinstance(node, ast.FunctionDef)]
    for number, function in enumerate(functions):
        for place in reversed(range(len(function.args.args))):
            if not any(name.id == function.args.args[place].arg for statement in function.body for name in names_in(statement)):
                for with_arguments in (True, False):
                    tree = program.tree
                    target = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)][number]
                    _drop(tree, target, place, with_arguments)
                    yield of_tree(tree)


def _drop(tree: ast.Module, function: ast.FunctionDef, place: int, with_arguments: bool) -> None:
    names = _aliases(tree, function)
    parameter = function.args.args.pop(place)
    defaults = len(function.args.defaults)
    if defaults and place >= len(function.args.args) + 1 - defaults:
        del function.args.defaults[place - (len(function.args.args) + 1 - defaults)]
    is_method = bool(function.args.args) and function.args.args[0].arg == "self"
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and with_arguments):
        called = call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else None
        if called in names:
            call.keywords = [keyword for keyword in call.keywords if keyword.arg != parameter.arg]
            at = place - is_method
            if 0 <= at < len(call.args):
                del call.args[at]


def _aliases(tree: ast.Module, function: ast.FunctionDef) -> set[str]:
    """Names under which a function may be called: its own (of `__init__` that of its class), and what is assigned from one of them."""
    owner = next((node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and function in node.body), None)
    names = {owner} if owner is not None and function.name == "__init__" else {function.name} | ({owner} if owner is not None else set())
    changed = True
    while changed:
        changed = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and {name.id for name in names_in(node.value)} & names:
                new = {name_node.id for target in node.targets for name_node in names_in(target)} - names
                names |= new
                changed = changed or bool(new)
    return names
