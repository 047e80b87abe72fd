#!/usr/bin/env bash
# torch 2.15.0 (2.11 does not).
# Guess: compiling leaves the settings of Python's garbage collector alone.
# Seen:  while a function is compiled the threshold of full collections is 1000 instead of 10, for the whole process, and the old one comes
#        back afterwards. TORCH_DYNAMO_GC_GEN2_THRESHOLD_DURING_COMPILE=0 switches it off.
# Met by: servers that compile in one thread while others handle requests: memory in reference cycles stays longer
#         there.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
cat >"$work/collector.py" <<'PROGRAM'
import gc

import torch

seen = []


def look(graph, inputs):
    seen.append(gc.get_threshold()[2])
    return graph.forward


gc.set_threshold(700, 10, 10)
torch.compile(lambda x: x.cos(), backend=look)(torch.ones(1))
print(*seen, gc.get_threshold()[2])
PROGRAM
cd "$work"
usual=$("$python" -W ignore collector.py)
off=$(TORCH_DYNAMO_GC_GEN2_THRESHOLD_DURING_COMPILE=0 "$python" -W ignore collector.py)
echo "threshold while compiling and after: $usual, switched off: $off"
[ "$usual" = "1000 10" ]
[ "$off" = "10 10" ]
