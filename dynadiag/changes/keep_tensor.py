"""A number that is read out of a tensor kept as a tensor, with all lines that then have to take one: an idea."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from dynadiag.changes.both_sides import both_sides
from dynadiag.changes.branch import text_of
from dynadiag.changes.condition import tensor_of
from dynadiag.changes.defer_effect import is_effect
from dynadiag.changes.number import math_function
from dynadiag.facts.wording import listed
from dynadiag.model.report import Advice
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.place import Place
from dynadiag.source.tree import names_in
from dynadiag.source.uses import is_item, scalar_calls

KEEP = "keep-tensor"
_MOST_CHANGES = 4
_TAKES = (ast.BinOp, ast.UnaryOp, ast.AugAssign)


def keep_tensor(line: SourceLine, place: Place) -> Iterator[Advice]:
    """`x = t.item()` as `x = t.detach()`, where each later use of `x` can take a tensor as it is or in a form that is given."""
    statement, reads = place.statement(), scalar_calls(line)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name) or not reads:
        return
    name = statement.targets[0].id
    if not all(is_item(read) or dotted(read.func) == "float" for read in reads):
        return
    changes, unknown = _changes(place, name, {name})
    if unknown or len(changes) > _MOST_CHANGES or not (place.reads(name)):
        return
    new = line.replaced_all((read, _detached(tensor_of(line, read))) for read in reads)
    also = "" if not changes else f". Then write {listed([f'`{after}` for `{before}`' for before, after in changes], limit=_MOST_CHANGES)}"
    told = "What only tells something is then left out of compiled calls. " if "is_compiling" in also else ""
    yield Advice(
        slug=KEEP,
        text=f"Keep a tensor in `{name}` instead of a number: what reads it computes with it{also}. {told}Check that it is read nowhere "
        "else; what Python computed in double precision is then of the tensor's type",
        before=line.code,
        after=new,
        how_sure="idea",
    )


def _detached(text: str) -> str:
    return text if text.endswith(".detach()") else f"{text}.detach()"


def _changes(place: Place, name: str, known: set[str]) -> tuple[list[tuple[str, str]], bool]:
    """What each use becomes where it is no arithmetic, and whether one is of another kind."""
    changes: dict[str, str] = {}
    for read in place.reads(name):
        found = _change(place, read, known)
        if found is None:
            return [], True
        changes.update(found)
    return list(changes.items()), False


def _change(place: Place, read: ast.expr, known: set[str]) -> dict[str, str] | None:
    """The changes that one use needs, none where a tensor serves as it is; None where it may need a number."""
    node: ast.AST = read
    while isinstance(parent := place.parent(node), ast.BinOp | ast.UnaryOp):
        if isinstance(parent, ast.BinOp) and place.is_tensor(parent.right if parent.left is node else parent.left):
            return {}
        node = parent
    if isinstance(parent, ast.Compare) or (isinstance(parent, ast.If) and parent.test is node):
        around = next((one for one in place.around(node) if isinstance(one, ast.stmt)), None)
        if not isinstance(around, ast.If):
            return None
        if all(is_effect(statement, place) for statement in (*around.body, *around.orelse)):
            test = place.text(around.test)
            return {f"if {test}:": f"if not torch.compiler.is_compiling() and {test}:"}  # compiled calls then do not tell it
        advice = next(both_sides(replace(place, row=around.lineno)), None)
        return None if advice is None else {_row(advice.before): _row(advice.after)}
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        target = parent.targets[0].id
        if target in known:
            return {}
        found, unknown = _changes(place, target, known | {target})
        return None if unknown else dict(found)
    if isinstance(parent, ast.Call) and parent.func is not node:
        called = dotted(parent.func) or ""
        if called in ("torch.tensor", "float") and len(parent.args) == 1:
            return {place.text(parent): place.text(node)}
        if called in ("max", "min") and len(parent.args) == 2:
            (other,) = (item for item in parent.args if item is not node)
            bound = "min" if called == "max" else "max"
            return (
                {place.text(parent): f"torch.clamp({place.text(node)}, {bound}={text_of(place, other)})"} if not names_in(other) else None
            )
        if (function := math_function(parent)) is not None:
            return {place.text(parent): f"torch.{function}({place.text(node)})"}
        return None
    if isinstance(parent, ast.Return | ast.AugAssign):
        return None
    return {} if isinstance(node, _TAKES) and isinstance(parent, ast.Return | ast.Assign) else None


def _row(text: str | None) -> str:
    return "; ".join(row.strip() for row in (text or "").splitlines()).replace(":; ", ": ")
