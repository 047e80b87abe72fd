#!/usr/bin/env bash
# torch 2.15.0.
# Guess: torch._dynamo.config.capture_sparse_compute is True, so a multiplication by a sparse matrix is compiled, or is a graph break.
# Seen:  what stands before it is compiled; from there to the end the function runs in eager, the dense operators too. No warning appears and
#        counters["graph_break"] is empty; counters["unimplemented"] says "Attempted to wrap sparse Tensor". Results are right.
# Met by: graph networks and physics codes whose adjacency or stiffness matrix is an argument of the compiled step.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch
from torch._dynamo.utils import counters

graphs = []


def keep_operators(graph, inputs):
    graphs.append([node.name for node in graph.graph.nodes if node.op in ("call_function", "call_method")])
    return graph.forward


def step(matrix, x):
    y = (x.sin() + 1).cos()
    return (matrix @ y).relu()


x = torch.randn(3, 2)
assert torch._dynamo.config.capture_sparse_compute
seen = {}
for name, matrix in (("dense", torch.eye(3)), ("sparse", torch.eye(3).to_sparse())):
    torch._dynamo.reset()
    counters.clear()
    graphs.clear()
    result = torch.compile(step, backend=keep_operators)(matrix, x)
    assert torch.allclose(result, step(matrix, x)) and not counters["graph_break"]
    seen[name] = [len(graph) for graph in graphs], [reason.splitlines()[0] for reason in counters["unimplemented"]]
print("operators of each graph, reasons:", seen)
assert seen == {"dense": ([5], []), "sparse": ([3], ["Attempted to wrap sparse Tensor"])}
PROGRAM
