"""A buffer that is registered anew on both sides of a branch on a tensor: one assignment of the chosen value.

`if longer: self.register_buffer("b", self.long) else: self.register_buffer("b", self.short)`, with what is made or moved just before.
What is made when it is needed is then made at the first call, and the buffer is a tensor of its own: that is what the change gives up.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from dynadiag.errors import EditError


@dataclass(frozen=True, kw_only=True)
class Switched:
    """The rows that take the place of the branch, and the attributes that may be bound to other tensors than before."""

    rows: tuple[str, ...]
    attributes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Side:
    before: tuple[ast.stmt, ...]
    buffer: str
    value: ast.expr
    attributes: tuple[str, ...]


def switched(branch: ast.If, condition: ast.expr) -> Switched | None:
    """The branch as one assignment; None where its sides do not both register one buffer. Raises EditError where more is done there."""
    sides = [_side(block) for block in (branch.body, branch.orelse)]
    first, other = sides
    if first is None or other is None or first.buffer != other.buffer:
        return None
    rows = [row for side in (first, other) for statement in side.before for row in ast.unparse(statement).splitlines()]
    rows.append(f"taken = {ast.unparse(condition)}")
    rows.append(f"self.{first.buffer} = torch.where(taken, {ast.unparse(first.value)}, {ast.unparse(other.value)})")
    names = dict.fromkeys((first.buffer, *first.attributes, *other.attributes))
    return Switched(rows=tuple(rows), attributes=tuple(names))


def _side(block: Sequence[ast.stmt]) -> _Side | None:
    last = block[-1] if block else None
    call = last.value if isinstance(last, ast.Expr) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "self.register_buffer" or len(call.args) != 2:
        return None
    name, value = call.args
    if not isinstance(name, ast.Constant) or not str(name.value).isidentifier() or _attribute(value) is None:
        return None
    names = [_prepared(statement) for statement in block[:-1]]
    return _Side(before=tuple(block[:-1]), buffer=str(name.value), value=value, attributes=(*names, _attribute(value) or ""))


def _prepared(node: ast.stmt) -> str:
    """The attribute that a statement makes where it is not there yet, or moves to a device."""
    if isinstance(node, ast.If) and len(node.body) == 1 and not node.orelse:
        made = node.body[0]
        target = made.targets[0] if isinstance(made, ast.Assign) else None
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        name = None if first is None else _attribute(first)
        if name is not None and ast.unparse(node.test) == f"not hasattr(self, {name!r})":
            return name
    if isinstance(node, ast.Assign) and (name := _attribute(node.targets[0])) is not None:
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func) == f"self.{name}.to" and len(node.targets) == 1:
            return name
    raise EditError(f"`{ast.unparse(node).splitlines()[0]}` does more than prepare the buffer")


def _attribute(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self" else None
