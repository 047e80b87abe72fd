"""Whether results are wrong: against float64, with the error of the uncompiled run as the noise floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from dynadiag.compare.judge import MINIFY, Noise, Runs, Seen, judge
from dynadiag.compare.noise import widen, wider_dtype
from dynadiag.compare.rounding import DISCRETE, NOT_FINITE
from dynadiag.model.difference import Difference
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.inputs import TensorInput, make_values
from dynadiag.torch_compat.pytree import tree_leaves


def wrong(
    results: Sequence[Any],
    eager: Sequence[Any],
    exact: Sequence[Any] | None,
    *,
    first: Sequence[int] = (),
    runs: Callable[[], Runs] = Runs,
    before: Sequence[Any] = (),
) -> tuple[str, str] | None:
    """The kind ("nan" or "wrong_result") and a description of the first result that is wrong; None when all are right.

    `exact` are the results in float64, None when the graph does not run so: then only the tolerance counts. Those at the positions `first`
    are looked at before the others; integers and booleans come last: rounding alone turns a comparison. `runs` gives the results of more
    uncompiled runs, on inputs that are a bit off; it is asked when something would be wrong. `before` has what values were
    before the call that wrote them, None for others.
    """
    if len(results) != len(eager):
        return "wrong_result", f"{len(results)} results instead of {len(eager)}"
    seen = [Seen("output", at, f"result {at}", value) for at, value in enumerate(eager)]
    noise = Noise(exact=exact if exact is not None and len(exact) == len(eager) else (), runs=lambda _: runs(), before=before)
    judged = judge(seen, results, noise, MINIFY)
    found = [difference for at in dict.fromkeys((*first, *range(len(results)))) for difference in judged[at].differences[:1]]
    worst = min(found, key=lambda item: DISCRETE in item.detail, default=None)
    return None if worst is None else ("nan" if NOT_FINITE in worst.detail else "wrong_result", f"{worst.name}: {_said(worst)}")


def _said(difference: Difference) -> str:
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
