"""Pairs of programs that differ in one mutation, for `mutation_costs.py`: what it costs, and what its cure costs instead.

Each program is made for a device and a number of elements; `fresh` puts its state back before a block of calls, outside what is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Program:
    """`function` is compiled by `compile` (None: eager) and called with `arguments()`."""

    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    compile: Compile | None = torch.compile
    fresh: Callable[[], None] = field(default=_nothing)


@dataclass(frozen=True)
class Row:
    """What is compared: `arms` makes the programs, most expensive first; `elements` says how large the written tensor is on a GPU."""

    name: str
    arms: Callable[[str, int], dict[str, Program]]
    elements: int = 1 << 26


def _stacked(cache: torch.Tensor, pos: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    cache[0].index_copy_(0, pos, k)
    cache[1].index_copy_(0, pos, v)
    return k + v


def _two_tensors(keys: torch.Tensor, values: torch.Tensor, pos: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    keys.index_copy_(0, pos, k)
    values.index_copy_(0, pos, v)
    return k + v


def kv_cache(device: str, elements: int) -> dict[str, Program]:
    """A cache of keys and values in one tensor, or in two."""
    width = min(1024, elements // 4)
    length = elements // (2 * width)
    cache = torch.zeros(2, length, width, device=device)
    keys, values = torch.zeros(length, width, device=device), torch.zeros(length, width, device=device)
    pos, new = torch.tensor([3 % length], device=device), torch.ones(1, width, device=device)
    return {
        "stacked, eager": Program(_stacked, lambda: (cache, pos, new, new), None),
        "stacked, compiled": Program(_stacked, lambda: (cache, pos, new, new)),
        "two tensors, compiled": Program(_two_tensors, lambda: (keys, values, pos, new, new)),
    }


def _ema_data(ema: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    ema.data.mul_(0.9).add_(p.data, alpha=0.1)
    return p[0] * 2


def _ema_no_grad(ema: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        ema.mul_(0.9).add_(p, alpha=0.1)
    return p[0] * 2


def ema(device: str, elements: int) -> dict[str, Program]:
    """An average of weights, kept through .data or under no_grad."""
    average, weight = (nn.Parameter(torch.zeros(elements, device=device)) for _ in range(2))
    return {
        ".data, eager": Program(_ema_data, lambda: (average, weight), None),
        ".data, compiled": Program(_ema_data, lambda: (average, weight)),
        "no_grad, compiled": Program(_ema_no_grad, lambda: (average, weight)),
    }


def _scaled_in_place(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x[0] + 1


def _scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x * 2
    return x, x[0] + 1


def requires_grad(device: str, elements: int) -> dict[str, Program]:
    """A write on an argument that requires grad, or a new tensor."""
    leaf = torch.zeros(elements, device=device, requires_grad=True)
    held = [leaf.clone()]

    def fresh() -> None:
        held[0] = leaf.clone()

    return {
        "in place, eager": Program(_scaled_in_place, lambda: (held[0],), None, fresh),
        "in place, compiled": Program(_scaled_in_place, lambda: (held[0],), fresh=fresh),
        "out of place, compiled": Program(_scaled, lambda: (held[0],), fresh=fresh),
    }


def _two_views(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.mul_(0.5)
    return b[0] + 1


def _base(base: torch.Tensor) -> torch.Tensor:
    cut = base.shape[0] // 4
    base[: 3 * cut].mul_(0.5)
    return base[cut] + 1


def overlapping(device: str, elements: int) -> dict[str, Program]:
    """Two overlapping views as arguments, or their base and slices of it."""
    base, cut = torch.zeros(elements, device=device), elements // 4
    return {
        "two views, eager": Program(_two_views, lambda: (base[: 3 * cut], base[cut:]), None),
        "two views, compiled": Program(_two_views, lambda: (base[: 3 * cut], base[cut:])),
        "base plus slices, compiled": Program(_base, lambda: (base,)),
    }


def _broken(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    y.relu_()
    return y + 1


def _whole(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.relu_()
    return y + 1


def behind_break(device: str, elements: int) -> dict[str, Program]:
    """A tensor written behind the graph break that made it an input, or in one graph."""
    x = torch.zeros(elements, device=device)
    return {
        "behind a break, eager": Program(_broken, lambda: (x,), None),
        "behind a break, compiled": Program(_broken, lambda: (x,)),
        "one graph, compiled": Program(_whole, lambda: (x,)),
    }


def _backend(keep: bool) -> Compile:
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=lambda module, _inputs: module.forward, keep_inference_input_mutations=keep)
    return lambda function: torch.compile(function, backend=backend)


def _write_row(cache: torch.Tensor, pos: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(0, pos, new)
    return new + 1


def back_end(device: str, elements: int) -> dict[str, Program]:
    """A back end that keeps no writes in its graph, or one that does."""
    width = min(1024, elements // 4)
    cache = torch.zeros(elements // width, width, device=device)
    pos, new = torch.tensor([1], device=device), torch.ones(1, width, device=device)
    return {
        "eager": Program(_write_row, lambda: (cache, pos, new), None),
        "keeps no writes": Program(_write_row, lambda: (cache, pos, new), _backend(keep=False)),
        "keeps writes": Program(_write_row, lambda: (cache, pos, new), _backend(keep=True)),
    }


def _whole_old(buffer: torch.Tensor, rows: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    old = buffer.clone()
    buffer[rows] = new
    return old + buffer


def _old_rows(buffer: torch.Tensor, rows: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    old = buffer[rows].clone()
    buffer[rows] = new
    return old + buffer[rows]


def old_value(device: str, elements: int) -> dict[str, Program]:
    """Rows written while the whole old value is kept, or the old rows alone."""
    buffer = torch.zeros(elements, device=device)
    rows, new = torch.tensor([1, 2], device=device), torch.ones(2, device=device)
    return {
        "whole old value kept, eager": Program(_whole_old, lambda: (buffer, rows, new), None),
        "whole old value kept, compiled": Program(_whole_old, lambda: (buffer, rows, new)),
        "old rows kept, compiled": Program(_old_rows, lambda: (buffer, rows, new)),
    }


def _many_kernels(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    cache.add_(x)
    for _ in range(12):
        x = torch.tanh(x @ x)
    return x + cache


def cuda_graph(device: str, elements: int) -> dict[str, Program]:
    """Twelve small matrix products and a written argument, of which the address is known or not."""
    side = int(elements**0.5)
    x, plain, known = (torch.full((side, side), 0.01, device=device) for _ in range(3))
    torch._dynamo.mark_static_address(known)

    def reduced(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, mode="reduce-overhead")

    return {
        "eager": Program(_many_kernels, lambda: (plain, x), None),
        "reduce-overhead, plain argument": Program(_many_kernels, lambda: (plain, x), reduced),
        "reduce-overhead, mark_static_address": Program(_many_kernels, lambda: (known, x), reduced),
    }


def _transposed_in_place(x: torch.Tensor) -> torch.Tensor:
    x.t_()
    return torch.relu(x) + 1


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.t()) + 1


def metadata(device: str, elements: int) -> dict[str, Program]:
    """x.t_() on an argument, or x.t()."""
    side = int(elements**0.5)
    x = torch.zeros(side, side, device=device)
    return {
        "t_(), eager": Program(_transposed_in_place, lambda: (x,), None),
        "t_(), compiled": Program(_transposed_in_place, lambda: (x,)),
        "t(), compiled": Program(_transposed, lambda: (x,)),
    }


def _refused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(0.5)
    for _ in range(6):
        x = torch.sin(x) + 1
    return x[:1] + y[:1]


def refusal(device: str, elements: int) -> dict[str, Program]:
    """A written argument that is also passed as another dtype (AOTAutograd refuses: the frame runs eager), or a copy of it."""
    x = torch.zeros(elements, device=device)
    return {
        "two dtypes, eager": Program(_refused, lambda: (x, x.view(torch.int32)), None),
        "two dtypes, compiled with suppress_errors": Program(_refused, lambda: (x, x.view(torch.int32)), _suppressing),
        "one of them copied, compiled": Program(_refused, lambda: (x, x[:1].clone().view(torch.int32))),
    }


def _suppressing(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled = torch.compile(function)

    def call(*arguments: Any) -> Any:
        with torch._dynamo.config.patch(suppress_errors=True):
            return compiled(*arguments)

    return call


ROWS = (
    Row("Stacked KV cache, two index_copy_", kv_cache),
    Row("EMA of a weight that requires grad", ema),
    Row("CUDA graph with a written argument", cuda_graph, 1 << 14),
    Row("Argument that requires grad, written in place", requires_grad),
    Row("Two overlapping views, one written", overlapping),
    Row("Written behind a graph break", behind_break),
    Row("Back end that keeps no writes", back_end),
    Row("AOTAutograd refuses the graph", refusal),
    Row("Rows written, the old value read afterwards", old_value),
    Row("Sizes changed in place", metadata, 1 << 20),
)
