#!/usr/bin/env bash
# torch 2.15.0.
# Guess: retain_grad() on an intermediate is a graph break like another: the function is compiled before and behind it, and it is counted.
# Seen:  what stands before it is compiled, everything behind it in the function runs in eager, and nothing says so: no warning, and
#        counters["graph_break"] is empty. Only fullgraph=True raises Unsupported. Results and gradients are right.
# Met by: who looks at activations' gradients during training: the more of the model lies behind that line, the less compile brings.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch
from torch._dynamo.utils import counters

graphs = []


def keep_operators(graph, inputs):
    graphs.append([node.name for node in graph.graph.nodes if node.op in ("call_function", "call_method")])
    return graph.forward


def loss(x, weight, keep):
    hidden = (x @ weight).relu()
    if keep:
        hidden.retain_grad()
    return (hidden @ weight).sin().sum()


x, weight = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
seen = {}
for keep in (False, True):
    torch._dynamo.reset()
    counters.clear()
    graphs.clear()
    torch.compile(loss, backend=keep_operators)(x, weight, keep).backward()
    seen[keep] = list(graphs), sum(counters["graph_break"].values())
print("operators of each graph, breaks: without retain_grad", seen[False], "with", seen[True])
assert [len(graph) for graph in seen[False][0]] == [5] and seen[False][1] == 0
assert [len(graph) for graph in seen[True][0]] == [2] and seen[True][1] == 0
torch._dynamo.reset()
try:
    torch.compile(loss, backend="eager", fullgraph=True)(x, weight, True)
    raise SystemExit("fullgraph=True ran")
except torch._dynamo.exc.Unsupported as error:
    print("fullgraph=True:", str(error).splitlines()[0])
PROGRAM
