"""Definitions become plainer: a class a function, a submodule the identity, the compiler Dynamo alone."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from dynadiag.reduce.scripts.passes.editing import blocks_of, edited, names_in
from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.program import Program, calls_compiler, of_tree


def plain_definitions(program: Program) -> Iterator[Program]:
    """One program for each class, each unread assignment, and each function or class that might be compiled instead."""
    yield from _functions_for_classes(program)
    yield from _unread(program)
    yield from _other_targets(program)


def _functions_for_classes(program: Program) -> Iterator[Program]:
    for block, (_, statements) in enumerate(blocks_of(program.tree)):
        for place, node in enumerate(statements):
            if not (isinstance(node, ast.ClassDef) and len(node.body) == 1 and isinstance(node.body[0], ast.FunctionDef)):
                continue
            tree = program.tree
            body = blocks_of(tree)[block][1]
            made = body[place].body[0]  # type: ignore[attr-defined]
            if not made.args.args or any(name.id == made.args.args[0].arg for statement in made.body for name in names_in(statement)):
                continue
            made.args.args.pop(0)
            made.name = node.name
            body[place] = made
            _Uncalled(node.name).visit(tree)
            yield of_tree(tree)


def _unread(program: Program) -> Iterator[Program]:
    for block, (_, statements) in enumerate(blocks_of(program.tree)):
        for place, node in enumerate(statements):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                tree = program.tree
                blocks_of(tree)[block][1][place] = ast.Expr(node.value)
                yield of_tree(tree)


def _other_targets(program: Program) -> Iterator[Program]:
    """Compile a part of what was compiled: `torch.compile(Block())` for `torch.compile(Net())`."""
    tree = program.tree
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for name in reversed(list(dict.fromkeys(names))):
        tree = program.tree
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and calls_compiler(node.func) and node.args]
        if calls:
            calls[0].args[0] = ast.parse(f"{name}()" if name in classes else name, mode="eval").body
            yield of_tree(tree)


class _Uncalled(ast.NodeTransformer):
    """`Name()` becomes `Name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.func if isinstance(node.func, ast.Name) and node.func.id == self._name and not node.args else node


_IDENTITY = "torch.nn.Identity()"


def identity_modules(program: Program) -> Iterator[Program]:
    """One program for each group of `self.NAME = CALL(...)` in `__init__`."""
    if not any(
        isinstance(node, ast.Import) and any(name.name == "torch" and not name.asname for name in node.names) for node in program.tree.body
    ):
        return
    count = len(_modules(program.tree))
    groups = [range(count), range(count // 2), range(count // 2, count), *([number] for number in reversed(range(count)))]
    for group in dict.fromkeys(tuple(sequence) for sequence in groups if sequence):
        tree = program.tree
        for number, node in enumerate(_modules(tree)):
            if number in group:
                node.value = ast.parse(_IDENTITY, mode="eval").body
        yield without_unused(of_tree(tree))


def _modules(tree: ast.Module) -> list[ast.Assign]:
    makers = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return [node for maker in makers for node in ast.walk(maker) if isinstance(node, ast.Assign) and _makes_module(node)]


def _makes_module(node: ast.Assign) -> bool:
    target = node.targets[0]
    of_self = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return of_self and isinstance(node.value, ast.Call) and ast.unparse(node.value) != _IDENTITY and not calls_compiler(node.value.func)


_OTHERS = ("backend", "mode", "options")


def eager_backend(program: Program) -> Iterator[Program]:
    """All compile calls at once, then each alone."""
    tree = program.tree
    for node in list(ast.walk(tree)):
        for change in _changes(node):
            change()
    yield of_tree(tree)
    yield from edited(program, _changes)


def _changes(node: ast.AST) -> list[Callable[[], None]]:
    if isinstance(node, ast.Call) and calls_compiler(node.func):
        return [lambda: _make_eager(node)]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and any(map(calls_compiler, node.decorator_list)):
        return [lambda: _decorate(node)]
    return []


def _make_eager(call: ast.Call) -> None:
    call.keywords = [keyword for keyword in call.keywords if keyword.arg not in _OTHERS]
    call.keywords.append(ast.keyword("backend", ast.Constant("eager")))


def _decorate(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    eager = [ast.keyword("backend", ast.Constant("eager"))]
    node.decorator_list = [ast.Call(decorator, [], eager) if calls_compiler(decorator) else decorator for decorator in node.decorator_list]
