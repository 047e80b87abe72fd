#!/usr/bin/env bash
# torch 2.15.0, rotary-embedding-torch 0.9.1.
# Guess: after the second sequence length the length is dynamic, and further lengths need no compilation.
# Seen:  each new, longer length compiles again (the module writes the length into a Python attribute that the graph is guarded on), up to
#        the limit of 8; then eager. RotaryEmbedding(cache_if_possible=False) needs two graphs for the same lengths.
# Met by: text of varying length, and generation, where the length grows by one each step.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 rotary-embedding-torch==0.9.1 numpy==2.4.6
run_program <<'PROGRAM'
import logging

import torch
from rotary_embedding_torch import RotaryEmbedding

logging.disable(logging.CRITICAL)
graphs = []


def count(graph, inputs):
    graphs.append(graph)
    return graph.forward


def graphs_after(rotary):
    torch._dynamo.reset()
    graphs.clear()
    rotate = torch.compile(lambda q: rotary.rotate_queries_or_keys(q), backend=count)
    seen = []
    for length in (5, 7, 9, 11, 13):
        rotate(torch.randn(1, 2, length, 8))
        seen.append(len(graphs))
    return seen


cached, free = graphs_after(RotaryEmbedding(8)), graphs_after(RotaryEmbedding(8, cache_if_possible=False))
print("graphs per length:", cached, "cache_if_possible=False:", free)
assert cached == [1, 2, 3, 4, 5]
assert free == [1, 2, 2, 2, 2]
PROGRAM
