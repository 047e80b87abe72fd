#!/usr/bin/env bash
# torch 2.15.0, einx 0.4.3.
# Guess: einx generates plain torch code, so a compiled function with einx.sum and einx.mean is one graph, as it is with einops.
# Seen:  it depends on the order of imports. With einx imported before torch, as sorted imports have it, the first compilation breaks 8 times;
#        the next has no break, nor has the first if the function ran in eager once before. With torch imported before einx there is none.
# Met by: a break that comes and goes with the order of imports or with a warm-up call.
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
print("breaks: einx", cold, "einx, compiled again", warm, "einops", none)
assert torch.allclose(first, third) and torch.allclose(second, third)
assert (cold, warm, none) == (8, 0, 0)
PROGRAM
