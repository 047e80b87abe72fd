"""Which calls compute on tensors as on numbers, and which change an object."""

from __future__ import annotations

import ast

from dynadiag.source.line import dotted
from dynadiag.source.python_names import TAKES_BOTH
from dynadiag.source.torch_names import FACTORIES, TAKES_SIZES, is_torch_function, torch_function

_MAKES = FACTORIES | {"tensor", "as_tensor"}
_TAKES_OUT = frozenset(("next", "pop", "popleft", "popitem", "send", "read", "readline"))
_COLLECTS = frozenset(("append", "add", "insert", "extend", "update", "setdefault", "put", "push", "appendleft", "remove", "discard"))


def _wants_number(call: ast.Call) -> bool:
    return (dotted(call.func) or "").rpartition(".")[2] in TAKES_SIZES | {"int", "float", "range"}


def takes_tensors(call: ast.Call, argument: ast.AST | None = None) -> bool:
    """Whether the call computes on tensors as on numbers: torch's functions but for the factories, methods that collect nothing.

    `argument` is the one in question: sizes and distances (`torch.roll(x, k)`, `x.view(n, -1)`) are read as numbers, what is rolled is not.
    """
    name = dotted(call.func) or ""
    if _wants_number(call) and not (is_torch_function(name) and call.args and argument is call.args[0]):
        return False
    if is_torch_function(name):
        return torch_function(name) not in _MAKES
    if isinstance(call.func, ast.Attribute):
        return (
            call.func.attr not in _COLLECTS
            and not isinstance(call.func.value, ast.Constant)
            and name.partition(".")[0] not in ("math", "numpy")
        )
    return name in TAKES_BOTH


def changes_something(call: ast.Call) -> bool:
    """Whether an argument of the call takes something out of an object, puts something in or gives a name a value."""
    inside = [node for argument in (*call.args, *(word.value for word in call.keywords)) for node in ast.walk(argument)]
    called = {(dotted(child.func) or "").rpartition(".")[2] for child in inside if isinstance(child, ast.Call)}
    return not called.isdisjoint(_TAKES_OUT | _COLLECTS) or any(isinstance(descendant, ast.NamedExpr) for descendant in inside)
