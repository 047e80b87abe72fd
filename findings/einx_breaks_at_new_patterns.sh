#!/usr/bin/env bash
# torch 2.15.0, einx 0.4.3.
# Guess: einx generates plain torch code once per pattern, so a compiled function with einx calls is one graph, as it is with einops.
# Seen:  each pattern that was not met before costs four graph breaks (its cache is behind functions that Dynamo skips). Once the pattern is known to einx there is none: one eager call before the first compiled one is enough.
# Met by: who moves from einops (no break in 0.8.2) to einx.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 einx==0.4.3 einops==0.8.2 numpy==2.4.6
run_program <<'PROGRAM'
import einops
import einx
import torch
from torch._dynamo.utils import counters


def with_einx(x):
    return einx.sum("b [s] c", x) + einx.mean("b [s] c", x)


def with_einops(x):
    return einops.reduce(x, "b s c -> b c", "sum") + einops.reduce(x, "b s c -> b c", "mean")


def breaks(function, calls):
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(function, backend="eager")
    for _ in range(calls):
        result = compiled(x)
    return sum(counters["graph_break"].values()), result


x = torch.randn(2, 3, 4)
cold, first = breaks(with_einx, 1)
warm, second = breaks(with_einx, 1)
none, third = breaks(with_einops, 1)
print("breaks: einx", cold, "einx, patterns known", warm, "einops", none)
assert torch.allclose(first, third) and torch.allclose(second, third)
assert (cold, warm, none) == (8, 0, 0)
PROGRAM
