"""Which statement binds a name that another one needs: enough of Python's scopes to cut a script without tearing it. Without torch."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ALWAYS_THERE = frozenset(dir(builtins)) | {
    *("__name__", "__file__", "__doc__", "__class__", "__builtins__", "__spec__", "__loader__", "__package__"),
    *("__module__", "__qualname__", "__annotations__", "__debug__", "super"),
}


@dataclass(eq=False)
class Scope:
    """A module, a class body or a function body. `binders` are the numbers of the statements that bind a name in it."""

    node: ast.AST
    outer: Scope | None
    parameters: frozenset[str] = frozenset()
    binders: dict[str, list[int]] = field(default_factory=dict)
    declared: dict[str, int] = field(default_factory=dict)

    @property
    def is_class(self) -> bool:
        """Whether functions inside do not see its names."""
        return isinstance(self.node, ast.ClassDef)


@dataclass(eq=False)
class Statement:
    """One statement without those inside of it. `parent` is the number of the statement that holds it."""

    number: int
    node: ast.stmt
    scope: Scope
    parent: int | None
    reads: frozenset[str]
    attributes: frozenset[str]
    binds: frozenset[str]
    binds_attributes: frozenset[str]

    @property
    def is_leaf(self) -> bool:
        """Whether it holds no statement that does something."""
        inside = (child for child in ast.walk(self.node) if isinstance(child, ast.stmt) and child is not self.node)
        return all(isinstance(child, ast.Pass) for child in inside)


def statements_of(tree: ast.Module) -> list[Statement]:
    """All statements in the order of the text, each with what it needs and what it binds."""
    found: list[Statement] = []
    _collect(tree.body, Scope(tree, None), None, found)
    for statement in found:
        _bind(statement)
    return found


def undefined_names(tree: ast.Module) -> set[str]:
    """Names that are read but that nothing binds; none when the script imports with a star."""
    statements = statements_of(tree)
    if any(isinstance(statement.node, ast.ImportFrom) and statement.node.names[0].name == "*" for statement in statements):
        return set()
    return {name for child in statements for name in child.reads if not _is_known(name, child.scope)}


def scopes_seen_from(scope: Scope) -> Iterator[Scope]:
    """The scopes in which a name is looked up, the innermost first."""
    yield scope
    outer = scope.outer
    while outer is not None:
        if not outer.is_class:
            yield outer
        outer = outer.outer


def _is_known(name: str, scope: Scope) -> bool:
    return name in _ALWAYS_THERE or any(name in item.parameters or name in item.binders for item in scopes_seen_from(scope))


def _collect(body: list[ast.stmt], scope: Scope, parent: int | None, found: list[Statement]) -> None:
    for node in body:
        own = _Own()
        own.visit_statement(node)
        sets = map(frozenset, (own.reads, own.attributes, own.binds, own.binds_attributes))
        statement = Statement(len(found), node, scope, parent, *sets)
        found.append(statement)
        inner = Scope(node, scope, own.parameters) if isinstance(node, SCOPES) else scope
        for owner, name in block_places(node):
            _collect(getattr(owner, name), inner, statement.number, found)


def block_places(node: ast.AST) -> list[tuple[ast.AST, str]]:
    """Where the lists of statements inside a statement stand (owner, name of the list), in the order of the text."""
    places: list[tuple[ast.AST, str]] = []
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            inner = block and isinstance(block[0], ast.ExceptHandler | ast.match_case)
            places += [(part, "body") for part in block] if inner else [(node, name)]
    return places


def _bind(statement: Statement) -> None:
    node, scope = statement.node, statement.scope
    if isinstance(node, ast.Global | ast.Nonlocal):
        for name in node.names:
            scope.declared[name] = statement.number
            target = scope
            while target.outer is not None and (isinstance(node, ast.Global) or target is scope or target.is_class):
                target = target.outer
            target.binders.setdefault(name, [])
        return
    for name in statement.binds:
        target = scope
        if name in scope.declared:
            target = next((item for item in scopes_seen_from(scope) if item is not scope and name in item.binders), scope)
        target.binders.setdefault(name, []).append(statement.number)


class _Own(ast.NodeVisitor):
    """What one statement reads and binds, without the statements inside of it."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.attributes: set[str] = set()
        self.binds: set[str] = set()
        self.binds_attributes: set[str] = set()
        self.parameters: frozenset[str] = frozenset()
        self._inner: list[set[str]] = []

    def visit_statement(self, node: ast.stmt) -> None:
        if isinstance(node, SCOPES):
            self.binds.add(node.name)
        if isinstance(node, _FUNCTIONS):
            self.parameters = frozenset(_parameters(node.args))
            self._visit_defaults(node.args)
        if isinstance(node, ast.AugAssign):
            self._read_target(node.target)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt | ast.arguments):
                self.visit(child)

    def _visit_defaults(self, arguments: ast.arguments) -> None:
        annotations = [posonlyarg.annotation for posonlyarg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        for default in (*arguments.defaults, *arguments.kw_defaults, *annotations):
            if default is not None:
                self.visit(default)

    def _read_target(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.reads.add(target.id)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.binds.add(node.name)
        if node.type is not None:
            self.visit(node.type)

    def visit_match_case(self, node: ast.match_case) -> None:
        self.visit(node.pattern)
        if node.guard is not None:
            self.visit(node.guard)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.binds |= {node.name} if node.name else set()
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self.binds |= {node.name} if node.name else set()

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.binds |= {node.rest} if node.rest else set()
        self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> None:
        self.binds.add(node.asname or node.name.partition(".")[0])

    def visit_Name(self, node: ast.Name) -> None:
        if any(node.id in names for names in self._inner):
            return
        if isinstance(node.ctx, ast.Store):
            self.binds.add(node.id)
        else:
            self.reads.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        (self.binds_attributes if isinstance(node.ctx, ast.Store) else self.attributes).add(node.attr)
        self.visit(node.value)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_defaults(node.args)
        self._inner.append(set(_parameters(node.args)))
        self.visit(node.body)
        self._inner.pop()

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        own = {name.id for generator in node.generators for name in ast.walk(generator.target) if isinstance(name, ast.Name)}
        self.visit(node.generators[0].iter)
        self._inner.append(own)
        self.generic_visit(node)
        self._inner.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension  # noqa: N815


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    for posonlyarg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if posonlyarg is not None:
            yield posonlyarg.arg
