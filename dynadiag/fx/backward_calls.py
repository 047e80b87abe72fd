"""The calls of compiled autograd in a graph's text, as plain tensor operations; and a list input taken apart as AOTAutograd counts it.

`torch._dynamo.compiled_autograd` (2.11 to 2.15) puts three functions of its own into each graph. What they do to tensors:
`validate_outputs` sums a gradient down to the size of its input; `call_aot_bwd_prologue` gives sizes, saved tensors and tangents in the
order that the AOT backward wants; `AccumulateGrad` adds to the `.grad` that is there, in place (`polyfills.accumulate_grad`).
The backward functions of C++ (`MmBackward0`) exist only while that process runs a backward: they can be stood in for, not run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from dynadiag.errors import NotRebuildableError, shorten

PREFIX = "torch__dynamo_compiled_autograd_"
OPERATORS = f"{PREFIX}ops_"
_LONGEST_LIST = 100_000
# Makes a node that calls a method of its first argument.
CallMethod = Callable[[str, tuple[Any, ...]], Any]


def expanded(target: str, arguments: Sequence[Any], call_method: CallMethod) -> list[Any] | None:
    """The results of a call of compiled autograd; None when it is none of the three. Raises NotRebuildableError for another form of it."""
    expand = _EXPANDED.get(target)
    if expand is None:
        return None
    try:
        return expand(arguments, call_method)
    except (TypeError, IndexError, ValueError):
        raise NotRebuildableError(f"it calls `{shorten(target, 80)}` in an unknown form") from None


def _validate_outputs(arguments: Sequence[Any], call_method: CallMethod) -> list[Any]:
    pairs = zip(*arguments, strict=True)
    return [item if item is None or expected is None else _summed(item, expected[1], call_method) for item, expected in pairs]


def _summed(gradient: Any, size: Any, call_method: CallMethod) -> Any:
    if not isinstance(size, (list, tuple)):
        raise TypeError("no size")
    return call_method("sum_to_size", (gradient, list(size)))


def _prologue(arguments: Sequence[Any], call_method: CallMethod) -> list[Any]:
    saved, sizes, others, *tangents = arguments
    flat = [item for part in tangents for item in (part if isinstance(part, (list, tuple)) else [part])]
    return [*sizes, *saved, *others, *flat]


def _accumulate(arguments: Sequence[Any], call_method: CallMethod) -> list[Any]:
    (gradient,), _variable, held, *_ = arguments
    return [gradient if held is None else held if gradient is None else call_method("add_", (held, gradient))]


_EXPANDED: dict[str, Callable[[Sequence[Any], CallMethod], list[Any]]] = {
    f"{OPERATORS}validate_outputs": _validate_outputs,
    f"{OPERATORS}AccumulateGrad": _accumulate,
    f"{PREFIX}call_aot_bwd_prologue": _prologue,
}


def list_items(names: Sequence[str], statements: Sequence[ast.stmt]) -> list[str | None]:
    """The statement names that read each item of a list input (under one of its `names`), by position; None for items nobody reads."""
    found: dict[int, str] = {}
    for statement in statements:
        target, value = assigned(statement)
        if target is None or not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Name) or value.value.id not in names:
            continue
        if isinstance(value.slice, ast.Constant) and type(value.slice.value) is int and 0 <= value.slice.value < _LONGEST_LIST:
            found.setdefault(value.slice.value, target)
    return [found.get(position) for position in range(max(found, default=-1) + 1)]


def item_annotations(statements: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """The annotation of each annotated assignment, by its name."""
    return {
        statement.target.id: statement.annotation
        for statement in statements
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def assigned(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    """The name that a statement assigns, and the value; None for any other statement."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, statement.value
    return None, None
