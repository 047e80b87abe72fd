#!/usr/bin/env bash
# torch 2.15.0 (torch.compile(dynamic_shapes=...) with ShapeVar, new).
# Guess: two sizes that were declared with two ShapeVars are independent, so x + y also takes a size of 1 and broadcasts, as without
#        dynamic_shapes; or it compiles again for it.
# Seen:  after a call with equal sizes a call with sizes 1 and 3 ends with AssertionError "Guard failed on the same frame it was created. This
#        is a bug". Plain torch.compile, and dynamic=True, run the same two calls.
# Met by: masks and biases with a broadcast batch dimension next to full ones.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch
from torch.fx.experimental.dynamic_spec import ParamsSpec, ShapeVar, TensorSpec


def add(x, y):
    return x + y


def sizes_of_two_calls(**options):
    torch._dynamo.reset()
    compiled = torch.compile(add, backend="eager", **options)
    return [compiled(torch.ones(size), torch.ones(3)).shape[0] for size in (3, 1)]


print("plain:", sizes_of_two_calls(), "dynamic=True:", sizes_of_two_calls(dynamic=True))
spec = ParamsSpec({"x": TensorSpec([ShapeVar("a")]), "y": TensorSpec([ShapeVar("b")])})
try:
    sizes_of_two_calls(dynamic_shapes=spec)
    raise SystemExit("it broadcasts")
except AssertionError as error:
    print("dynamic_shapes: AssertionError:", str(error)[:80])
PROGRAM
