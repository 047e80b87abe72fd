"""How a compiled function uses what changed, read from its recorded source: whether a tensor can take a number's place.

The text comes from strangers' logs: it is parsed, never compiled or run. What the text does not plainly show is answered with "no".
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from dynadiag.advice.source import dotted, parsed_module
from dynadiag.advice.uses import takes_tensors

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_LONGEST = 8_000
# A recording keeps no more of a function (`torch_compat/trace/stacks.py`, one line fewer each): what is as long may go on.
_MOST_ROWS, _MOST_TEXT = 120, 5_900
_MOST_STEPS = 6
_JOINS = frozenset({"torch.stack", "torch.cat", "torch.concat"})


@dataclass(frozen=True, eq=False)
class FunctionSource:
    """A function as it is written."""

    node: ast.FunctionDef | ast.AsyncFunctionDef

    @cached_property
    def _parents(self) -> dict[int, ast.AST]:
        return {id(child): node for node in ast.walk(self.node) for child in ast.iter_child_nodes(node)}

    @cached_property
    def _body(self) -> tuple[ast.AST, ...]:
        return tuple(one for statement in self.node.body for one in ast.walk(statement))

    def reads(self, name: str) -> int:
        """How often the body reads the name."""
        return len(self._reads(name))

    def _reads(self, name: str) -> tuple[ast.expr, ...]:
        """Where the body reads `scale` or `self.scale`."""
        found = (one for one in self._body if isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Load))
        return tuple(one for one in found if dotted(one) == name)

    def tensor_would_do(self, name: str) -> bool:
        """Whether all that the function does with the number is arithmetic whose results are used as tensors can be.

        Not where it is compared, indexes, bounds a loop, is passed on to a function that is not torch's, printed, returned as it is, or
        where the object that it belongs to is passed on.
        """
        return self._arithmetic_only(name, frozenset(), 0)

    def _arithmetic_only(self, name: str, seen: frozenset[str], others: int) -> bool:
        """`others` counts what the arithmetic that made the name took beside constants and the number itself."""
        if name in seen:
            return True
        reads = self._reads(name)
        if not reads or len(seen) > _MOST_STEPS or self._handed_on(name):
            return False
        return all(self._is_arithmetic(one, seen | {name}, others) for one in reads)

    def _handed_on(self, name: str) -> bool:
        """Whether the object with the attribute (`settings` of `settings.scale`) goes where its attributes may be read unseen."""
        owner, _, attribute = name.rpartition(".")
        if not attribute or not owner:
            return False
        return any(self._may_be_read_by(self._parents.get(id(one))) for one in self._reads(owner))

    def _may_be_read_by(self, parent: ast.AST | None) -> bool:
        """Whether the owner goes on there: by itself, or to a method of its own (which a submodule that is called looks like)."""
        if not isinstance(parent, ast.Attribute):
            return True
        call = self._parents.get(id(parent))
        return isinstance(call, ast.Call) and call.func is parent

    def _is_arithmetic(self, node: ast.AST, seen: frozenset[str], others: int) -> bool:
        top = node
        while (parent := self._parents.get(id(top))) is not None:
            if isinstance(parent, ast.BinOp) and isinstance(parent.op, _OPERATORS):
                other = parent.right if parent.left is top else parent.left
                others += not all(isinstance(one, _OF_NUMBERS) for one in ast.walk(other))
            elif not (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub)):
                break
            top = parent
        if isinstance(parent, ast.AugAssign):
            return isinstance(parent.op, _OPERATORS) and parent.value is top
        if isinstance(parent, ast.Assign):
            names = [target.id if isinstance(target, ast.Name) else None for target in parent.targets]
            return all(one is not None and self._arithmetic_only(one, seen, others) for one in names)
        if not others:
            return False
        if isinstance(parent, ast.Call):
            return top is not parent.func and _is_torchs(parent)
        return isinstance(parent, ast.Return) or (isinstance(parent, ast.Attribute) and isinstance(self._parents.get(id(parent)), ast.Call))

    def only_joined(self, name: str) -> bool:
        """Whether all that the function does with the list of tensors is to stack or concatenate it."""
        reads = self._reads(name)
        calls = [self._parents.get(id(one)) for one in reads]
        return bool(reads) and all(isinstance(one, ast.Call) and dotted(one.func) in _JOINS for one in calls)

    def only_grows(self, name: str) -> bool:
        """Whether all that the function does with the container is to put something into it; `self` may be asked for other things."""
        owner = name.rpartition(".")[0]
        handed = owner and any(not isinstance(self._parents.get(id(one)), ast.Attribute) for one in self._reads(owner))
        reads = self._reads(name)
        return bool(reads) and not handed and all(map(self._is_filled, reads))

    def _is_filled(self, node: ast.AST) -> bool:
        """`history.append(x)` as a statement, or `cache[k] = x`."""
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Subscript):
            return parent.value is node and isinstance(parent.ctx, ast.Store)
        call = self._parents.get(id(parent))
        called = isinstance(call, ast.Call) and call.func is parent and isinstance(self._parents.get(id(call)), ast.Expr)
        return called and isinstance(parent, ast.Attribute) and parent.attr in _FILLING


_FILLING = frozenset({"append", "appendleft", "extend", "add", "insert"})
_OF_NUMBERS = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)


def _is_torchs(call: ast.Call) -> bool:
    """Whether the call is one of torch's functions, which take what arithmetic with tensors gives."""
    return (dotted(call.func) or "").startswith(("torch.", "F.", "nn.functional.")) and takes_tensors(call)


@lru_cache(maxsize=256)
def parse_function(text: str | None) -> FunctionSource | None:
    """The first function of the text; None when it does not begin with one that can be read whole."""
    if not text or len(text) > _LONGEST or "\0" in text:
        return None
    rows = textwrap.dedent(text).split("\n")
    first = next((row for row in rows if row and not row.startswith("@") and row[0] not in " )]}"), "")
    if not first.startswith(("def ", "async def ")):
        return None
    for end in _ends(rows):
        tree = parsed_module("\n".join(rows[:end]))
        if tree is not None:
            if end == len(rows) and (len(rows) >= _MOST_ROWS or len(text) >= _MOST_TEXT):
                return None
            node = tree.body[0] if tree.body else None
            return FunctionSource(node) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None
    return None


def _ends(rows: list[str]) -> Iterator[int]:
    """Where the first function may end: before each line that begins at its own indentation, the nearest first, then the end."""
    begun = False
    for number, row in enumerate(rows):
        if begun and row[:1] not in ("", " ", "\t", ")", "#", "]", "}"):
            yield number
        begun = begun or row.startswith(("def ", "async def "))
    yield len(rows)
