"""Programs with graph breaks that are removed by hand: `# break: NAME` marks the line of each, `fixed` names those that are gone.

`dynadiag explain --cost programs.py NAME --gains` runs one with all its breaks for some seconds, then times it in turns with and without
each of them, in the same process, and prints what a call gains: the median and the quartiles of differences within a round.
"""
# ruff: noqa: D101, D102, D103, N812, SIM102

from __future__ import annotations

import argparse
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16


class Block(nn.Module):
    """A small attention block."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.heads, self.norm, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.after(x))))


def products(fixed):
    """A busy device: a wait that only delays the next products, and 2 ms of the host's time."""
    w = torch.randn(4096, 4096, device=DEVICE, dtype=HALF) / 64

    def forward(x):
        for _ in range(20):
            x = torch.tanh(x @ w)
        if "read" not in fixed:
            if x.abs().max() > 1e4:  # break: read
                print("too large")
        y = x @ w
        if "sleep" not in fixed:
            time.sleep(0.002)  # break: sleep
        return torch.tanh(y @ w)

    return forward, lambda: (torch.randn(4096, 4096, device=DEVICE, dtype=HALF),), False


def scaled(fixed):
    """A call that the host decides, with a number read in the middle."""
    layers = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6))).to(DEVICE)

    def forward(x):
        for layer in layers[:3]:
            x = F.relu(layer(x))
        if "item" in fixed:
            x = x / x.abs().amax().clamp(min=1.0)
        else:
            scale = x.abs().amax().item()  # break: item
            x = x / max(scale, 1.0)
        for layer in layers[3:]:
            x = F.relu(layer(x))
        return x

    return forward, lambda: (torch.randn(64, 256, device=DEVICE),), False


def pointwise(fixed):
    """Memory-bound: what is not fused because of the break is read and written once more."""

    def forward(x, bias):
        x = torch.tanh(x + bias)
        if "graph_break" not in fixed:
            torch._dynamo.graph_break()  # break: graph_break
        return torch.sigmoid(x) * 2 - bias

    size = (64, 1 << 20)
    return forward, lambda: (torch.randn(size, device=DEVICE), torch.randn(size[1], device=DEVICE)), False


class Guarded(nn.Module):
    """Blocks, each with a check of its output."""

    def __init__(self, fixed, width=256, depth=4):
        super().__init__()
        self.blocks, self.head, self.fixed = nn.ModuleList(Checked(fixed, width) for _ in range(depth)), nn.Linear(width, 10), fixed

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return F.log_softmax(self.head(x.mean(1)), -1)


class Checked(nn.Module):
    def __init__(self, fixed, width):
        super().__init__()
        self.block, self.fixed = Block(width), fixed

    def forward(self, x):
        x = self.block(x)
        if "check" not in self.fixed:
            if x.abs().amax() > 1000.0:  # break: check
                x = x * 0.1
        return x


def loop(fixed):
    """A break in a module that a loop calls: the loop cannot be resumed, so the caller runs eagerly."""
    return Guarded(fixed).to(DEVICE).eval(), lambda: (torch.randn(16, 64, 256, device=DEVICE),), False


def loop_training(fixed):
    """The same in training."""
    return Guarded(fixed).to(DEVICE), lambda: (torch.randn(16, 64, 256, device=DEVICE),), True


def loss_check(fixed):
    """A training step of a few blocks that looks for NaN in its middle."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.Sequential(*(Block(512, 8) for _ in range(3))) for _ in range(2))

        def forward(self, x):
            x = self.first(x)
            if "nan" not in fixed:
                if x.isnan().any():  # break: nan
                    raise ValueError("NaN")
            return self.second(x)

    return Net().to(DEVICE), lambda: (torch.randn(8, 128, 512, device=DEVICE),), True


def hidden(fixed):
    """Host time behind a busy device: it costs nothing."""
    w = torch.randn(8192, 8192, device=DEVICE, dtype=HALF) / 90

    def forward(x):
        for _ in range(3):
            x = torch.tanh(x @ w)
        if "log" not in fixed:
            time.sleep(0.0004)  # break: log
        for _ in range(3):
            x = torch.tanh(x @ w)
        return x

    return forward, lambda: (torch.randn(4096, 8192, device=DEVICE, dtype=HALF),), False


def top_loop(fixed):
    """A loop of the compiled function itself that stops early: all of it runs eagerly."""
    layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(8)).to(DEVICE)

    def forward(x):
        for layer in layers:
            x = F.gelu(layer(x)) + x
            if "stop" not in fixed:
                if x.sum() > 1e9:  # break: stop
                    break
        return F.layer_norm(x, (512,))

    return forward, lambda: (torch.randn(128, 512, device=DEVICE),), False


def listed(fixed):
    """Two breaks of a short call: values for a log, and a break that somebody asked for."""
    w = [torch.randn(512, 512, device=DEVICE, dtype=HALF) / 22 for _ in range(16)]

    def forward(x):
        for one in w[:8]:
            x = torch.tanh(x @ one)
        if "tolist" not in fixed:
            x[0, :4].tolist()  # break: tolist
        for one in w[8:]:
            x = torch.tanh(x @ one)
        if "asked" not in fixed:
            torch._dynamo.graph_break()  # break: asked
        return F.softmax(x, -1)

    return forward, lambda: (torch.randn(256, 512, device=DEVICE, dtype=HALF),), False


PROGRAMS = {
    one.__name__: (one, names)
    for one, names in (
        (products, ("read", "sleep")),
        (scaled, ("item",)),
        (pointwise, ("graph_break",)),
        (loop, ("check",)),
        (loop_training, ("check",)),
        (loss_check, ("nan",)),
        (hidden, ("log",)),
        (top_loop, ("stop",)),
        (listed, ("tolist", "asked")),
    )
}


def step_of(name, fixed):
    """A call of the program, compiled, with its backward where it has one (None: the program calls it itself)."""
    torch.manual_seed(0)
    made, inputs, backward = PROGRAMS[name][0](fixed)
    if not isinstance(made, nn.Module):
        made.__code__ = made.__code__.replace()  # Dynamo counts what it compiled by code
    compiled, given = torch.compile(made), inputs()

    def step():
        if backward is None:
            compiled(*given)
        elif backward:
            compiled(*given).float().square().mean().backward()
            for parameter in made.parameters():
                parameter.grad = None
        else:
            with torch.no_grad():
                compiled(*given)

    return step


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def block_s(step, calls):
    wait()
    began = time.perf_counter()
    for _ in range(calls):
        step()
    wait()
    return (time.perf_counter() - began) / calls


def gains(name, step, rounds, seconds):
    """What a call gains without each break, in milliseconds."""
    steps = {"": step} | {one: step_of(name, {one}) for one in PROGRAMS[name][1]}
    for one in steps.values():
        for _ in range(12):
            one()
    calls = {label: max(3, int(seconds / block_s(one, 5))) for label, one in steps.items()}
    source, rows = random.Random(0), {label: [] for label in steps}
    for _ in range(rounds):
        for label in source.sample(list(steps), len(steps)):
            rows[label].append(block_s(steps[label], calls[label]) * 1e3)
    found = {}
    for label in PROGRAMS[name][1]:
        differences = [broken - whole for broken, whole in zip(rows[""], rows[label], strict=True)]
        found[label] = [round(one, 4) for one in statistics.quantiles(differences, n=4)]
    print(json.dumps({"program": name, "call_ms": round(statistics.median(rows[""]), 4), "gains": found}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--gains", action="store_true")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=2.5)
    given = parser.parse_args()
    step = step_of(given.name, set())
    for _ in range(60):
        step()
    until = time.perf_counter() + given.seconds
    while time.perf_counter() < until:
        for _ in range(10):
            step()
        wait()
    if given.gains:
        gains(given.name, step, given.rounds, 0.06)


if __name__ == "__main__":
    main()
