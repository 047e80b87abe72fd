"""Advice for a number that a call on the line takes: a list that it is appended to, a bound that Python chooses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.advice.math_calls import detached
from dynadiag.advice.situation import Situation, line_name, say
from dynadiag.advice.source import SourceLine, dotted
from dynadiag.model.report import Advice


def appended(situation: Situation, inner: str, container: ast.expr) -> Iterator[Advice]:
    """`rows.append(x.item())`: after the call where the list is an object's, as tensors where it is a local one that nobody reads here."""
    line = situation.line
    base = line.text(container)
    others = [node for node in line.nodes if dotted(node) == base and node is not container] if dotted(container) else []
    if others:
        text = (
            f"{line_name(situation)} needs the numbers that `{base}` holds already: keep this function in plain Python "
            "(`@torch.compiler.disable` above it), and compile what computes before and after it"
        )
    elif isinstance(container, ast.Name):
        text = (
            f"Return the tensor (`{detached(inner)}`) and append to `{base}` after the compiled call; if this function makes `{base}` and "
            "only returns it, append the tensor, and read the numbers after the call"
        )
    else:
        text = (
            f"Return the tensor (`{detached(inner)}`) and append to `{base}` after the compiled call: a list that "
            "grows inside compiled code is guarded by its length, and each call compiles anew"
        )
    yield from say("item-append", text)


def bounded(line: SourceLine, read: ast.Call, use: ast.Call, inner: str) -> str | None:
    """`x / max(y.item(), 1e-5)` as `x / y.detach().clamp(min=1e-5)`, where the other bound is a plain number and the line computes on."""
    name, other = dotted(use.func), [one for one in use.args if one is not read]
    if name not in ("max", "min") or use.keywords or len(use.args) != 2 or len(other) != 1 or not isinstance(other[0], ast.Constant):
        return None
    if dotted(read.func) == "int" or not isinstance(line.parent(use), ast.BinOp) or type(other[0].value) not in (int, float):
        return None
    return line.replaced(use, f"{detached(inner)}.clamp({'min' if name == 'max' else 'max'}={line.text(other[0])})")
