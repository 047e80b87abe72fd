#!/usr/bin/env bash
# torch 2.15.0, omegaconf 2.4.0.
# Guess: reading a DictConfig in a compiled function breaks the graph, or its values are constants that are compiled once.
# Seen:  no break, and the second call compiles everything again though nothing changed: the first read fills the config's cache of flags, on
#        whose emptiness the first graph is guarded. Reading the value once before the first compiled call leaves one graph.
# Met by: Hydra projects that pass cfg to the model: each compile time is paid twice.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 omegaconf==2.4.0
run_program <<'PROGRAM'
import torch
from omegaconf import OmegaConf
from torch._dynamo.utils import counters


def graphs_after_calls(read_first):
    settings = OmegaConf.create({"model": {"scale": 2.0}})
    if read_first:
        settings.model.scale  # noqa: B018 - the read is the point
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(lambda x: x * settings.model.scale, backend="eager")
    seen = []
    for _ in range(3):
        compiled(torch.ones(1))
        seen.append(counters["stats"]["unique_graphs"])
    assert not counters["graph_break"]
    return seen


cold, warm = graphs_after_calls(False), graphs_after_calls(True)
print("graphs after each call:", cold, "read once before:", warm)
assert cold == [1, 2, 2] and warm == [1, 1, 1]
PROGRAM
