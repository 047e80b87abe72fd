"""Back ends that spoil the first result of the graph that they get: by how much, and whether that is wrong.

`FAULTS` has for each name the dtype of the program, what makes the spoilt result of the right one, and whether every verb has to call it
wrong. Random parts come from a generator of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def rms(value: torch.Tensor) -> torch.Tensor:
    return value.double().square().mean().sqrt()


def everywhere(size: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def fault(value: torch.Tensor) -> torch.Tensor:
        off = torch.rand(value.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2 - 1
        return (value.double() + off * size * rms(value)).to(value.dtype)

    return fault


def one_element(size: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def fault(value: torch.Tensor) -> torch.Tensor:
        result = value.clone()
        result.view(-1)[77] += (size * rms(value)).to(value.dtype)
        return result

    return fault


def put(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def fault(value: torch.Tensor) -> torch.Tensor:
        result = value.clone()
        result.view(-1)[5] = number
        return result

    return fault


def next_float(value: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(value, torch.full_like(value, float("inf")))


Fault = tuple[torch.dtype, Callable[[torch.Tensor], torch.Tensor], bool]
SINGLE, HALF = torch.float32, torch.bfloat16
FAULTS: dict[str, Fault] = {
    "none": (SINGLE, torch.clone, False),
    "none in bfloat16": (HALF, torch.clone, False),
    "one unit in the last place": (SINGLE, next_float, False),
    "up to 5e-4 everywhere": (SINGLE, everywhere(5e-4), True),
    "one of 4,096 elements by 5 %": (SINGLE, one_element(5e-2), True),
    "one of 4,096 elements by 0.5 %": (SINGLE, one_element(5e-3), True),
    "up to 6 % everywhere in bfloat16": (HALF, everywhere(6e-2), True),
    "one element is NaN": (SINGLE, put(float("nan")), True),
    "one element is infinite": (SINGLE, put(float("inf")), True),
    "1 % more": (SINGLE, lambda value: value * 1.01, True),
    "negated": (SINGLE, torch.neg, True),
    "rolled": (SINGLE, lambda value: value.roll(1, 0), True),
    "zero": (SINGLE, torch.zeros_like, True),
    "computed in half precision": (SINGLE, lambda value: value.half().float(), True),
}


def backend(fault: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """The back end with this fault."""

    def compile_wrong(module: Any, _: Any) -> Any:
        def call(*inputs: Any) -> Any:
            first, *rest = module(*inputs)
            return (fault(first), *rest)

        return call

    return compile_wrong
