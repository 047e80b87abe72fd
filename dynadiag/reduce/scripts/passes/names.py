"""A name gives way to its value, a function to its body, an expression to one of its parts."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from functools import partial

from dynadiag.reduce.scripts.passes.editing import blocks_of, has_long_line, names_in, replaced
from dynadiag.reduce.scripts.program import Program, calls_compiler, of_tree


def inline_names(program: Program) -> Iterator[Program]:
    """One program for each assignment of one name; constants go everywhere, other values where they are read once.

    Names that are bound together (`a, b = 1, f()`) go one by one, with their values.
    """
    yield from _inline_single(program)
    yield from _inline_unpacked(program)


def _inline_unpacked(program: Program) -> Iterator[Program]:
    for block, (_, statements) in enumerate(blocks_of(program.tree)):
        for place, node in enumerate(statements):
            for element in range(_width(node)):
                tree = program.tree
                body = blocks_of(tree)[block][1]
                targets, values = body[place].targets[0].elts, body[place].value.elts  # type: ignore[attr-defined]
                name, value = targets.pop(element).id, values.pop(element)
                body[place] = _assigning(targets, values)
                uses = [name_node for name_node in names_in(tree, ast.Load) if name_node.id == name]
                if any(item.id == name for item in names_in(tree, ast.Store)):
                    continue
                if len(uses) > 1 and not isinstance(value, ast.Constant):
                    continue
                made = of_tree(_Inlining(name, value).visit(tree))
                if not has_long_line(made):
                    yield made


def _width(node: ast.stmt) -> int:
    """How many names are bound to as many values that stand beside each other; 0 for other statements."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Tuple | ast.List):
        return 0
    target = node.targets[0]
    plain = isinstance(target, ast.Tuple | ast.List) and all(isinstance(element, ast.Name) for element in target.elts)
    same = plain and len(target.elts) == len(node.value.elts)  # type: ignore[attr-defined]
    return len(node.value.elts) if same and not any(isinstance(expression, ast.Starred) for expression in node.value.elts) else 0


def _assigning(targets: list[ast.expr], values: list[ast.expr]) -> ast.stmt:
    if not targets:
        return ast.Pass()
    if len(targets) == 1:
        return ast.Assign(targets, values[0])
    return ast.Assign([ast.Tuple(targets, ast.Store())], ast.Tuple(values, ast.Load()))


def _inline_single(program: Program) -> Iterator[Program]:
    for block, (_, statements) in enumerate(blocks_of(program.tree)):
        for place, node in enumerate(statements):
            name = _assigned(node)
            if name is None:
                continue
            tree = program.tree
            body = blocks_of(tree)[block][1]
            value = body.pop(place).value  # type: ignore[attr-defined]
            reads, stores = names_in(tree, ast.Load), names_in(tree, ast.Store)
            uses = [read for read in reads if read.id == name]
            if any(store.id == name for store in stores) or not (len(uses) == 1 or (uses and isinstance(value, ast.Constant))):
                continue
            made = of_tree(_Inlining(name, value).visit(tree))
            if not has_long_line(made):
                yield made


def inline_functions(program: Program) -> Iterator[Program]:
    """One program for each statement that only calls a function of the script that takes nothing."""
    for block, (_, statements) in enumerate(blocks_of(program.tree)):
        for place, node in enumerate(statements):
            called = _called(node)
            functions = (child for child in ast.walk(program.tree) if isinstance(child, ast.FunctionDef) and not child.args.args)
            function = next((item for item in functions if item.name == called), None)
            if function is None or any(isinstance(descendant, ast.Return | ast.Yield | ast.Nonlocal) for descendant in ast.walk(function)):
                continue
            tree = program.tree
            blocks_of(tree)[block][1][place : place + 1] = function.body
            for _, body in blocks_of(tree):
                body[:] = [statement for statement in body if not (isinstance(statement, ast.FunctionDef) and statement.name == called)]
            yield of_tree(tree)


def _assigned(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None else None


def _called(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
        return node.value.func.id if not node.value.args and not node.value.keywords else None
    return None


class _Inlining(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self._name, self._value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copy.deepcopy(self._value) if node.id == self._name and isinstance(node.ctx, ast.Load) else node


def hoist_expressions(program: Program) -> Iterator[Program]:
    """One program for each expression and each of its parts."""
    modules = frozenset(
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(program.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )
    return replaced(program, partial(_parts, modules))


def _parts(modules: frozenset[str], node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Call):
        # What is compiled stays compiled: else the search wanders to a program without a compiler.
        inside = [argument.value if isinstance(argument, ast.Starred) else argument for argument in node.args] + [
            keyword.value for keyword in node.keywords
        ]
        own = [node.func.value] if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value, modules) else []
        if calls_compiler(node.func):
            return []
        # A frame without any operator is not compiled at all: one plain operator may have to stay.
        plain = [ast.BinOp(inside[0], ast.Add(), ast.Constant(1))] if inside and not _is_module(node.func, modules) else []
        return [*inside, *own, *plain]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Load):
        return [] if calls_compiler(node) or _is_module(node.value, modules) else [node.value]
    if isinstance(node, ast.JoinedStr):
        return [ast.Constant("")]
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        return [ast.List([node.elt], ast.Load())]
    return [node.elts[0]] if isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 1 and isinstance(node.ctx, ast.Load) else []


def _is_module(node: ast.expr, modules: frozenset[str]) -> bool:
    """Whether it is an imported module or a module in one: nothing that a value could give way to."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in modules
