"""Numbers read out of tensors for a function of Python's `math`, which reads a tensor again: torch's own function takes its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dynadiag.advice.branches import tensor_of
from dynadiag.advice.reads import scalar_calls
from dynadiag.advice.situation import Situation, rewrite, sketch
from dynadiag.advice.source import SourceLine, dotted
from dynadiag.advice.uses import takes_tensors
from dynadiag.model.report import Advice

ARITHMETIC = "a 0-d tensor works where later lines only compute with it"
# What `math` and torch compute alike, from one number to one number.
_MATH = frozenset(
    ("exp", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "erf")
)
# What torch computes on symbols (torch/__init__.py, `sym_sqrt` and its kin); others may end compilation with an error (2.15).
_ON_SYMBOLS = frozenset(
    ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2", "floor", "ceil", "trunc", "pow")
)


def in_untraced_math(line: SourceLine) -> bool:
    """Whether the line reads a number for a function of `math` that cannot be in a graph, so that the number must not become a symbol."""
    reads = (*line.calls("float", "int"), *line.methods("item"))
    calls = [number_call(line, read) for read in reads]
    names = (dotted(call.func) or "" for call in calls if call is not None)
    return any(name.startswith("math.") and name[5:] not in _ON_SYMBOLS for name in names)


def math_function(call: ast.Call) -> str | None:
    """The torch function that computes what a call of `math` computes, or None; `math.ceil` and its kin give integers."""
    name = dotted(call.func) or ""
    return name[5:] if name.startswith("math.") and name[5:] in _MATH and len(call.args) == 1 else None


def detached(inner: str) -> str:
    """The tensor without its gradient, as a number has none."""
    return inner if ".detach()" in inner else f"{inner}.detach()"


def number_call(line: SourceLine, read: ast.AST) -> ast.Call | None:
    """The call that the read is an argument of, alone or as a part of arithmetic, unless it computes on tensors as well."""
    node = read
    while isinstance(parent := line.parent(node), ast.BinOp | ast.UnaryOp):
        node = parent
    call = parent if isinstance(parent, ast.Call) and parent.func is not node else None
    return None if call is None or takes_tensors(call) else call


def computed_with_torch(situation: Situation, read: ast.Call) -> Iterator[Advice]:
    """`math.exp(-t.item())` as `torch.exp(-t.detach())`; in words where the line does not say which of its casts read tensors."""
    line, reads = situation.line, scalar_calls(situation.line)
    around = [number_call(line, one) for one in reads]
    calls = {id(call): call for call in around if call is not None}
    functions = [math_function(call) for call in calls.values()]
    if not functions or None in functions or any(number_call(line, call) is not None for call in calls.values()) or _casts_to_int(read):
        return
    casts = {id(call) for call in line.calls("float") if len(call.args) == 1} - {id(one) for one in reads}
    text = f"Compute on the tensor with torch instead of math ({ARITHMETIC})"
    if casts and not any(isinstance(one.func, ast.Attribute) for one in reads):
        written = [f"`torch.{function}`" for call in line.nodes if isinstance(call, ast.Call) and (function := math_function(call))]
        names = ", ".join(dict.fromkeys(written))
        yield from sketch(situation, "item-math", f"{text}: write {names}, and `.detach()` instead of `float(...)` where it reads a tensor")
        return
    changes: list[tuple[ast.AST, str]] = [(call.func, f"torch.{math_function(call)}") for call in calls.values()]
    changes += [(one, detached(tensor_of(line, one))) for one in reads]
    yield from rewrite(situation, "item-math", line.replaced_all(changes), text)


def _casts_to_int(read: ast.Call) -> bool:
    return isinstance(read.func, ast.Name) and read.func.id == "int"
