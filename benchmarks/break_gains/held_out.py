"""More programs with graph breaks, none of which the method of `--cost` was made with; used as `programs.py` is.

Training steps, attention, convolutions, autocast, backward of eager operators, a side stream.
"""
# ruff: noqa: D102, D103, N812, SIM102

from __future__ import annotations

import logging
from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F
from programs import DEVICE, HALF, PROGRAMS, Block, main

LOGGER = logging.getLogger("held_out")


def masked(fixed):
    """Attention whose mask is looked at by the host."""
    out = nn.Linear(512, 512, device=DEVICE, dtype=HALF)

    def attend(x, mask):
        q = x.view(8, 512, 8, 64).transpose(1, 2)
        return out(F.scaled_dot_product_attention(q, q, q, attn_mask=mask).transpose(1, 2).reshape(8, 512, 512))

    def forward(x, mask):
        x = F.layer_norm(x + attend(x, mask), (512,))
        if "all" not in fixed:
            if mask.all():  # break: all
                x = x * 2
        return F.layer_norm(x + attend(x, mask), (512,))

    def inputs():
        lengths = torch.randint(256, 512, (8, 1), device=DEVICE)
        mask = (torch.arange(512, device=DEVICE) < lengths)[:, None, None, :].expand(8, 8, 512, 512).contiguous()
        return torch.randn(8, 512, 512, device=DEVICE, dtype=HALF), mask

    return forward, inputs, False


class Convolutions(nn.Module):
    """Stages of convolutions; a peak is read in the middle."""

    def __init__(self, fixed):
        super().__init__()
        widths = (3, 64, 128, 128, 256, 256)
        self.stages, self.fixed = nn.ModuleList(), fixed
        for before, width in pairwise(widths):
            self.stages.append(nn.Sequential(nn.Conv2d(before, width, 3, 1 if before == width else 2, 1), nn.BatchNorm2d(width), nn.SiLU()))
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        with torch.autocast(DEVICE, dtype=HALF):
            x = self.stages[1](self.stages[0](x))
        if "peak" not in self.fixed:
            peak = x.abs().amax().item()  # break: peak
            if peak > 1e4:
                x = x.clamp(max=1e4)
        with torch.autocast(DEVICE, dtype=HALF):
            for number in (2, 3, 4):
                x = self.stages[number](x)
            return self.head(x.mean((2, 3)))


def convolutions(fixed):
    """Training of a convolutional net under autocast."""
    net = Convolutions(fixed).to(DEVICE, memory_format=torch.channels_last)
    return net, lambda: (torch.randn(64, 3, 128, 128, device=DEVICE).to(memory_format=torch.channels_last),), True


class Watched(nn.Module):
    """An MLP under autocast that keeps the norm of an activation as a number."""

    def __init__(self, fixed):
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(2))
        self.fixed, self.last = fixed, None

    def forward(self, x):
        with torch.autocast(DEVICE, dtype=HALF):
            x = self.first(x)
            if "norm" not in self.fixed:
                self.last = x.float().norm().tolist()  # break: norm
            return self.second(x)


def watched(fixed):
    """A break within autocast, in training."""
    return Watched(fixed).to(DEVICE), lambda: (torch.randn(2048, 1024, device=DEVICE),), True


@torch.compiler.disable
def eager_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


class Normed(nn.Module):
    """Blocks with an operation that stays eager, also in the backward."""

    def __init__(self, fixed):
        super().__init__()
        self.first, self.second = Block(512, 8), Block(512, 8)
        self.weight, self.fixed = nn.Parameter(torch.ones(512)), fixed

    def forward(self, x):
        x = self.first(x)
        if "disabled" in self.fixed:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight
        else:
            x = eager_norm(x, self.weight)  # break: disabled
        return self.second(x)


def normed(fixed):
    return Normed(fixed).to(DEVICE), lambda: (torch.randn(16, 512, 512, device=DEVICE),), True


def offloaded(fixed):
    """A copy to the host on a side stream, from a function that is not compiled."""
    w = [torch.randn(2048, 2048, device=DEVICE, dtype=HALF) / 45 for _ in range(8)]
    cuda = DEVICE == "cuda"
    kept = torch.empty(2048, 2048, dtype=HALF, pin_memory=cuda)
    side = torch.cuda.Stream() if cuda else None

    @torch.compiler.disable
    def offload(x):
        if side is None:
            kept.copy_(x)
            return
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept.copy_(x, non_blocking=True)
        x.record_stream(side)

    def forward(x):
        for weight in w[:4]:
            x = torch.tanh(x @ weight)
        if "offload" not in fixed:
            offload(x)  # break: offload
        for weight in w[4:]:
            x = torch.tanh(x @ weight)
        return x

    return forward, lambda: (torch.randn(2048, 2048, device=DEVICE, dtype=HALF),), False


def whole_step(fixed):
    """A whole training step that is compiled; its loss is read in each."""
    model = nn.Sequential(*(Block(256) for _ in range(2))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    last = []

    def forward(x):
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        last.clear()
        if "loss" in fixed:
            last.append(loss.detach())
        else:
            last.append(loss.item())  # break: loss
        loss.backward()
        optimizer.step()

    return forward, lambda: (torch.randn(8, 128, 256, device=DEVICE),), None


def decoding(fixed):
    """A loop of tokens that ends early: all of the function runs eagerly."""
    table, cell, head = nn.Embedding(1000, 512).to(DEVICE), nn.GRUCell(512, 512).to(DEVICE), nn.Linear(512, 1000).to(DEVICE)

    def forward(state):
        token = torch.zeros(32, dtype=torch.long, device=DEVICE)
        for _ in range(6):
            state = cell(table(token), state)
            token = head(state).argmax(-1)
            if "end" not in fixed:
                if token.max() == 1000:  # break: end
                    break
        return token

    return forward, lambda: (torch.randn(32, 512, device=DEVICE),), False


def logged(fixed):
    """A message of a logger between small layers, whose level hides it."""
    layers = nn.ModuleList(nn.Linear(384, 384) for _ in range(10)).to(DEVICE)

    def forward(x):
        for layer in layers[:5]:
            x = F.gelu(layer(x))
        if "info" not in fixed:
            LOGGER.info("half of the layers")  # break: info
        for layer in layers[5:]:
            x = F.gelu(layer(x))
        return x

    return forward, lambda: (torch.randn(256, 384, device=DEVICE),), False


def selected(fixed):
    """Rows that are chosen by their values, or all of them with a mask."""
    up, down = nn.Linear(512, 2048).to(DEVICE), nn.Linear(2048, 512).to(DEVICE)

    def forward(x):
        x = F.layer_norm(x + down(F.gelu(up(x))), (512,))
        positive = x[:, 0] > 0
        if "rows" in fixed:
            x = x + torch.where(positive[:, None], x.tanh(), 0.0)
        else:
            rows = positive.nonzero()[:, 0]  # break: rows
            x = x.index_add(0, rows, x[rows].tanh())
        return F.layer_norm(x + down(F.gelu(up(x))), (512,))

    return forward, lambda: (torch.randn(4096, 512, device=DEVICE),), False


class Experts(nn.Module):
    """Experts that are called only where a token asks for them."""

    def __init__(self, fixed):
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4))
        self.router, self.fixed = nn.Linear(256, 4), fixed

    def forward(self, x):
        with torch.autocast(DEVICE, dtype=HALF):
            route = self.router(x).argmax(-1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                chosen = route == number
                if "any" not in self.fixed:
                    if not chosen.any():  # break: any
                        continue
                out = out + expert(x) * chosen[:, None]
            return out


def experts(fixed):
    return Experts(fixed).to(DEVICE), lambda: (torch.randn(2048, 256, device=DEVICE),), True


def finite(fixed):
    """Memory-bound, with a check of all values."""

    def forward(x, scale):
        x = F.silu(x * scale)
        if "finite" not in fixed:
            if not torch.isfinite(x).all():  # break: finite
                raise ValueError("not finite")
        return (x - x.mean(-1, keepdim=True)) * scale

    return forward, lambda: (torch.randn(16384, 4096, device=DEVICE), torch.randn(4096, device=DEVICE)), False


def sliced(fixed):
    """Sequences that are cut to the longest, which the host reads."""
    blocks = nn.ModuleList(Block(512, 8) for _ in range(2)).to(DEVICE)

    def forward(x, lengths):
        x = blocks[0](x)
        if "longest" not in fixed:
            longest = int(lengths.max())  # break: longest
            x = x[:, :longest]
        return blocks[1](x)

    return forward, lambda: (torch.randn(16, 256, 512, device=DEVICE), torch.full((16,), 256, device=DEVICE)), False


HELD_OUT = {
    "masked": (masked, ("all",)),
    "convolutions": (convolutions, ("peak",)),
    "watched": (watched, ("norm",)),
    "normed": (normed, ("disabled",)),
    "offloaded": (offloaded, ("offload",)),
    "whole_step": (whole_step, ("loss",)),
    "decoding": (decoding, ("end",)),
    "logged": (logged, ("info",)),
    "selected": (selected, ("rows",)),
    "experts": (experts, ("any",)),
    "finite": (finite, ("finite",)),
    "sliced": (sliced, ("longest",)),
}
if __name__ == "__main__":
    PROGRAMS.clear()
    PROGRAMS.update(HELD_OUT)
    main()
