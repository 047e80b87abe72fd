"""One function of the user's, read from its source: where its names are read and bound, and where a value ends.

The text comes from strangers' logs: it is parsed, never compiled or run. What the text does not plainly show is answered with "no".
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeVar

from dynadiag.facts.statements import parsed_module
from dynadiag.source.imports import USUAL, Imports, make_canonical
from dynadiag.source.line import dotted, root_of
from dynadiag.source.python_names import takes_tensors
from dynadiag.source.torch_names import has_in_place_name, is_torch_function
from dynadiag.source.tree import called_method

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.Mod, ast.FloorDiv)
_LONGEST = 8_000
# A recording keeps no more of a function (`torch_compat/trace/stacks.py`, one line fewer each): what is as long may go on.
_MOST_ROWS, _MOST_TEXT = 120, 5_900
_MOST_STEPS = 6
_MOST_SIDES = 8
_JOINS = frozenset({"torch.stack", "torch.cat", "torch.concat"})


_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True)
class Use:
    """Where a value ends: `at` is the node that takes it, and `value` what stands there of it.

    `kind`: `arithmetic` (with a tensor), `compare`, `condition`, `call`, `index`, `text`, `returned`, `stored` (into an attribute or an
    item), `lost` (a name that cannot be followed), `other`. `through` are the operators, containers and statements on the way, from the
    inside out.
    """

    kind: str
    at: ast.AST
    value: ast.AST
    through: tuple[ast.AST, ...] = ()


class _Index:
    """What is where in a function, found in one walk."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.nodes = tuple(ast.walk(node))
        self.body = tuple(inner for statement in node.body for inner in ast.walk(statement))
        self.parents = {id(child): parent for parent in self.nodes for child in ast.iter_child_nodes(parent)}
        self.reads: dict[str, list[ast.expr]] = {}
        self.values: dict[str, list[ast.expr]] = {}
        self.stores: dict[str, int] = {}
        self.deletes: dict[str, int] = {}
        self.kinds: dict[type[ast.AST], list[ast.AST]] = {}
        for inner in self.nodes:
            self.kinds.setdefault(type(inner), []).append(inner)
        self.arguments = frozenset(inner.arg for inner in self.nodes if isinstance(inner, ast.arg))
        declared = (inner for inner in self.nodes if isinstance(inner, ast.Global | ast.Nonlocal))
        self.shared = frozenset(name for statement in declared for name in statement.names)
        for inner in self.body:
            if isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Load) and (name := dotted(inner)) is not None:
                self.reads.setdefault(name, []).append(inner)
            elif isinstance(inner, ast.Assign):
                for target in inner.targets:
                    if (name := dotted(target)) is not None:
                        self.values.setdefault(name, []).append(inner.value)
            if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                counts = self.stores if isinstance(inner.ctx, ast.Store) else self.deletes
                counts[inner.id] = counts.get(inner.id, 0) + 1


@lru_cache(maxsize=512)
def _index(node: ast.FunctionDef | ast.AsyncFunctionDef) -> _Index:
    return _Index(node)


_WRAPS = (ast.Tuple, ast.List, ast.Dict, ast.Slice, ast.keyword, ast.Starred)
_ENDS: dict[type[ast.AST], str] = {
    ast.Assert: "condition",
    ast.Assign: "stored",
    ast.Call: "call",
    ast.Compare: "compare",
    ast.FormattedValue: "text",
    ast.If: "condition",
    ast.IfExp: "condition",
    ast.JoinedStr: "text",
    ast.Return: "returned",
    ast.Subscript: "index",
    ast.While: "condition",
}


@dataclass(frozen=True, eq=False)
class Function:
    """A function as it is written, parsed and never run; `parts` are the attributes of its object that are known to be modules.

    `imports` is what names stand for in it, apart from those that it binds itself: for lines of it that are parsed by themselves.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef
    code: str
    parts: frozenset[str] = frozenset()
    imports: Imports = USUAL

    @property
    def index(self) -> _Index:
        """What is where in the function."""
        return _index(self.node)

    def nodes(self, kind: type[_Node]) -> tuple[_Node, ...]:
        """The nodes of exactly this kind in the function: its calls, its names."""
        return tuple(node for node in self.index.kinds.get(kind, ()) if isinstance(node, kind))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that arguments are taken by in their order, without the object of a method."""
        names = tuple(each.arg for each in (*self.node.args.posonlyargs, *self.node.args.args))
        return names[1:] if names[:1] == ("self",) else names

    def text(self, node: ast.AST) -> str:
        """The node as it is written."""
        return ast.get_source_segment(self.code, node) or ""

    def parent(self, node: ast.AST | None) -> ast.AST | None:
        """The node that holds this one."""
        return self.index.parents.get(id(node))

    def around(self, node: ast.AST | None) -> Iterator[ast.AST]:
        """The node and what holds it, from the inside out, up to the function."""
        while node is not None and node is not self.node:
            yield node
            node = self.parent(node)

    def reads(self, name: str) -> tuple[ast.expr, ...]:
        """Where the function reads `scale` or `self.scale`."""
        return tuple(self.index.reads.get(name, ()))

    def values(self, name: str) -> tuple[ast.expr, ...]:
        """What the function assigns to the plain name, each time."""
        return tuple(self.index.values.get(name, ()))

    def assigns(self, name: str) -> bool:
        """Whether the function gives the name another value, or deletes it."""
        return name in self.index.stores or name in self.index.deletes

    def is_bound_once(self, name: str) -> bool:
        """Whether the function binds the name at one place only, as no argument."""
        bound = self.index.stores.get(name, 0) + self.index.deletes.get(name, 0)
        return bound == 1 and name not in self.index.arguments

    def is_local(self, name: str) -> bool:
        """Whether the name is the function's own: no argument, nothing of another scope."""
        return name in self.index.values and name not in self.index.arguments | self.index.shared

    def is_assigned(self, name: str) -> bool:
        """Whether the name is the function's own and gets all its values from plain assignments: no loop, `with` or unpacking binds it."""
        return self.is_local(name) and self.index.stores.get(name, 0) == len(self.values(name))

    def next_statement(self, statement: ast.stmt) -> ast.stmt | None:
        """The statement behind this one in the same block."""
        parent = self.parent(statement)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                return next(iter(block[block.index(statement) + 1 :]), None)
        return None

    def is_tensor(self, node: ast.expr) -> bool:
        """Whether the function is known to have a tensor there; by its text alone it is not."""
        return False

    def uses(self, node: ast.AST, names: frozenset[str] = frozenset(), through: tuple[ast.AST, ...] = ()) -> Iterator[Use]:
        """All places where the value ends, through arithmetic, containers and plain names of the function, each name once.

        `names` and `through` are what it has come through already.
        """
        top = node
        while isinstance(parent := self.parent(top), (ast.BinOp, ast.UnaryOp, *_WRAPS)):
            through = (*through, parent)
            if isinstance(parent, ast.BinOp) and self.is_tensor(parent.right if parent.left is top else parent.left):
                yield Use("arithmetic", parent, top, through)
                return
            top = parent
        if isinstance(parent, ast.AugAssign) and parent.value is top:
            if self.is_tensor(parent.target):
                yield Use("arithmetic", parent, top, (*through, parent))
                return
            through = (*through, parent)
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target] if isinstance(parent, ast.AugAssign) else []
        value = parent.value if isinstance(parent, ast.Assign | ast.AugAssign) else None
        if isinstance(parent, ast.Assign | ast.AugAssign) and value is top and all(isinstance(target, ast.Name) for target in targets):
            for target in targets:
                yield from self._uses_of_name(target.id, parent, top, names, through) if isinstance(target, ast.Name) else ()
            return
        at = parent or top
        yield Use(_ENDS.get(type(at), "other"), at, top, through)

    def _uses_of_name(
        self, name: str, statement: ast.AST, value: ast.AST, names: frozenset[str], through: tuple[ast.AST, ...]
    ) -> Iterator[Use]:
        if name in names:
            return
        reads = self.reads(name)
        if not reads or len(names) >= _MOST_STEPS or not self.is_local(name):
            yield Use("lost", statement, value, through)
            return
        for read in reads:
            yield from self.uses(read, names | {name}, (*through, statement))

    def sides(self, name: str) -> int | None:
        """How many versions do for all values of the number if it is a symbol: one for each side of the conditions on it, 1 without any.

        None where it has to be known: where it indexes, bounds a loop, is passed on to a function that is not torch's, printed, returned
        as it is, or where the object that it belongs to is passed on.
        """
        return self._sides(name, frozenset(), 0)

    def _sides(self, name: str, seen: frozenset[str], others: int) -> int | None:
        """`others` counts what the arithmetic that made the name took beside constants and the number itself."""
        if name in seen:
            return 1
        reads = self.reads(name)
        if not reads or len(seen) > _MOST_STEPS or self._handed_on(name):
            return None
        return _product(self._sides_at(read, seen | {name}, others) for read in reads)

    def _handed_on(self, name: str) -> bool:
        """Whether the object with the attribute (`settings` of `settings.scale`) goes where its attributes may be read unseen."""
        owner, _, attribute = name.rpartition(".")
        if not attribute or not owner:
            return False
        return any(self._may_be_read_by(self.parent(read)) for read in self.reads(owner))

    def _may_be_read_by(self, parent: ast.AST | None) -> bool:
        """Whether the owner goes on there: by itself, or to a method of its own (which an unknown part that is called looks like)."""
        if not isinstance(parent, ast.Attribute):
            return True
        if parent.attr in self.parts:
            return False
        call = self.parent(parent)
        return isinstance(call, ast.Call) and call.func is parent

    def _sides_at(self, node: ast.AST, seen: frozenset[str], others: int) -> int | None:
        top = node
        while (parent := self.parent(top)) is not None:
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, _OPERATORS):
                other = parent.right if parent.left is top else parent.left
                others += not all(isinstance(child, _OF_NUMBERS) for child in ast.walk(other))
            elif not (_is_bounded(parent) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub))):
                break
            top = parent
        if isinstance(parent, ast.AugAssign):
            return 1 if isinstance(parent.op, _OPERATORS) and parent.value is top else None
        if isinstance(parent, ast.Assign):
            names = [dotted(target) for target in parent.targets]
            return _product(None if name is None else self._sides(name, seen, others) for name in names)
        if isinstance(parent, ast.Compare | ast.If | ast.IfExp):
            return 2 if self._decides(parent, top) else None
        if isinstance(parent, ast.Slice):
            around = self.parent(parent)  # `x[:, n:]`: nothing but a tensor takes several indices
            several = isinstance(around, ast.Tuple) and isinstance(self.parent(around), ast.Subscript)
            return 1 if several and any(map(self._wraps, seen)) else None
        if not others:
            return None
        if isinstance(parent, ast.Call):
            return 1 if top is not parent.func and is_torch_function(dotted(parent.func)) and takes_tensors(parent) else None
        called = isinstance(parent, ast.Attribute) and isinstance(self.parent(parent), ast.Call)
        return 1 if isinstance(parent, ast.Return) or called else None

    def _wraps(self, name: str) -> bool:
        """Whether the function takes the number modulo something, as the place in a ring buffer: without that, each end of a slice that
        passes the size of the tensor has a version of its own.
        """
        values = [
            statement.value for statement in self.index.body if isinstance(statement, ast.Assign) and name in map(dotted, statement.targets)
        ]
        return any(isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Mod) for expression in values)

    def _decides(self, node: ast.Compare | ast.If | ast.IfExp, number: ast.AST) -> bool:
        """Whether Python decides by the number here: alone, or compared with a constant or an attribute that the function only reads."""
        if not isinstance(node, ast.Compare):
            return node.test is number
        others = [expression for expression in (node.left, *node.comparators) if expression is not number]
        plain = all(isinstance(item, ast.Constant) or (isinstance(item, ast.Attribute) and not self._writes(item)) for item in others)
        if not plain or len(node.ops) != 1 or isinstance(node.ops[0], ast.In | ast.NotIn | ast.Is | ast.IsNot):
            return False
        top: ast.AST = node
        while isinstance(parent := self.parent(top), ast.BoolOp) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)):
            top = parent
        return isinstance(parent, ast.If | ast.IfExp) and parent.test is top

    def _writes(self, node: ast.expr) -> bool:
        stored = (
            statement for statement in self.index.body if isinstance(statement, ast.Attribute) and not isinstance(statement.ctx, ast.Load)
        )
        return dotted(node) is None or any(dotted(attribute) == dotted(node) for attribute in stored)

    def meet_tensors(self, calls: Sequence[ast.Call]) -> bool:
        """Whether all that becomes of what these calls return is arithmetic with tensors."""
        return all(self._sides_at(call, frozenset(), 0) == 1 for call in calls)

    def math_calls(self, name: str) -> tuple[ast.Call, ...]:
        """The calls of Python's `math` that read the name."""
        calls = (one for one in self.index.body if isinstance(one, ast.Call) and root_of(one.func) == "math")
        return tuple(one for one in calls if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(one)))

    def joined(self, name: str) -> str | None:
        """The call that stacks or concatenates the list along the first dimension, if it is all that the function does with it."""
        reads = self.reads(name)
        call = self.parent(reads[0]) if len(reads) == 1 else None
        if not isinstance(call, ast.Call) or dotted(call.func) not in _JOINS or len(call.args) != 1 or call.keywords:
            return None
        return self.text(call)

    def items_read(self, name: str) -> tuple[str, ...]:
        """The items of the list (`l[0]`) if they are all that the function reads of it, each at a constant place; else empty."""
        if self.assigns(name):
            return ()
        items = [self.parent(read) for read in self.reads(name)]
        known = [item for item in items if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Load) and _is_place(item.slice)]
        return tuple(dict.fromkeys(map(self.text, known))) if len(known) == len(items) else ()

    def only_call_with(self, keyword: str, name: str) -> ast.Call | None:
        """The one call that is given the keyword, if what it is given reads the name."""
        calls = [
            statement
            for statement in self.index.body
            if isinstance(statement, ast.Call) and any(each.arg == keyword for each in statement.keywords)
        ]
        given = [each.value for call in calls for each in call.keywords if each.arg == keyword]
        return calls[0] if len(calls) == 1 and any(dotted(node) == name for node in ast.walk(given[0])) else None

    def only_counts(self, name: str, *, sizes: bool = False) -> bool:
        """Whether all that the function does with the number is to add constants to it, or also sizes of tensors."""
        counts = self._counts(name, sizes=sizes)
        return bool(counts) and not self._handed_on(name) and not self._mentions(name, counts)

    def adds_to(self, name: str) -> bool:
        """Whether every statement that changes the number adds a constant to it."""
        stored = [node for node in self.index.body if isinstance(node, ast.Attribute | ast.Name) and dotted(node) == name]
        return all(isinstance(node.ctx, ast.Load) or self.parent(node) in self._counts(name) for node in stored)

    def counted(self, name: str) -> str | None:
        """The one statement that adds to the number, if the function does nothing else with it and always comes there."""
        counts = self._counts(name)
        alone = len(counts) == 1 and counts[0] in self._straight() and self.only_counts(name)
        return self.text(counts[0]) if alone else None

    def _counts(self, name: str, *, sizes: bool = False) -> list[ast.AugAssign]:
        found = (statement for statement in self.index.body if isinstance(statement, ast.AugAssign))
        added = (
            node
            for node in found
            if isinstance(node.value, ast.Constant) or (sizes and isinstance(node.op, ast.Add) and _is_size(node.value))
        )
        return [child for child in added if ast.unparse(child.target) == name]

    def _mentions(self, name: str, apart_from: Sequence[ast.stmt]) -> bool:
        """Whether the number is used elsewhere, or for `STATE['n']` the dictionary that holds it."""
        inside = {id(node) for statement in apart_from for node in ast.walk(statement)}
        root = name.partition("[")[0]
        return any(dotted(child) in (name, root) for child in self.index.body if id(child) not in inside)

    def appended(self, name: str) -> Appended | None:
        """How the function appends to the list, if that is one statement that it always comes to and it does nothing else with the list."""
        reads = self.reads(name)
        call = self.parent(self.parent(reads[0])) if len(reads) == 1 and not self._handed_on(name) else None
        statement = self.parent(call)
        method = called_method(call)
        last, returns = (
            self.node.body[-1],
            [child for child in self.index.body if isinstance(child, ast.Return | ast.Yield | ast.YieldFrom)],
        )
        if (
            not isinstance(call, ast.Call)
            or method not in ("append", "appendleft")
            or len(call.args) != 1
            or not isinstance(statement, ast.Expr)
            or statement not in self._straight()
            or len(returns) != 1
            or not isinstance(last, ast.Return)
            or last.value is None
        ):
            return None
        names = {descendant.id for descendant in ast.walk(call.args[0]) if isinstance(descendant, ast.Name)}
        between = [node for item in self.node.body[self.node.body.index(statement) :] for node in ast.walk(item)]
        changed = any(isinstance(part, ast.Name) and part.id in names and not isinstance(part.ctx, ast.Load) for part in between)
        if changed or not (isinstance(call.args[0], ast.Name) or _changes_nothing(between)):
            return None  # it would be another value at the end
        result, more = self.text(last), self.text(call.args[0])
        value = f"({self.text(last.value)})" if isinstance(last.value, ast.Tuple) else self.text(last.value)
        return Appended(self.text(statement), method, result, f"return {value}, {more}")

    def _straight(self) -> Sequence[ast.stmt]:
        """The statements that every call comes to: those of the function itself before anything that can leave it early."""
        for number, statement in enumerate(self.node.body[:-1]):
            if any(isinstance(node, ast.Return | ast.Raise) for node in ast.walk(statement)):
                return self.node.body[:number]
        return self.node.body


@dataclass(frozen=True, slots=True)
class Appended:
    """One statement that appends, its method, the line that returns the result, and that line with what is appended."""

    statement: str
    method: str
    result: str
    returned: str


def _is_place(node: ast.expr) -> bool:
    """Whether this is a constant place from the front: one from the end depends on the length."""
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_size(node: ast.expr) -> bool:
    """Whether this is made of sizes of tensors: `x.numel()`, `x.shape[0] * len(x)`."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add | ast.Mult) and _is_size(node.left) and _is_size(node.right)
    if isinstance(node, ast.Subscript):
        of_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return of_shape and isinstance(node.slice, ast.Constant | ast.UnaryOp)
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Constant) and type(node.value) is int
    method = called_method(node)
    known = method in ("numel", "nelement", "size") or dotted(node.func) == "len"
    return known and not any(isinstance(child, ast.Call) for argument in node.args for child in ast.walk(argument))


def _changes_nothing(nodes: Sequence[ast.AST]) -> bool:
    """Whether none of these writes into an object: `x += 1`, `self.n = 1`, `x.add_(1)`."""
    if any(isinstance(node, ast.AugAssign | ast.Delete) for node in nodes):
        return False
    stored = any(isinstance(child, ast.Attribute | ast.Subscript) and not isinstance(child.ctx, ast.Load) for child in nodes)
    return not stored and not any(isinstance(descendant, ast.Attribute) and has_in_place_name(descendant.attr) for descendant in nodes)


def _product(sides: Iterable[int | None]) -> int | None:
    """All sides together; None if one of the parts has to be known, or there are too many to say so."""
    found = list(sides)
    known = [number for number in found if number is not None]
    return prod(known) if found and len(known) == len(found) and prod(known) <= _MOST_SIDES else None


def _is_bounded(node: ast.AST) -> bool:
    """`min(1.0, step / n)`: a symbol stays one (`torch.sym_min`, 2.11 and 2.15)."""
    if not isinstance(node, ast.Call) or dotted(node.func) not in ("min", "max") or node.keywords:
        return False
    return (
        len(node.args) == 2
        and sum(isinstance(argument, ast.Constant) and type(argument.value) in (int, float) for argument in node.args) == 1
    )


_OF_NUMBERS = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)


@lru_cache(maxsize=256)
def parse_function(text: str | None, imports: Imports = USUAL) -> Function | None:
    """The first function of the text; None when it does not begin with one that can be read whole.

    `imports` are those of its file: what its names stand for is written in the tree.
    """
    if not text or len(text) > _LONGEST or "\0" in text:
        return None
    rows = textwrap.dedent(text).split("\n")
    first = next((row for row in rows if row and not row.startswith("@") and row[0] not in " )]}"), "")
    if not first.startswith(("def ", "async def ")):
        return None
    for end in _ends(rows):
        code = "\n".join(rows[:end])
        tree = parsed_module(code)
        if tree is not None:
            if end == len(rows) and (len(rows) >= _MOST_ROWS or len(text) >= _MOST_TEXT):
                return None
            node = tree.body[0] if tree.body else None
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return None
            return Function(node, code, imports=make_canonical(tree, imports))
    return None


class FunctionText(NamedTuple):
    """The recorded text of a function with the imports of its file, to be parsed where it is asked for."""

    text: str
    imports: Imports = USUAL

    def parsed(self) -> Function | None:
        """The function; None where it was not recorded whole."""
        return parse_function(self.text, self.imports)


def _ends(rows: list[str]) -> Iterator[int]:
    """Where the first function may end: before each line that begins at its own indentation, the nearest first, then the end."""
    begun = False
    for number, row in enumerate(rows):
        if begun and row[:1] not in ("", " ", "\t", ")", "#", "]", "}"):
            yield number
        begun = begun or row.startswith(("def ", "async def "))
    yield len(rows)
