"""Inputs for one call of a scenario: made-up values, and a pair of inputs laid out in memory as the scenario says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from dynadiag.fx.inputs import Filling, InputSpec, contiguous_stride, elements, make_inputs
from dynadiag.parity.scenarios import Arranged, Pair

_NO_MEMORY = 0


def arranged_inputs(
    specs: Sequence[InputSpec], arranged: Arranged, pair: Pair | None, *, filling: Filling, seed: int, shift: int
) -> list[Any]:
    """Inputs to these specs, the same for the same arguments; `shift` elements lie between the starts of two that overlap."""
    if pair is None or arranged == "recorded":
        return make_inputs(specs, filling, seed=seed)
    own = [replace(spec, storage=None) if place in (pair.first, pair.second) else spec for place, spec in enumerate(specs)]
    inputs = make_inputs(own, filling, seed=seed)
    if arranged == "same":
        inputs[pair.second] = inputs[pair.first]
    elif arranged == "overlap":
        base = _base(specs, pair, filling, seed, shift)
        inputs[pair.first], inputs[pair.second] = _view(base, specs[pair.first], 0), _view(base, specs[pair.second], shift)
    elif shift >= 0:
        # Memory of their own, but laid out as the overlapping ones are: what a cache key can see of each is the same.
        one, other = _base(specs, pair, filling, seed, shift), _base(specs, pair, filling, seed + 1, shift)
        inputs[pair.first], inputs[pair.second] = _view(one, specs[pair.first], 0), _view(other, specs[pair.second], shift)
    return inputs


def shifts(specs: Sequence[InputSpec], pair: Pair) -> list[int]:
    """Distances in elements to try: half of the written input, then none where both have one layout (eager refuses some overlaps)."""
    one, other = specs[pair.first], specs[pair.second]
    half = elements(one) // 2
    equal = (one.shape, _stride(one)) == (other.shape, _stride(other))
    return list(dict.fromkeys([half, _NO_MEMORY] if equal else [half]))


def _base(specs: Sequence[InputSpec], pair: Pair, filling: Filling, seed: int, shift: int) -> torch.Tensor:
    one, other = specs[pair.first], specs[pair.second]
    size = max(elements(one), shift + elements(other))
    flat = InputSpec(name="base", kind="tensor", shape=(size,), stride=(1,), dtype=one.dtype, device=one.device)
    made: torch.Tensor = make_inputs([flat], filling, seed=seed + 1000)[0]
    return made


def _view(base: torch.Tensor, spec: InputSpec, offset: int) -> torch.Tensor:
    assert spec.shape is not None
    return base.as_strided(spec.shape, _stride(spec), offset)


def _stride(spec: InputSpec) -> tuple[int, ...]:
    assert spec.shape is not None
    return spec.stride if spec.stride is not None else contiguous_stride(spec.shape)
