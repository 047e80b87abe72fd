"""What the passes share: a change of one node at a time, each on a tree of its own."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from dynadiag.reduce.scripts.names import block_places
from dynadiag.reduce.scripts.program import Program, of_tree

LONGEST_LINE = 110


def replaced(program: Program, choose: Callable[[ast.AST], Sequence[ast.AST]]) -> Iterator[Program]:
    """One program for each node and each of the nodes that `choose` would put in its place; outer nodes come first."""
    counts = [len(choose(node)) for node in ast.walk(program.tree)]
    for index, count in enumerate(counts):
        for number in range(count):
            tree = program.tree
            node = list(ast.walk(tree))[index]
            instead = choose(node)[number]
            _Replacing(node, instead).visit(tree)
            yield of_tree(tree)


def edited(program: Program, changes: Callable[[ast.AST], Sequence[Callable[[], None]]]) -> Iterator[Program]:
    """One program for each node and each of the changes in place that `changes` offers for it."""
    counts = [len(changes(node)) for node in ast.walk(program.tree)]
    for index, count in enumerate(counts):
        for number in range(count):
            tree = program.tree
            changes(list(ast.walk(tree))[index])[number]()
            yield of_tree(tree)


def blocks_of(tree: ast.Module) -> list[tuple[ast.AST, list[ast.stmt]]]:
    """Every list of statements with the node that holds it, the outermost first."""
    found: list[tuple[ast.AST, list[ast.stmt]]] = [(tree, tree.body)]
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            found += [(owner, getattr(owner, name)) for owner, name in block_places(node) if getattr(owner, name)]
    return found


def names_in(node: ast.AST, context: type[ast.expr_context] | None = None) -> list[ast.Name]:
    """The names in a node, all or those of one context (`ast.Load`, `ast.Store`)."""
    return [child for child in ast.walk(node) if isinstance(child, ast.Name) and (context is None or isinstance(child.ctx, context))]


def has_long_line(program: Program) -> bool:
    """Whether a line is longer than a person wants to read."""
    return any(len(line) > LONGEST_LINE for line in program.text.splitlines())


class _Replacing(ast.NodeTransformer):
    def __init__(self, node: ast.AST, instead: ast.AST) -> None:
        self._node, self._instead = node, instead

    def visit(self, node: ast.AST) -> ast.AST:
        return self._instead if node is self._node else self.generic_visit(node)
