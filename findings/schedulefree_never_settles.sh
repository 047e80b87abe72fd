#!/usr/bin/env bash
# torch 2.15.0, schedulefree 1.4.1.
# Guess: a Python float that changes in each call is compiled twice and is dynamic from then on, whatever operator takes it; so a compiled
#        AdamWScheduleFree.step() settles after two or three steps, as torch.optim.AdamW does.
# Seen:  that holds for x * s, but not for operators that take a number, such as torch.lerp(x, y, s): with backend "aot_eager"
#        each new value compiles again until the limit of 8, then runs in eager. With backend "eager" two graphs are enough, so looking for
#        recompilations with it hides this. schedulefree's step passes its averaging weight to _foreach_lerp_ and never settles.
# Met by: annealed coefficients, EMA decays, step-dependent weights; who compiles optimizer.step as PyTorch's recipe says.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 schedulefree==1.4.1
run_program <<'PROGRAM'
import logging

import schedulefree
import torch
from torch._dynamo.utils import counters

logging.disable(logging.CRITICAL)


def graphs_of_values(function, backend):
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(function, backend=backend)
    for value in (0.1, 0.2, 0.3, 0.4, 0.5):
        compiled(torch.zeros(2), torch.ones(2), value)
    return counters["stats"]["unique_graphs"]


def graphs_of_steps(optimizer_class):
    torch._dynamo.reset()
    counters.clear()
    model = torch.nn.Linear(2, 1)
    optimizer = optimizer_class(model.parameters(), lr=0.1)
    if hasattr(optimizer, "train"):
        optimizer.train()
    step = torch.compile(optimizer.step, backend="aot_eager")
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.ones(3, 2)).pow(2).mean().backward()
        step()
    return counters["stats"]["unique_graphs"]


lerp = {backend: graphs_of_values(torch.lerp, backend) for backend in ("eager", "aot_eager")}
product = graphs_of_values(lambda x, y, s: x + y * s, "aot_eager")
print("graphs for five values: lerp", lerp, "product", product)
steps = graphs_of_steps(schedulefree.AdamWScheduleFree), graphs_of_steps(torch.optim.AdamW)
print("graphs after ten steps: AdamWScheduleFree", steps[0], "AdamW", steps[1])
assert lerp == {"eager": 2, "aot_eager": 5} and product == 2
assert steps[0] == 8 and steps[1] <= 3
PROGRAM
