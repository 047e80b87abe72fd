"""What never runs goes at once: statements, branches that are not taken, functions that nobody calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterator

from dynadiag.reduce.scripts.back_ends import back_ends
from dynadiag.reduce.scripts.facts import Facts, FactsOf
from dynadiag.reduce.scripts.names import block_places
from dynadiag.reduce.scripts.passes.unused import without_unused
from dynadiag.reduce.scripts.program import Program, of_tree


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
