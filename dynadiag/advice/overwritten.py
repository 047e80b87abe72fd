"""What to change where an output of a CUDA graph is read after a later call of the graph has overwritten it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from dynadiag.facts.wording import short_place
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.source.line import parse_line
from dynadiag.source.tree import names_in

# Each was tried on an H200, torch 2.11: the program raised before and ran afterwards. That of gradients is torch's own (2.15).
_STEPS = Advice(
    slug="mark-steps",
    text=(
        "If the calls belong to one step, call `torch.compiler.cudagraph_mark_step_begin()` once where each step begins, and not between "
        "them: what they return then lives until the next step."
    ),
    options=("torch.compiler.cudagraph_mark_step_begin",),
)
_GRADIENTS = Advice(
    slug="stable-gradients",
    text=(
        "Set `.grad` to None before each backward (`optimizer.zero_grad()`). To accumulate gradients, give each parameter a `.grad` of "
        "zeros before the first compiled backward, outside of the CUDA graphs."
    ),
)


def overwritten_advice(
    made: str | None, read: str | None, calls: Sequence[Location], *, is_gradient: bool, reads_own: bool
) -> tuple[Advice, ...]:
    """A copy outside of the compiled function, or longer steps; for state that the function itself keeps a buffer, for gradients their own.

    `made` and `read` are the lines that make the output and read it too late, `calls` the places that call the compiled function;
    `reads_own`: the line that reads is such a call.
    """
    if is_gradient:
        return (_GRADIENTS,)
    kept = _kept_by(made)
    if kept is not None:
        text = (
            f"`{kept}` keeps an output of the CUDA graph for the next call. Make it a buffer that is written in place "
            f"(`register_buffer`, and `{kept}.copy_(...)`), or put a copy in its place after each call, outside of the compiled function "
            "(`.clone()`)."
        )
        return (Advice(slug="state-in-buffer", text=text),)
    return _clone(read if reads_own else None, calls), _STEPS


def _clone(code: str | None, calls: Sequence[Location]) -> Advice:
    """The copy, shown as an edit where the statement that reads an output is a call which makes the next one."""
    lines = f" ({' and '.join(map(short_place, calls[:4]))})" if calls else ""
    text = (
        f"Keep a copy, made outside of the compiled function: `.clone()` behind each call whose result is read after the next call{lines}. "
        "A `clone` inside the function is overwritten as well."
    )
    after = None if code is None else _cloned(code)
    return Advice(slug="clone-output", text=text, before=None if after is None else code, after=after)


def _cloned(code: str) -> str | None:
    """`state = f(state)` with `.clone()` behind the call; None for a statement of another form."""
    statement = _assignment(code)
    target = None if statement is None else statement.targets[0]
    if statement is None or not isinstance(target, ast.Name) or not isinstance(statement.value, ast.Call):
        return None
    return f"{code}.clone()" if target.id in names_in(statement.value) else None


def _assignment(code: str | None) -> ast.Assign | None:
    """The statement of a line that assigns to one target."""
    line = parse_line(code)
    statement = line.tree.body[0] if line.tree is not None and line.complete and len(line.tree.body) == 1 else None
    return statement if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None


def _kept_by(code: str | None) -> str | None:
    """The attribute to which the line that makes the output assigns it: `self.state`."""
    statement = _assignment(code)
    target = None if statement is None else statement.targets[0]
    return ast.unparse(target) if isinstance(target, ast.Attribute) else None
