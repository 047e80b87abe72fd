#!/usr/bin/env bash
# torch 2.15.0, torch-geometric 2.8.1.
# Guess: GATConv compiles like SAGEConv, to one graph: both are one round of messages over the same edges.
# Seen:  SAGEConv does. GATConv breaks twice: before it adds self loops it removes those that are there by a boolean mask, whose result has a
#        size that is not known. GATConv(add_self_loops=False) is one graph; add the self loops once, when the data is made.
# Met by: who compiles a graph attention network: a break in each layer.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 torch-geometric==2.8.1 numpy==2.4.6
run_program <<'PROGRAM'
import logging

import torch
from torch._dynamo.utils import counters
from torch_geometric.nn import GATConv, SAGEConv
from torch_geometric.utils import add_self_loops

logging.disable(logging.CRITICAL)
x = torch.randn(3, 4)
edges = torch.tensor([[0, 1, 2], [1, 2, 0]])


def breaks(layer, edges):
    torch._dynamo.reset()
    counters.clear()
    result = torch.compile(layer, backend="eager")(x, edges)
    assert torch.allclose(result, layer(x, edges))
    return sum(counters["graph_break"].values())


with_loops = GATConv(4, 2)
without = GATConv(4, 2, add_self_loops=False)
without.load_state_dict(with_loops.state_dict())
looped = add_self_loops(edges, num_nodes=3)[0]
assert torch.allclose(with_loops(x, edges), without(x, looped), atol=1e-6)
seen = breaks(SAGEConv(4, 2), edges), breaks(with_loops, edges), breaks(without, looped)
print("breaks: SAGEConv", seen[0], "GATConv", seen[1], "GATConv(add_self_loops=False)", seen[2])
assert seen == (0, 2, 0)
PROGRAM
