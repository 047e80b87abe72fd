"""One run of a candidate without the compiler, keeping the value of every node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.fx import Interpreter, Node

from dynadiag.capture.reach import strided_copy
from dynadiag.compare.judge import MINIFY, Noise, Runs, Seen, judge
from dynadiag.compare.noise import widen, wider_dtype
from dynadiag.compare.rounding import DISCRETE, NOT_FINITE
from dynadiag.model.difference import Difference
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.inputs import Input, TensorInput, make_values
from dynadiag.reduce.graphs.memory import overlaps_itself
from dynadiag.torch_compat.dispatch.state import why_it_cannot_run
from dynadiag.torch_compat.pytree import tree_leaves, tree_map_only


class _Keeping(Interpreter):
    """Keeps each value as it was when it was made; with `copies` even when a later operator writes into it."""

    def __init__(self, module: Any, *, copies: bool) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}
        self.versions: dict[str, int] = {}
        self._copies = copies

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        self.values[n.name] = tree_map_only(torch.Tensor, _copied, result) if self._copies else result
        if isinstance(result, torch.Tensor):
            self.versions[n.name] = _version(result)
        return result


def eager_values(candidate: Candidate, *, grad: bool = True) -> Mapping[str, Any]:
    """The value of each node by its name. Raises whatever the graph raises.

    Gradients are recorded as in the graph, so that a value that becomes an input still says whether it needs one; without `grad` none does,
    as under `torch.no_grad` (an input that needed one could not be written in place).
    """
    values, written = _run(candidate, copies=False, grad=grad)
    return _run(candidate, copies=True, grad=grad)[0] if written else values


def _run(candidate: Candidate, *, copies: bool, grad: bool) -> tuple[dict[str, Any], bool]:
    from dynadiag.torch_compat.dispatch.state import kept_global_state

    interpreter = _Keeping(candidate.module, copies=copies)
    with kept_global_state(), torch.set_grad_enabled(grad):
        inputs = make_values(candidate.inputs)
        torch.default_generator.manual_seed(0)  # as in the calls of the questions: else each process would find other values
        interpreter.run(*inputs)
    values = interpreter.values
    written = any(_version(values[name]) != version for name, version in interpreter.versions.items()) if not copies else False
    return values, written


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.layout is not torch.strided or overlaps_itself(tuple(tensor.shape), tuple(tensor.stride()))
    copy: torch.Tensor = tensor.detach().clone() if dense else strided_copy(tensor)
    return copy.requires_grad_(tensor.requires_grad)


def impossible(candidate: Candidate) -> str | None:
    """Why the candidate cannot run on tensors without data. Fake tensors of a GPU may initialise it: not for who forks later."""
    reasons = (why_it_cannot_run(candidate.module, [_layout(input_) for input_ in call.inputs]) for call in candidate.calls)
    return next(filter(None, reasons), None)


def _layout(tensor_input: Input) -> Any:
    return (
        (tensor_input.shape, tensor_input.stride, tensor_input.dtype, tensor_input.device, tensor_input.requires_grad)
        if isinstance(tensor_input, TensorInput)
        else tensor_input.value
    )


class WrongResult(NamedTuple):
    """A result that is wrong: the kind of failure ("nan" or "wrong_result"), which one (None: their number), and what is wrong with it."""

    kind: str
    position: int | None
    what: str


def wrong(
    results: Sequence[Any],
    eager: Sequence[Any],
    exact: Sequence[Any] | None,
    *,
    first: Sequence[int] = (),
    runs: Callable[[], Runs] = Runs,
    before: Sequence[Any] = (),
) -> WrongResult | None:
    """The first result that is wrong; None when all are right.

    `exact` are the results in float64, None when the graph does not run so: then only the tolerance counts. Those at the positions `first`
    are looked at before the others; integers and booleans come last: rounding alone turns a comparison. `runs` gives the results of more
    uncompiled runs, on inputs that are a bit off; it is asked when something would be wrong. `before` has what values were
    before the call that wrote them, None for others.
    """
    if len(results) != len(eager):
        return WrongResult("wrong_result", None, f"{len(results)} results instead of {len(eager)}")
    seen = [Seen("output", at, f"result {at}", value) for at, value in enumerate(eager)]
    noise = Noise(exact=exact if exact is not None and len(exact) == len(eager) else (), runs=lambda _: runs(), before=before)
    judged = judge(seen, results, noise, MINIFY)
    found = [difference for at in dict.fromkeys((*first, *range(len(results)))) for difference in judged[at].differences[:1]]
    worst = min(found, key=lambda item: DISCRETE in item.detail, default=None)
    return None if worst is None else WrongResult("nan" if NOT_FINITE in worst.detail else "wrong_result", worst.index, _describe(worst))


def _describe(difference: Difference) -> str:
    return "a different shape or dtype" if difference.kind in ("shape", "dtype") else difference.detail or "a different value"


def in_float64(candidate: Candidate) -> Candidate:
    """The same candidate in double precision: inputs, parameters, and dtypes that stand in the graph."""
    module = widen(own_copy(candidate.module))
    values = make_values(candidate.inputs)
    inputs = [
        replace(tensor_input, dtype=wide, fill="data", data=value.detach().to(wide), token=f"{tensor_input.token} float64")
        if isinstance(tensor_input, TensorInput) and (wide := wider_dtype(tensor_input.dtype)) is not tensor_input.dtype
        else tensor_input
        for tensor_input, value in zip(candidate.inputs, values, strict=True)
    ]
    return Candidate(module, tuple(inputs), candidate.configs)


def flat(results: Any) -> list[Any]:
    """The leaves of what a graph returned, detached."""
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves(results)]
