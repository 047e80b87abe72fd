#!/usr/bin/env bash
# torch 2.15.0, tqdm 4.70.1.
# Guess: `for i in tqdm(range(n))` in a compiled function costs one graph break for each iteration; with disable=True nothing.
# Seen:  no graph is made at all: the break inside of the loop leaves the whole function in eager. disable=True does the same,
#        since it is the object that Dynamo cannot iterate, not the bar. With range(n) the loop is one graph.
# Met by: diffusion and MCMC samplers with a progress bar that are compiled as a whole, also where the bar is switched off.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 tqdm==4.70.1
run_program <<'PROGRAM'
import os

import torch
from torch._dynamo.utils import counters
from tqdm import tqdm

nowhere = open(os.devnull, "w")
LOOPS = {
    "tqdm": lambda: tqdm(range(4), file=nowhere),
    "tqdm, disabled": lambda: tqdm(range(4), disable=True),
    "range": lambda: range(4),
}


def sample(x, loop):
    for step in loop():
        x = x.sin() + step
    return x


seen = {}
for name, loop in LOOPS.items():
    torch._dynamo.reset()
    counters.clear()
    result = torch.compile(sample, backend="eager")(torch.ones(2), loop)
    assert torch.equal(result, sample(torch.ones(2), loop))
    seen[name] = counters["stats"].get("unique_graphs", 0)
print("graphs:", seen)
assert seen == {"tqdm": 0, "tqdm, disabled": 0, "range": 1}
PROGRAM
