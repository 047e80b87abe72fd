#!/usr/bin/env bash
# torch 2.15.0.
# Guess: mark_dynamic promises that a dimension is not specialised, or raises; so a batch of one that is marked serves all sizes or raises.
# Seen:  neither: the batch of one is compiled for exactly the size 1 without an error or a warning, and the next size compiles again.
# Met by: warm-up with one example before serving: the first real batch pays the compilation that the warm-up was meant to take.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import warnings

import torch

graphs = []


def count(graph, inputs):
    graphs.append(graph)
    return graph.forward


def graphs_after(*sizes):
    torch._dynamo.reset()
    graphs.clear()
    compiled = torch.compile(lambda x: x + 1, backend=count)
    for size in sizes:
        x = torch.ones(size, 2)
        torch._dynamo.mark_dynamic(x, 0)
        compiled(x)
    return len(graphs)


with warnings.catch_warnings():
    warnings.simplefilter("error")
    one_first, two_first = graphs_after(1, 5, 7), graphs_after(2, 5, 7)
print("graphs for sizes 1, 5, 7:", one_first, "for 2, 5, 7:", two_first)
assert (one_first, two_first) == (2, 1)
PROGRAM
