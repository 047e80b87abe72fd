"""The compiler in a script: back ends of its own. They are what fails, so a candidate must have them as they are. Without torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

_COMPILERS = ("backend", "fw_compiler", "bw_compiler", "inference_compiler", "partition_fn", "decompositions")
"""Keywords of `torch.compile`, `aot_autograd` and `aot_module` that take a part of a compiler (torch/_dynamo/backends/common.py, 2.15)."""
_REGISTERS = ("register_backend", "register_debug_backend", "register_experimental_backend")
_FAR = 4
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def back_ends(tree: ast.AST) -> Mapping[str, ast.stmt]:
    """The functions and classes of a script by their names that a back end of its own consists of."""
    nodes = list(ast.walk(tree))
    definitions: dict[str, Definition] = {node.name: node for node in nodes if isinstance(node, Definition)}
    assigned = {
        target.id: node.value for node in nodes if isinstance(node, ast.Assign) for target in node.targets if isinstance(target, ast.Name)
    }
    found: dict[str, ast.stmt] = {}
    waiting = [name for node in nodes for name in _named_by(node, definitions, assigned)]
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in found:
            found[name] = definitions[name]
            waiting += [child.id for child in ast.walk(definitions[name]) if isinstance(child, ast.Name)]
    return found


def texts_of(tree: ast.AST) -> Mapping[str, str]:
    """The same as texts."""
    return {name: ast.unparse(node) for name, node in back_ends(tree).items()}


def _named_by(node: ast.AST, definitions: Mapping[str, Definition], assigned: Mapping[str, ast.expr]) -> Iterator[str]:
    if isinstance(node, Definition) and any(_registers(decorator) for decorator in node.decorator_list):
        yield node.name
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg in _COMPILERS:
                yield from _names_in(keyword.value, definitions, assigned, _FAR)
        if _registers(node.func):
            for argument in node.args:
                yield from _names_in(argument, definitions, {}, _FAR)


def _registers(node: ast.expr) -> bool:
    """Whether it is `register_backend`, of whatever module, or a call of it."""
    inner = node.func if isinstance(node, ast.Call) else node
    return (isinstance(inner, ast.Name) and inner.id in _REGISTERS) or (isinstance(inner, ast.Attribute) and inner.attr in _REGISTERS)


def _names_in(node: ast.expr, definitions: Mapping[str, Definition], assigned: Mapping[str, ast.expr], far: int) -> Iterator[str]:
    """Functions and classes that an expression names. What it reads of other objects (`args.backend`) is none."""
    if isinstance(node, ast.Name):
        if node.id in definitions:
            yield node.id
        elif node.id in assigned and far > 0:
            yield from _names_in(assigned[node.id], definitions, assigned, far - 1)
    elif isinstance(node, ast.Call):
        for expression in (node.func, *node.args, *(keyword.value for keyword in node.keywords)):
            yield from _names_in(expression, definitions, {}, far)
    elif isinstance(node, ast.Lambda):
        yield from (child.id for child in ast.walk(node.body) if isinstance(child, ast.Name) and child.id in definitions)
