#!/usr/bin/env bash
# torch 2.15.0.
# Guess: torch.set_num_threads() and torch.set_float32_matmul_precision() are read when a kernel runs, so compiled code stays valid.
# Seen:  each of them makes every compiled function compile again at its next call (a guard on global state), on a machine without GPU too.
#        torch.backends.cudnn.benchmark = True does not.
# Met by: a data loader, evaluation or serving loop that sets threads or precision around each phase: both alternate between compiled
#         versions, and every first visit costs a whole compilation.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch

graphs = []


def count(graph, inputs):
    graphs.append(graph)
    return graph.forward


@torch.compile(backend=count)
def f(x):
    return x @ x


def new_graphs(change):
    torch._dynamo.reset()
    f(torch.ones(2, 2))
    before = len(graphs)
    change()
    f(torch.ones(2, 2))
    return len(graphs) - before


torch.set_num_threads(2)
seen = {
    "set_num_threads": new_graphs(lambda: torch.set_num_threads(1)),
    "set_float32_matmul_precision": new_graphs(lambda: torch.set_float32_matmul_precision("high")),
    "cudnn.benchmark": new_graphs(lambda: setattr(torch.backends.cudnn, "benchmark", True)),
}
print("compiled again:", seen)
assert seen == {"set_num_threads": 1, "set_float32_matmul_precision": 1, "cudnn.benchmark": 0}
PROGRAM
