#!/usr/bin/env bash
# torch 2.15.0.
# Guess: FlopCounterMode around a compiled call counts what the compiled code does (or counts nothing, as fused kernels pass it by).
# Seen:  the count is right, because nothing is compiled: under the mode the function runs in eager and no graph is made. The first call
#        outside of the mode compiles.
# Met by: who measures FLOPs and time, or warms up, in one `with FlopCounterMode()`: the time is eager's.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch
from torch.utils.flop_counter import FlopCounterMode

graphs = []


def count(graph, inputs):
    graphs.append(graph)
    return graph.forward


compiled = torch.compile(lambda x: x @ x, backend=count)
x = torch.ones(8, 8)
with FlopCounterMode(display=False) as counter:
    compiled(x)
    compiled(x)
inside = len(graphs)
compiled(x)
print("flops:", counter.get_total_flops(), "graphs inside:", inside, "after the first call outside:", len(graphs))
assert counter.get_total_flops() == 2 * 1024 and (inside, len(graphs)) == (0, 1)
PROGRAM
