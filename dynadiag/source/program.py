"""A file of the user's as a whole: its functions and classes, and what an expression in it is an object of. Read, never run.

Nothing is guessed: what the text does not plainly show is None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import TypeAlias

from dynadiag.source.imports import parse_canonical
from dynadiag.source.line import dotted
from dynadiag.source.tree import calls_in, nodes_of, parents_in

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Scope: TypeAlias = Function | ast.Module
_MODULES = "torch.nn."
_SAME_OBJECT = frozenset(("to", "cuda", "cpu", "train", "eval", "double", "float", "half", "bfloat16", "requires_grad_"))
_MOST_STEPS = 8


class Program:
    """The definitions of a file by name, and where a name comes from."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree, _ = parse_canonical(text)
        self.functions = {node.name: node for node in self.tree.body if isinstance(node, Function)}
        self.classes = {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node that holds each node."""
        return parents_in(self.tree)

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        """All calls of the file."""
        return tuple(calls_in(self.tree))

    @cached_property
    def global_names(self) -> frozenset[str]:
        """The names that the file itself assigns, once each."""
        stored = [node.id for node in nodes_of(ast.Name, self.tree) if isinstance(node.ctx, ast.Store) and self.scope_of(node) is self.tree]
        return frozenset(name for name in stored if stored.count(name) == 1)

    def scope_of(self, node: ast.AST) -> Scope:
        """The function around a node, or the file."""
        parent = self.parents.get(node)
        while parent is not None and not isinstance(parent, Function | ast.Module):
            parent = self.parents.get(parent)
        return parent if isinstance(parent, Function | ast.Module) else self.tree

    def class_around(self, function: Scope) -> ast.ClassDef | None:
        """The class whose method a function is."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def method(self, kind: str | None, name: str) -> Function | None:
        """The method of a class of the file, or of one of its bases there."""
        node = self.classes.get(kind or "")
        if node is None:
            return None
        own = next((item for item in node.body if isinstance(item, Function) and item.name == name), None)
        return own or next((found for base in node.bases if (found := self.method(dotted(base), name)) is not None), None)

    def is_module(self, kind: str | None) -> bool:
        """Whether objects of this class are modules of torch."""
        node = self.classes.get(kind or "")
        if node is None:
            return kind is not None and kind.startswith(_MODULES)
        return any(self.is_module(dotted(base)) for base in node.bases if dotted(base) != kind)

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The statement that a node stands in."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def kind_of(self, node: ast.AST | None, scope: Scope, steps: int = _MOST_STEPS) -> str | None:
        """The class of what an expression gives: one of the file, or one of torch's by its dotted name."""
        if node is None or steps <= 0:
            return None
        if isinstance(node, ast.Call):
            return self._kind_of_call(node, scope, steps)
        if isinstance(node, ast.Name):
            if node.id == "self" and (around := self.class_around(scope)) is not None:
                return around.name
            found = (self.kind_of(value, where, steps - 1) for value, where in self.values_of(node.id, scope))
            return next(filter(None, found), None)
        if isinstance(node, ast.Attribute):
            owner = self.kind_of(node.value, scope, steps - 1)
            found = (self.kind_of(value, method, steps - 1) for value, method in self.attributes(owner, node.attr))
            return next(filter(None, found), None)
        return None

    def _kind_of_call(self, node: ast.Call, scope: Scope, steps: int) -> str | None:
        name = dotted(node.func)
        if name in self.classes or (name or "").startswith(_MODULES):
            return name
        if name in self.functions:
            returned = (item.value for item in nodes_of(ast.Return, self.functions[name or ""]))
            return next(filter(None, (self.kind_of(value, self.functions[name or ""], steps - 1) for value in returned)), None)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_OBJECT:
            return self.kind_of(node.func.value, scope, steps - 1)
        return None

    def values_of(self, name: str, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """What a name gets in its function, from those who call the function, or from the file; each with where that stands."""
        bound = [(value, scope) for value in self.assigned(name, scope)]
        if not bound and isinstance(scope, Function) and name in parameters_of_calls(scope):
            bound = [(given, self.scope_of(call)) for call in self.callers(scope) if (given := argument(call, scope, name)) is not None]
        elif not bound and isinstance(scope, Function):
            bound = list(self.values_of(name, self.scope_of(scope)))
        yield from bound

    def function_named(self, name: str, scope: Scope) -> Function | None:
        """The function that a plain name means in a function or in the file: one that is defined there, or around it."""
        inside = (node for node in nodes_of(ast.FunctionDef, *scope.body) if node.name == name and self.scope_of(node) is scope)
        found = next((node for node in inside if self.class_around(node) is None), None)
        return found if found is not None or isinstance(scope, ast.Module) else self.function_named(name, self.scope_of(scope))

    def assigned(self, name: str, scope: Scope) -> Iterator[ast.expr]:
        """The values that the statements of a function, or of the file, give to a dotted name."""
        for node in nodes_of(ast.Assign, scope):
            if self.scope_of(node) is scope:
                for target in node.targets:
                    yield from (value for written, value in _pairs(target, node.value) if dotted(written) == name)

    def attributes(self, kind: str | None, name: str) -> Iterator[tuple[ast.expr, Function]]:
        """What the methods of a class assign to `self.name`, each with its method."""
        node = self.classes.get(kind or "")
        for method in () if node is None else node.body:
            if isinstance(method, Function):
                yield from ((value, method) for value in self.assigned(f"self.{name}", method))

    def callers(self, function: Function) -> Iterator[ast.Call]:
        """The calls of a function by its name, by one that it was compiled under, or as the constructor of its class."""
        around = self.class_around(function)
        names = {around.name if around is not None and function.name == "__init__" else function.name}
        for call in self.calls:
            if dotted(call.func) == "torch.compile" and call.args and (dotted(call.args[0]) or "").rpartition(".")[2] in names:
                statement = self.statement_of(call)
                if isinstance(statement, ast.Assign) and statement.value is call:
                    names |= {name for target in statement.targets if (name := dotted(target)) is not None}
        for call in self.calls:
            name = dotted(call.func) or ""
            if name in names or (around is not None and name.rpartition(".")[2] in names):
                yield call


@lru_cache(maxsize=16)
def program_of(text: str) -> Program:
    """The program of a text. Raises SyntaxError."""
    return Program(text)


def argument(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call gives for a parameter; None where that is not plain to see."""
    given = next((word.value for word in call.keywords if word.arg == name), None)
    names = parameters_of_calls(function)
    if given is not None or name not in names:
        return given
    at = names.index(name)
    before = call.args[: at + 1]
    return before[at] if len(before) > at and not any(isinstance(item, ast.Starred) for item in before) else None


def parameters_of_calls(function: Function) -> list[str]:
    """The parameters that a call may give by their places, without the object of a method."""
    names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] == ["self"] else names


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, ast.Tuple | ast.List) and len(target.elts) == len(value.elts):
            for item, part in zip(target.elts, value.elts, strict=True):
                yield from _pairs(item, part)
    else:
        yield target, value
