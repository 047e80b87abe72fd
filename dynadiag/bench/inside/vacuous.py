"""Whether a comparison of results would prove anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynadiag.capture.reach import Snapshot


def why_vacuous(first: Mapping[str, Any], snapshot: Snapshot) -> str:
    """Why a comparison would prove nothing; empty when it would."""
    outputs = {name: value for name, value in first.items() if name.startswith("output")}
    changed = [name for name, copy in snapshot.copies.items() if name in first and not same_bits(first[name], copy)]
    gradients = {name: value for name, value in first.items() if name.startswith("gradient of ")}
    from dynadiag.compare.measures import on_fastest

    if gradients and not any(bool(on_fastest(value).count_nonzero()) for value in gradients.values()):
        return "no gradient reaches the parameters: all are zero"
    if not outputs and not changed and not gradients:
        return "the step returns nothing and changes nothing"
    counted = {name for name, held in snapshot.state.held.items() if held.kind in ("scaler", "setting")}
    made = [first[name] for name in (*outputs, *gradients, *(name for name in changed if name not in counted))]
    made = [value for value in made if value.numel() and (value.is_floating_point() or value.is_complex())]
    if made and not any(bool(on_fastest(value).isfinite().any()) for value in made):
        return "everything that the step computes is NaN or infinite in eager"
    if outputs and not changed and not gradients and all(_constant(value) for value in outputs.values()):
        return "all outputs are constant"
    optimized = {
        id(parameter)
        for optimizer in snapshot.state.optimizers.values()
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    reached = {name for name in gradients if id(snapshot.state.held[name.removeprefix("gradient of ")].tensor) in optimized}
    if optimized and not reached and not any(snapshot.state.held[name].kind in ("parameter", "optimizer") for name in changed):
        return "no gradient reaches the parameters of the optimizer"
    return ""


def same_bits(value: Any, other: Any) -> bool:
    """Whether two tensors have the same values, shape and dtype."""
    import torch

    from dynadiag.compare.measures import on_fastest

    return value.shape == other.shape and value.dtype == other.dtype and torch.equal(on_fastest(value), on_fastest(other))


def _constant(value: Any) -> bool:
    if value.numel() <= 1:
        return not bool(value.count_nonzero())
    return bool((value == value.flatten()[0]).all())
