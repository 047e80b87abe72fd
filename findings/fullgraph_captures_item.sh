#!/usr/bin/env bash
# torch 2.15.0.
# Guess: fullgraph=True only forbids graph breaks, so a function that breaks at .item() or nonzero() raises with it.
# Seen:  it compiles to one graph without an error. fullgraph=True also switches on capture_scalar_outputs and
#        capture_dynamic_output_shape_ops, which the same call without fullgraph leaves off (there: 2 graphs, a break at each).
# Met by: whoever uses fullgraph=True to list the breaks of a model: it hides exactly those that the normal call has.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import logging

import torch
from torch._dynamo.utils import counters

logging.disable(logging.CRITICAL)


def scale(x):
    return x * x.sum().item()


def select(x):
    return x.sin() + x.nonzero().shape[0]


for function in (scale, select):
    seen = {}
    for fullgraph in (True, False):
        torch._dynamo.reset()
        counters.clear()
        torch.compile(function, backend="eager", fullgraph=fullgraph)(torch.ones(3))
        seen[fullgraph] = sum(counters["graph_break"].values())
    print(function.__name__, "breaks with fullgraph=True:", seen[True], "without:", seen[False])
    assert seen[True] == 0 and seen[False] > 0
PROGRAM
