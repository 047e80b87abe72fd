"""Functions that spoil a tensor: by how much, and whether that is wrong. Random parts come from a generator of their own.

`FAULTS` has for each name the dtype of the program, what makes the spoilt result of the right one, and whether every verb has to call it
wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch


def generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def rms(values: torch.Tensor) -> float:
    finite = values[torch.isfinite(values)].to(torch.complex128 if values.is_complex() else torch.float64)
    return float(finite.abs().square().mean().sqrt()) if finite.numel() else 0.0


def uniform(size: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def fault(value: torch.Tensor) -> torch.Tensor:
        wide = value.to(torch.complex128 if value.is_complex() else torch.float64)
        off = torch.rand(value.shape, generator=generator("fault"), dtype=torch.float64) * 2 - 1
        return (wide + off * size * rms(value)).to(value.dtype)

    return fault


def one_element(size: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def fault(value: torch.Tensor) -> torch.Tensor:
        result = value.clone()
        if result.numel():
            flat, at = result.view(-1), result.numel() // 2
            wide = flat[at].to(torch.complex128 if value.is_complex() else torch.float64)
            flat[at] = (wide + size * rms(value)).to(value.dtype)
        return result

    return fault


def put(number: Any, *, everywhere: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
    def fault(value: torch.Tensor) -> torch.Tensor:
        result = value.clone()
        if everywhere:
            result.fill_(number)
        elif result.numel():
            result.view(-1)[result.numel() // 3] = number
        return result

    return fault


def ulp(value: torch.Tensor) -> torch.Tensor:
    if value.is_complex():
        return torch.view_as_complex(ulp(torch.view_as_real(value)))
    return torch.nextafter(value, torch.full_like(value, float("inf")))


def one_ulp(value: torch.Tensor) -> torch.Tensor:
    result = value.clone()
    if result.numel():
        result[:1] = ulp(value[:1].clone())
    return result


def negated_one(value: torch.Tensor) -> torch.Tensor:
    result = value.clone()
    result[-1:] = -result[-1:]
    return result


Fault = tuple[torch.dtype, Callable[[torch.Tensor], torch.Tensor], bool]
SINGLE, HALF = torch.float32, torch.bfloat16
FAULTS: dict[str, Fault] = {
    "none": (SINGLE, torch.clone, False),
    "none in bfloat16": (HALF, torch.clone, False),
    "one unit in the last place": (SINGLE, ulp, False),
    "up to 5e-4 everywhere": (SINGLE, uniform(5e-4), True),
    "one of 4,096 elements by 5 %": (SINGLE, one_element(5e-2), True),
    "one of 4,096 elements by 0.5 %": (SINGLE, one_element(5e-3), True),
    "up to 6 % everywhere in bfloat16": (HALF, uniform(6e-2), True),
    "one element is NaN": (SINGLE, put(float("nan")), True),
    "one element is infinite": (SINGLE, put(float("inf")), True),
    "1 % more": (SINGLE, lambda value: value * 1.01, True),
    "negated": (SINGLE, torch.neg, True),
    "rolled": (SINGLE, lambda value: value.roll(1, 0), True),
    "zero": (SINGLE, torch.zeros_like, True),
    "computed in half precision": (SINGLE, lambda value: value.half().float(), True),
}
