"""How the probe goes into the bodies of higher order operators: which operands a body gets, and what the whole call returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.fx.inputs import computed
from dynadiag.torch_compat import pytree

Runner = Callable[[GraphModule, Sequence[Any]], Any]
_LEFT_ALONE = ("auto_functionalized", "triton", "flex_attention", "out_dtype", "run_const_graph", "with_effects", "rng_state")


def follows(name: str, args: Sequence[Any]) -> bool:
    """Whether the probe runs the bodies of this operator itself; the others are called as they are."""
    return not any(part in name for part in _LEFT_ALONE) and any(isinstance(item, GraphModule) for item in pytree.tree_leaves(list(args)))


def run_bodies(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], run: Runner) -> Any:
    """The result of the operator, each of its bodies having run once on its operands."""
    if name == "cond":
        branches = [run(args[1], list(args[3])), run(args[2], list(args[3]))]
        return branches[0]
    if name.startswith("while_loop"):
        carried, extra = list(args[2]), list(args[3]) if len(args) > 3 else []
        run(args[0], [*carried, *extra])
        return run(args[1], [*carried, *extra])
    if name in _LOOPS:
        return _LOOPS[name]([*args, *kwargs.values()], run)
    body, operands = _first_body(args)
    if name == "autograd_function_apply":
        return _apply(body, operands, run)
    with torch.set_grad_enabled(args[0] if name == "wrap_with_set_grad_enabled" else torch.is_grad_enabled()):
        return run(body, operands)


def _first_body(args: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
    """The body that does the work, and as many operands as it takes."""
    body = next(item for item in args if isinstance(item, GraphModule))
    operands = [item for item in pytree.tree_leaves([item for item in args if not isinstance(item, GraphModule)]) if _is_operand(item)]
    return body, operands[: len(body.graph.find_nodes(op="placeholder"))]


def _apply(body: GraphModule, operands: list[Any], run: Runner) -> Any:
    """`autograd.Function`: its forward runs without grad; its results require grad when an operand does."""
    with torch.no_grad():
        result = run(body, operands)
    outputs = result[0] if isinstance(result, tuple) and len(result) == 2 else result
    if not torch.is_grad_enabled() or not any(isinstance(item, torch.Tensor) and item.requires_grad for item in operands):
        return outputs
    return pytree.tree_map(_with_gradient, outputs)


def _with_gradient(value: Any) -> Any:
    tracked = isinstance(value, torch.Tensor) and not value.requires_grad and (value.is_floating_point() or value.is_complex())
    return computed(value) if tracked else value


def _is_operand(item: Any) -> bool:
    return isinstance(item, (torch.Tensor, torch.SymInt, int, float)) and not isinstance(item, bool)


def _scan(args: Sequence[Any], run: Runner) -> Any:
    body, initial, rows = args[0], list(args[1]), list(args[2])
    extra = list(args[3]) if len(args) > 3 else []
    result = list(run(body, [*initial, *(row[0] for row in rows), *extra]))
    length = rows[0].shape[0] if rows else 1
    return (*result[: len(initial)], *(_stacked(item, length) for item in result[len(initial) :]))


def _associative(args: Sequence[Any], run: Runner) -> Any:
    body, rows = args[0], list(args[1])
    extra = list(args[2]) if len(args) > 2 else []
    run(body, [*(row[0] for row in rows), *(row[0] for row in rows), *extra])
    return tuple(row.clone() for row in rows)


def _map(args: Sequence[Any], run: Runner) -> Any:
    body, rows, extra = args[0], list(args[1]), list(args[2]) if len(args) > 2 else []
    result = run(body, [*(row[0] for row in rows), *extra])
    return tuple(_stacked(item, rows[0].shape[0]) for item in result)


def _stacked(item: Any, length: int) -> Any:
    return torch.stack([item] * int(length)) if isinstance(item, torch.Tensor) else item


_LOOPS: dict[str, Callable[[Sequence[Any], Runner], Any]] = {
    "scan": _scan,
    "associative_scan": _associative,
    "map": _map,
    "map_impl": _map,
}
