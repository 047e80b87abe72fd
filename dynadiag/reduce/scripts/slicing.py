"""Parts of a script that still hang together: a set of statements, and all that those need to be defined. Without torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dynadiag.reduce.scripts.back_ends import back_ends
from dynadiag.reduce.scripts.names import SCOPES, Statement, block_places, scopes_seen_from, statements_of
from dynadiag.reduce.scripts.program import Program, of_tree

_ASKED_BY_PYTHON = ("__init__", "__len__", "__getitem__", "__iter__", "__next__", "__enter__", "__call__", "forward")


class Slicer:
    """Cuts one program. `items` are the numbers of the statements that hold no other one.

    With `whole_functions` a function that is kept keeps what it returns, and a class the methods that are called without being named:
    most programs fail without. What is needed no more goes when a slicer without it looks at the rest. A back end of the script's own is
    kept whole, or goes.
    """

    def __init__(self, program: Program, *, whole_functions: bool = False) -> None:
        self._program = program
        self._whole_functions = whole_functions
        tree = program.tree
        self._statements = statements_of(tree)
        whole = set(map(id, back_ends(tree).values()))
        self._whole = {child.number: self._inside(child.number) for child in self._statements if id(child.node) in whole}
        parts = {number for inside in self._whole.values() for number in inside}
        self.items = [
            item.number for item in self._statements if item.is_leaf and not isinstance(item.node, ast.Pass) and item.number not in parts
        ]
        self._attributes: dict[str, list[int]] = {}
        for statement in self._statements:
            own = statement.binds_attributes | (statement.binds if statement.scope.is_class else frozenset())
            for name in own:
                self._attributes.setdefault(name, []).append(statement.number)

    def _inside(self, number: int) -> list[int]:
        """All statements in a block, at all depths."""
        found = [number]
        for statement in self._statements[number + 1 :]:
            if statement.parent in found:
                found.append(statement.number)
        return found[1:]

    def block_of(self, item: int) -> int:
        """A name for the function, class or outermost block that holds a statement."""
        at = self._statements[item]
        while at.parent is not None and not isinstance(self._statements[at.parent].node, SCOPES):
            at = self._statements[at.parent]
        return at.number if at.parent is None else at.parent

    def build(self, kept: Iterable[int]) -> Program:
        """The program of the kept statements, with the blocks that hold them and one definition of each name that they need."""
        return self._without(self._closed(kept))

    def _closed(self, kept: Iterable[int]) -> set[int]:
        wanted = set(kept)
        waiting = sorted(wanted)
        while waiting:
            for more in self._needs(self._statements[waiting.pop()], wanted):
                if more not in wanted:
                    wanted.add(more)
                    waiting.append(more)
        return wanted

    def _needs(self, statement: Statement, wanted: set[int]) -> list[int]:
        needs = [] if statement.parent is None else [statement.parent]
        needs += [self._nearest(name, statement, wanted) for name in sorted(statement.reads)]
        needs += [statement.scope.declared[name] for name in sorted(statement.binds) if name in statement.scope.declared]
        for name in sorted(statement.attributes):
            binders = self._attributes.get(name, [])
            if binders and wanted.isdisjoint(binders):
                needs.append(binders[0])
        needs += self._base_first(statement)
        if self._whole_functions:
            needs += self._parts(statement)
        needs += self._whole.get(statement.number, ())
        return [number for number in needs if number >= 0]

    def _base_first(self, statement: Statement) -> list[int]:
        """A module takes no attributes before `super().__init__()`."""
        inside = statement.parent is not None and getattr(self._statements[statement.parent].node, "name", None) == "__init__"
        if not inside or not statement.binds_attributes:
            return []
        return [
            other.number
            for other in self._statements
            if other.parent == statement.parent and other.number < statement.number and ast.unparse(other.node).startswith("super(")
        ][:1]

    def _parts(self, statement: Statement) -> list[int]:
        if isinstance(statement.node, ast.ClassDef):
            inside = [other for other in self._statements if other.parent == statement.number]
            return [other.number for other in inside if getattr(other.node, "name", None) in _ASKED_BY_PYTHON]
        if not isinstance(statement.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        returns = [
            other for other in self._statements if isinstance(other.node, ast.Return) and self._function_of(other) == statement.number
        ]
        return [other.number for other in returns if other.node.value is not None][-1:]  # type: ignore[attr-defined]

    def _function_of(self, statement: Statement) -> int | None:
        at = statement.parent
        while at is not None and not isinstance(self._statements[at].node, SCOPES):
            at = self._statements[at].parent
        return at

    def _nearest(self, name: str, statement: Statement, wanted: set[int]) -> int:
        """The statement that binds the name where `one` reads it; -1 when one is kept already or none is needed."""
        for scope in scopes_seen_from(statement.scope):
            if name in scope.parameters:
                # A parameter that is bound again is there in any case.
                return -1
            # A statement such as `n += 1` binds what it reads, but cannot be the first to do so.
            if binders := [number for number in scope.binders.get(name, ()) if number != statement.number]:
                return _choice(binders, statement.number if scope is statement.scope else None, wanted)
        return -1

    def _without(self, wanted: set[int]) -> Program:
        tree = self._program.tree
        counter = iter(range(len(self._statements)))

        def keep(body: list[ast.stmt]) -> list[ast.stmt]:
            left = []
            for node in body:
                number = next(counter)
                for block_owner, name in block_places(node):
                    setattr(block_owner, name, keep(getattr(block_owner, name)))
                if number in wanted:
                    left.append(_whole(node))
            return left

        tree.body = keep(tree.body)
        return of_tree(tree)


def without_line(program: Program, line: int) -> Program | None:
    """The program without the innermost statement of a line and what only makes sense with it; None when that cannot be cut out."""
    numbered = statements_of(program.tree)
    here = [statement for statement in numbered if statement.node.lineno <= line <= (statement.node.end_lineno or statement.node.lineno)]
    if not here:
        return None
    gone = min(here, key=lambda child: ((child.node.end_lineno or 0) - child.node.lineno, -child.number)).number
    slicer = Slicer(program)
    made = slicer.build(number for number in slicer.items if number != gone)
    return made if made.key != program.key else None


def _choice(binders: list[int], before: int | None, wanted: set[int]) -> int:
    there = [number for number in binders if before is None or number < before]
    if any(number in wanted for number in there):
        return -1
    if there:
        return there[-1] if before is not None else there[0]
    return -1 if any(number in wanted for number in binders) else binders[0]


def _whole(node: ast.stmt) -> ast.stmt:
    """A statement that is still one after it lost parts: `else` without `if` body keeps a `pass`."""
    if isinstance(node, ast.Try | ast.TryStar) and not node.handlers and not node.finalbody:
        node.finalbody = [ast.Pass()]
    return node
