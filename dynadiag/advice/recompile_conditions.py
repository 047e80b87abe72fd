"""Cures for recompiles because of a condition on a size or a number that the compiled code holds for."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dynadiag.advice.recompile_cause import Cause
from dynadiag.advice.source import SourceLine, dotted, parse_line
from dynadiag.model.report import Advice

_QUESTIONS = (ast.Compare, ast.If, ast.IfExp, ast.While, ast.Assert, ast.BoolOp)


def condition_advice(cause: Cause) -> Iterable[Advice]:
    """A condition that later values broke: a branch, or a value that the line needs as a number.

    Established: an equality on a line that compares nothing is no branch but a constant, and each value is compiled on its own.
    """
    line = parse_line(None if cause.origin is None else cause.origin.code)
    asks = any(isinstance(node, _QUESTIONS) for node in line.nodes) or line.code.lstrip().startswith(("if ", "elif ", "while ", "assert "))
    if " == " in cause.text and line.nodes and not asks:
        yield from _math_outside(cause, line)
        return
    at = "" if cause.origin is None or not cause.origin.code else f" (`{cause.origin.code}`)"
    yield Advice(
        slug="branch-outside",
        text=(
            f"The compiled code holds for one side of a condition on `{cause.source}`{at}: each side takes one version, and no change is "
            "needed where there are two. Else take the branch outside and compile each side as a function of its own."
        ),
    )


def _math_outside(cause: Cause, line: SourceLine) -> Iterable[Advice]:
    """A function of Python's `math` on the number, whose result the line uses in arithmetic."""
    for node in line.nodes:
        called = isinstance(node, ast.Call) and (dotted(node.func) or "").startswith("math.")
        if (
            called
            and isinstance(line.parent(node), ast.BinOp)
            and any(line.text(one) == cause.source for one in ast.walk(node) if isinstance(one, ast.expr))
        ):
            done = line.text(node)
            text = (
                f"`{done}` needs the value of `{cause.source}`, so each value is compiled on its own. Compute it before the call and pass "
                f"the result as a tensor (`torch.tensor({done})`) to use in its place."
            )
            yield Advice(slug="math-outside", text=text)
            return
