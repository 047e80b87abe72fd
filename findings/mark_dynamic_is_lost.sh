#!/usr/bin/env bash
# torch 2.15.0.
# Guess: torch._dynamo.mark_dynamic(x, 0) belongs to the data: batch.to(device), .clone() or .detach() of it is still marked.
# Seen:  the mark is an attribute of that tensor object. .clone(), .detach(), slices and every .to() that copies lose it without a word
#        (the second size compiles again); .to() that has nothing to do keeps it, and so does copy.deepcopy.
# Met by: who marks in the collate function or the dataset and moves the batch afterwards: works on the CPU, recompiles on the GPU.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import copy

import torch

graphs = []


def count(graph, inputs):
    graphs.append(graph)
    return graph.forward


def recompiles(derive):
    torch._dynamo.reset()
    graphs.clear()
    compiled = torch.compile(lambda x: x + 1, backend=count)
    for size in (4, 5):
        x = torch.ones(size, 2)
        torch._dynamo.mark_dynamic(x, 0)
        compiled(derive(x))
    return len(graphs) - 1


seen = {
    "itself": recompiles(lambda x: x),
    "to, same dtype": recompiles(lambda x: x.to(torch.float32)),
    "deepcopy": recompiles(copy.deepcopy),
    "clone": recompiles(torch.clone),
    "detach": recompiles(torch.detach),
    "to, copied": recompiles(lambda x: x.to(torch.float64)),
}
print("recompiled for the second size:", seen)
assert list(seen.values()) == [0, 0, 0, 1, 1, 1]
PROGRAM
