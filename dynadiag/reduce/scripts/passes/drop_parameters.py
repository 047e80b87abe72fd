"""Parameters that nothing reads go, together with the arguments for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.reduce.scripts.passes.editing import names_in
from dynadiag.reduce.scripts.program import Program, of_tree


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
