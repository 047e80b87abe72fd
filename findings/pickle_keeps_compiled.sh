#!/usr/bin/env bash
# torch 2.15.0.
# Guess: a compiled module cannot be pickled, or comes back as the plain module.
# Seen:  it pickles (with a backend named by a string), and comes back compiled: an OptimizedModule that compiles at its first call.
#        copy.deepcopy differs: the copy is compiled too, but runs the original's graph, and nothing is compiled again.
# Met by: models sent to worker processes (each pays a whole compilation), torch.save(model), and EMA copies.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import copy
import pickle

import torch
from torch._dynamo.utils import counters


def graphs():
    return counters["stats"]["unique_graphs"]


x = torch.ones(1, 2)
model = torch.compile(torch.nn.Linear(2, 2), backend="eager")
loaded = pickle.loads(pickle.dumps(model))
assert graphs() == 0
loaded(x)
after_pickle = graphs()

torch._dynamo.reset()
counters.clear()
model(x)
copied = copy.deepcopy(model)
copied(x)
print("pickled:", type(loaded).__name__, after_pickle, "graph; deepcopy:", type(copied).__name__, graphs(), "graph in all")
assert type(loaded) is type(copied) is type(model)
assert after_pickle == 1 and graphs() == 1
PROGRAM
