"""Right programs: layers and functions as models use them, in float32 and bfloat16; some with a backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(-1, -2) / 32**0.5, -1) @ v)
        return x + self.down(F.gelu(self.up(x)))


class Convolutions(nn.Module):
    """Convolution, group norm, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool2d(F.silu(self.second(F.relu(self.norm(self.first(x))))), 1).flatten(1)


class RmsGate(nn.Module):
    """RMS norm and a gated linear unit."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.gate, self.up = nn.Parameter(torch.ones(48)), nn.Linear(48, 64), nn.Linear(48, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        return F.silu(self.gate(x)) * self.up(x)


class Recurrence(nn.Module):
    """A few steps of a gated cell."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.hidden = nn.Linear(16, 48), nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[:, 0])
        for step in range(3):
            a, b, c = self.inputs(x[:, step]).chunk(3, -1)
            d, e, f = self.hidden(h).chunk(3, -1)
            z = torch.sigmoid(a + d)
            h = (1 - z) * h + z * torch.tanh(c + torch.sigmoid(b + e) * f)
        return h


def loss(logits: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits * scale, torch.arange(logits.shape[0], device=logits.device) % logits.shape[1])


def cancellation(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = (x * 1.1 + 100.0).exp2().log2()
    return (a - 100.0) / (y.abs() + 1.0)


def near_ties(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x * y) * 0.5 + 0.25
    best = s.argmax(-1, keepdim=True)
    return s.gather(-1, best) + s.var(-1, keepdim=True)


def statistics(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = (x - x.mean(0)) / (x.std(0) + 1e-5)
    return torch.logsumexp(z * y, -1) + z.norm(dim=-1) + z.cumsum(-1)[..., -1]


def rotary(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    c, s = angles.cos()[..., : a.shape[-1]], angles.sin()[..., : a.shape[-1]]
    return torch.cat([a * c - b * s, a * s + b * c], -1)


def divisions(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x / (y * y + 0.01)
    return torch.where(z > 1.0, z.log(), z.expm1()).clamp(-3, 3) * y.sqrt().nan_to_num(0.0)


def programs() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Each program by its name, with its inputs."""
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        for make, shape, train in (
            (Block, (2, 8, 32), True),
            (Convolutions, (2, 3, 10, 10), False),
            (RmsGate, (6, 48), True),
            (Recurrence, (4, 3, 16), False),
        ):
            torch.manual_seed(0)
            module = make().to(dtype).requires_grad_(train)
            yield f"{make.__name__} {name}", module, (torch.randn(shape).to(dtype),)
        for function in (loss, cancellation, near_ties, statistics, rotary, divisions):
            torch.manual_seed(1)
            x, y = torch.randn(12, 40).to(dtype), torch.randn(40).to(dtype)
            yield f"{function.__name__} {name}", function, (x.requires_grad_(function is loss), y)
