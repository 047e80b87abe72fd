"""Statements go, or parts of them: what never runs, blocks around statements, arguments, decorators, elements."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import Any

from dynadiag.reduce.scripts.back_ends import back_ends
from dynadiag.reduce.scripts.names import block_places
from dynadiag.reduce.scripts.passes.editing import blocks_of, edited, names_in
from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.program import Facts, FactsOf, Program, calls_compiler, of_tree


def executing_only(facts_of: FactsOf) -> Callable[[Program], Iterator[Program]]:
    """The pass for what a run without the compiler shows."""

    def executed_only(program: Program) -> Iterator[Program]:
        facts = facts_of(program)
        if facts.key != program.key or not facts.lines:
            return
        for flat in (True, False):
            tree = program.tree
            whole = set(map(id, back_ends(tree).values()))  # an uncompiled run does not run them
            tree.body = _kept(tree.body, facts, whole, flat=flat)
            made = of_tree(tree)
            yield without_unused(made)
            yield made

    return executed_only


def _kept(body: list[ast.stmt], facts: Facts, whole: Container[int], *, flat: bool) -> list[ast.stmt]:
    left: list[ast.stmt] = []
    for node in body:
        if id(node) in whole:
            left.append(node)
            continue
        if not (_ran(node, facts) or isinstance(node, ast.Global | ast.Nonlocal | ast.FunctionDef)):
            continue
        taken = _only_branch(node, facts) if flat else None
        if taken is not None:
            left += _kept(taken, facts, whole, flat=flat)
            continue
        for owner, name in block_places(node):
            setattr(owner, name, _kept(getattr(owner, name), facts, whole, flat=flat))
        if isinstance(node, ast.Try | ast.TryStar):
            node.handlers = [handler for handler in node.handlers if handler.body] or node.handlers[:1]
        left.append(node)
    return left


def _only_branch(node: ast.stmt, facts: Facts) -> list[ast.stmt] | None:
    """What stands in the one branch that is always taken; None for other statements."""
    if isinstance(node, ast.If):
        body, orelse = (any(_ran(statement, facts) for statement in part) for part in (node.body, node.orelse))
        return None if body and orelse else node.body if body else node.orelse if orelse else []
    if isinstance(node, ast.Try) and not any(_ran(child, facts) for handler in node.handlers for child in handler.body):
        return [*node.body, *node.orelse, *node.finalbody]
    return None


def _ran(node: ast.stmt, facts: Facts) -> bool:
    return any(line in facts.lines for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


def unwrap_blocks(program: Program) -> Iterator[Program]:
    """One program for each block statement and each of its bodies."""
    for block, (_, statements) in enumerate(blocks_of(program.tree)):
        for place, node in enumerate(statements):
            for number in range(len(_contents(node))):
                tree = program.tree
                body = blocks_of(tree)[block][1]
                body[place : place + 1] = _contents(body[place])[number]
                yield of_tree(tree)


def _contents(node: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(node, ast.If | ast.While):
        return [[ast.Expr(node.test)], *(part for part in (node.body, node.orelse) if part)]
    if isinstance(node, ast.For):
        first = ast.Call(ast.Name("next", ast.Load()), [ast.Call(ast.Name("iter", ast.Load()), [node.iter], [])], [])
        numbers = isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range"
        start: ast.expr = ast.Constant(0) if numbers else first
        return [node.body, _with_zeros(node), [ast.Assign([node.target], start), *node.body]]
    if isinstance(node, ast.With):
        bound = [ast.Assign([item.optional_vars], item.context_expr) for item in node.items if item.optional_vars is not None]
        return [node.body] if not bound else [node.body, [*bound, *node.body]]
    if isinstance(node, ast.Try | ast.TryStar):
        return [[*node.body, *node.orelse, *node.finalbody], *(handler.body for handler in node.handlers)]
    return []


def _with_zeros(loop: ast.For) -> list[ast.stmt]:
    """The body with 0 for what the loop binds: most often a number that is only read."""
    zeros = _Zeros({name.id for name in names_in(loop.target)})
    return [zeros.visit(copy.deepcopy(statement)) for statement in loop.body]


class _Zeros(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(0) if node.id in self._names and isinstance(node.ctx, ast.Load) else node


_LISTS: tuple[tuple[type[ast.AST], str, int], ...] = (
    (ast.Call, "args", 0),
    (ast.Call, "keywords", 0),
    (ast.FunctionDef, "decorator_list", 0),
    (ast.ClassDef, "decorator_list", 0),
    (ast.ClassDef, "bases", 0),
    (ast.Import, "names", 1),
    (ast.ImportFrom, "names", 1),
    (ast.With, "items", 1),
    (ast.List, "elts", 0),
    (ast.Tuple, "elts", 1),
    (ast.Set, "elts", 1),
    (ast.JoinedStr, "values", 0),
    (ast.Try, "handlers", 1),
    (ast.Assign, "targets", 1),
)


def drop_parts(program: Program) -> Iterator[Program]:
    """All parts at once, each half of them, then each alone."""
    count = sum(len(_changes(node)) for node in ast.walk(program.tree))
    for first, last in ((0, count), (0, count // 2), (count // 2, count)):
        tree = program.tree
        changes = [change for node in ast.walk(tree) for change in _changes(node)][first:last]
        for change in changes:
            change()
        yield of_tree(tree)
    yield from edited(program, _changes)


def _changes(node: ast.AST) -> list[Callable[[], Any]]:
    changes: list[Callable[[], Any]] = []
    for kind, name, least in _LISTS:
        parts = getattr(node, name, None)
        if isinstance(node, kind) and isinstance(parts, list) and len(parts) > least:
            # torch.compile and its backend stay; what else it gets may go.
            places = [place for place, part in enumerate(parts) if not _is_kept(node, part)]
            changes += [partial(_drop, parts, parts[place], least) for place in reversed(places)]
    if isinstance(node, ast.Dict) and node.keys:
        changes += [partial(_drop_entry, node, place) for place in reversed(range(len(node.keys)))]
    if isinstance(node, ast.Return) and node.value is not None:
        changes.append(partial(setattr, node, "value", None))
    if isinstance(node, ast.AnnAssign | ast.arg) and getattr(node, "annotation", None) is not None and isinstance(node, ast.arg):
        changes.append(partial(setattr, node, "annotation", None))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        changes.append(partial(setattr, node, "returns", None))
    if isinstance(node, ast.Assert | ast.Raise):
        changes += [partial(setattr, node, name, None) for name in ("msg", "cause") if getattr(node, name, None) is not None]
    return changes


def _is_kept(node: ast.AST, part: ast.AST) -> bool:
    if isinstance(node, ast.Call) and calls_compiler(node.func):
        return isinstance(part, ast.expr) or getattr(part, "arg", None) == "backend"
    return isinstance(node, ast.FunctionDef) and (calls_compiler(part) or (isinstance(part, ast.Call) and calls_compiler(part.func)))


def _drop(parts: list[Any], part: Any, least: int) -> None:
    if len(parts) > least:
        parts[:] = [item for item in parts if item is not part]


def _drop_entry(node: ast.Dict, place: int) -> None:
    del node.keys[place], node.values[place]
