"""Whether results are wrong: against float64, with the error of the uncompiled run as the noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from dynadiag.reduce.candidate import Candidate, own_copy
from dynadiag.reduce.inputs import TensorInput, make_values

NOISE_FACTOR = 10.0
"""How many times the error of the uncompiled run a compiled one may have."""
TOLERANCE = {torch.float64: 1e-7, torch.complex128: 1e-7, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Relative error (root mean square) that is always allowed, by dtype; 1e-4 for others."""
DEFAULT_TOLERANCE = 1e-4
DISCRETE = "other integers or booleans"


def wrong(
    results: Sequence[Any], eager: Sequence[Any], exact: Sequence[Any] | None, *, first: Sequence[int] = ()
) -> tuple[str, str] | None:
    """The kind ("nan" or "wrong_result") and a description of the first result that is wrong; None when all are right.

    `exact` are the results in float64, None when the graph does not run so: then only the tolerance counts. Those at the positions `first`
    are looked at before the others; integers and booleans come last: rounding alone turns a comparison.
    """
    if len(results) != len(eager):
        return "wrong_result", f"{len(results)} results instead of {len(eager)}"
    discrete = None
    for position in dict.fromkeys((*first, *range(len(results)))):
        found = _wrong_one(results[position], eager[position], exact[position] if exact is not None and len(exact) == len(eager) else None)
        if found is not None and found[1] != DISCRETE:
            return found[0], f"result {position}: {found[1]}"
        if found is not None and discrete is None:
            discrete = found[0], f"result {position}: {found[1]}"
    return discrete


def _wrong_one(result: Any, expected: Any, exact: Any) -> tuple[str, str] | None:
    if not isinstance(expected, torch.Tensor) or not isinstance(result, torch.Tensor):
        return None if type(result) is type(expected) and result == expected else ("wrong_result", "not the same value")
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return "wrong_result", "another shape or dtype"
    if not (expected.is_floating_point() or expected.is_complex()):
        return None if torch.equal(result, expected) else ("wrong_result", DISCRETE)
    return _wrong_floats(result, expected, exact)


def _wrong_floats(result: torch.Tensor, expected: torch.Tensor, exact: Any) -> tuple[str, str] | None:
    finite = torch.isfinite(expected)
    if bool((finite & ~torch.isfinite(result)).any()):
        return "nan", "NaN or infinite where the uncompiled run is finite"
    wide = torch.complex128 if expected.is_complex() else torch.float64
    got, eager = result.to(wide)[finite], expected.to(wide)[finite]
    truth = exact.to(wide)[finite] if isinstance(exact, torch.Tensor) and exact.shape == expected.shape else eager
    if not bool(torch.isfinite(truth).all()):
        truth = eager
    allowed = NOISE_FACTOR * _size(eager - truth) + TOLERANCE.get(expected.dtype, DEFAULT_TOLERANCE) * _size(truth) + 1e-12
    return None if _size(got - truth) <= allowed else ("wrong_result", "too far from float64")


def _size(values: torch.Tensor) -> float:
    """Root mean square."""
    return float(values.abs().square().mean().sqrt()) if values.numel() else 0.0


def in_float64(candidate: Candidate) -> Candidate:
    """The same candidate in double precision: inputs, parameters, and dtypes that stand in the graph."""
    doubles = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}
    module = own_copy(candidate.module).to(torch.float64)
    for node in module.graph.nodes:
        node.args = tree_map_only(torch.dtype, lambda dtype: doubles.get(dtype, dtype), node.args)
        node.kwargs = tree_map_only(torch.dtype, lambda dtype: doubles.get(dtype, dtype), node.kwargs)
    module.recompile()
    values = make_values(candidate.inputs)
    inputs = [
        replace(one, dtype=torch.float64, fill="data", data=value.detach().double(), token=f"{one.token} float64")
        if isinstance(one, TensorInput) and one.dtype in doubles
        else one
        for one, value in zip(candidate.inputs, values, strict=True)
    ]
    return Candidate(module, tuple(inputs), candidate.configs)


def flat(results: Any) -> list[Any]:
    """The leaves of what a graph returned, detached."""
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves(results)]


def loss_of(results: Any) -> torch.Tensor | None:
    """A number whose gradient tells the results apart: their sum with slowly changing weights; None when nothing needs a gradient."""
    parts = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_floating_point()]
    if not parts:
        return None
    return torch.stack([(part.double() * weights(part)).sum() for part in parts]).sum()


def weights(part: torch.Tensor) -> torch.Tensor:
    """Weights between 0.5 and 1.5, different for neighbours, never random."""
    return 1 + 0.5 * torch.cos(torch.arange(part.numel(), device=part.device, dtype=torch.float64)).reshape(part.shape)
