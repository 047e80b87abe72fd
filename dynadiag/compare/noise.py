"""Eager runs that differ by noise alone: in float64, and on values that are off by a few roundings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.fx import GraphModule

from dynadiag.compare.aliasing import Change
from dynadiag.compare.rounding import on_fastest
from dynadiag.torch_compat.dispatch.rounding import CoarsestRounding, NoisySums
from dynadiag.torch_compat.pytree import tree_map_only

DOUBLES = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
"""The dtypes that are computed in double precision instead. Eight-bit floats are left out: they are scaled by the program."""
T = TypeVar("T")
_SAME = 2
SMALLEST_NUDGE = 2.0**-18
"""What a value that is changed to see how stable a result is may be off by is half a rounding of its dtype, or half of this."""


def wider_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in double precision."""
    return DOUBLES.get(dtype, dtype)


def wider(value: torch.Tensor) -> torch.Tensor:
    """The values in double precision."""
    return value.to(wider_dtype(value.dtype))


def widen(module: GraphModule) -> GraphModule:
    """The module itself, from now on in double precision: parameters, buffers, and dtypes that stand in its graphs."""
    module.to(torch.float64)
    for part in module.modules():
        if isinstance(part, GraphModule):
            for node in part.graph.nodes:
                node.args = tree_map_only(torch.dtype, wider_dtype, node.args)
                node.kwargs = tree_map_only(torch.dtype, wider_dtype, node.kwargs)
            part.recompile()
    return module


@contextmanager
def in_float64(tensors: Sequence[Any]) -> Iterator[None]:
    """These floating tensors as float64, in place, with the default dtype; autocast leaves float64 alone."""
    before = [tensor.data for tensor in tensors]
    default = torch.get_default_dtype()
    try:
        for tensor in tensors:
            gradient = tensor.grad if tensor.is_leaf else None
            tensor.grad = None
            tensor.data = tensor.data.double()
            # A step that adds to the gradients it finds has to find them here as well.
            tensor.grad = None if gradient is None else gradient.to(tensor.dtype)
        torch.set_default_dtype(torch.float64)
        yield
    finally:
        torch.set_default_dtype(default)
        for tensor, data in zip(tensors, before, strict=True):
            tensor.grad = None
            tensor.data = data


def loses_numbers(value: Any, exact: Any) -> bool:
    """Whether float64 has NaN or infinity where eager has a number."""
    if not (value.is_floating_point() or value.is_complex()) or value.layout != exact.layout:
        return False
    value, exact = (on_fastest(item.to_dense() if item.is_sparse else item) for item in (value, exact))
    return bool((value.isfinite() & ~exact.isfinite()).any())


def perturbing(seed: int, coarsest: torch.dtype | None = None) -> Change:
    """Changes floating and complex values by half a rounding of the least precise dtype computed in, or a few of float32's, at random."""
    generators = Generators(seed)

    def change(memory: torch.Tensor) -> torch.Tensor:
        if not (memory.is_floating_point() or memory.is_complex()) or not memory.numel():
            return memory
        return perturbed(memory, max(torch.finfo(coarsest or memory.dtype).eps, SMALLEST_NUDGE) / 2, generators)

    return change


def noisy_runs(
    run: Callable[[int, Change], T], count: int, coarsest: torch.dtype | None = None
) -> tuple[list[T], list[T], CoarsestRounding]:
    """What `run(seed, change)` gives with noisy sums: on values that are a bit off, for `count` seeds from 1; on the same values, for two
    more; and what it computes in.

    That is learnt from a run without noise, seed 0, that is not among them. One that does not run is left out.
    """
    seen, further, same = CoarsestRounding(), list[T](), list[T]()
    for seed in range(count + 1 + _SAME):
        # TF32 has the ten bits of float16.
        off = 0 < seed <= count
        change = perturbing(seed, coarsest or seen.half or (torch.float16 if seen.tf32 else None)) if off else _unchanged
        try:
            with NoisySums(seed) if seed else seen:
                results = run(seed, change)
        except Exception:  # noqa: BLE001 - the border around a candidate: it may not take such values
            continue
        if seed:
            (further if off else same).append(results)
    return further, same, seen


def _unchanged(memory: torch.Tensor) -> torch.Tensor:
    return memory


class Generators:
    """Generators of our own, one a device: what the program draws is left as it is."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._made: dict[torch.device, torch.Generator] = {}

    def on(self, device: torch.device) -> torch.Generator:
        """That of a device."""
        if device not in self._made:
            self._made[device] = torch.Generator(device).manual_seed(self._seed)
        return self._made[device]


def perturbed(value: torch.Tensor, most: float, generators: Generators) -> torch.Tensor:
    """Every value times 1 plus at most `most`, at random."""
    noise = torch.rand(value.shape, generator=generators.on(value.device), device=value.device, dtype=torch.float32)
    wide = torch.complex128 if value.is_complex() else torch.float64
    return (value.to(wide) * (1 + most * (2 * noise - 1).double())).to(value.dtype)
