#!/usr/bin/env bash
# torch 2.11.0, one GPU (run on an H200).
# Guess: `torch.cuda.Event` in a compiled function breaks the graph, as `torch.cuda.synchronize()` does, and then times as in eager.
# Seen:  no break. Events that are made and recorded inside come back as events that were never recorded, so `elapsed_time` raises
#        ValueError; events that were made outside raise "expected event to be a torch.Event object" when the compiled code runs.
# Met by: who times parts of a model with events and then compiles the model.
. "$(dirname "$0")/common.sh"
needs_gpu
install torch==2.11.0
run_program <<'PROGRAM'
import torch
from torch._dynamo.utils import counters


def events():
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def inside(x):
    start, end = events()
    start.record()
    y = x @ x
    end.record()
    return y, start, end


outer = events()


def outside(x):
    outer[0].record()
    y = x @ x
    outer[1].record()
    return y


def raised(function):
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


x = torch.randn(512, 512, device="cuda")
_, start, end = inside(x)
torch.cuda.synchronize()
assert start.elapsed_time(end) > 0  # eager
_, start, end = torch.compile(inside)(x)
torch.cuda.synchronize()
made_inside = raised(lambda: start.elapsed_time(end))
made_outside = raised(lambda: torch.compile(outside)(x))
print("made inside:", made_inside, "| made outside:", made_outside, "| breaks:", dict(counters["graph_break"]))
assert made_inside.startswith("ValueError: Both events must be recorded") and not counters["graph_break"]
assert made_outside == "RuntimeError: expected event to be a torch.Event object"
PROGRAM
