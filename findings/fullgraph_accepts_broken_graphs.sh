#!/usr/bin/env bash
# torch 2.15.0.
# Guess: torch.compile(f, fullgraph=True) raises at a graph break, whoever compiled f before.
# Seen:  if f ran compiled without fullgraph first, the call with fullgraph=True returns a result and raises nothing: both share the cache
#        of f's code, and what is found there is used as it is. In a fresh process the same call raises Unsupported.
# Met by: a test that asserts "no graph breaks" by fullgraph=True after another test or the training loop ran the function.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch


def broken(x):
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


x = torch.ones(1)
try:
    torch.compile(broken, backend="eager", fullgraph=True)(x)
    raise SystemExit("no error in a fresh process")
except torch._dynamo.exc.Unsupported as error:
    print("alone:", type(error).__name__)

torch._dynamo.reset()
torch.compile(broken, backend="eager")(x)
print("after a call without fullgraph:", torch.compile(broken, backend="eager", fullgraph=True)(x))
PROGRAM
