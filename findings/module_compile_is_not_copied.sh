#!/usr/bin/env bash
# torch 2.15.0.
# Guess: model.compile() is torch.compile(model) in place, so a copy of the model is compiled too.
# Seen:  copy.deepcopy and pickle leave it out: the copy runs in eager, without a word. (A copy of what torch.compile(model) returned is
#        compiled: pickle_keeps_compiled.)
# Met by: EMA and target networks, k-fold copies, worker processes: model.compile() first and the copy afterwards.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import copy
import pickle

import torch

calls = []


def count(graph, inputs):
    def run(*arguments):
        calls.append(graph)
        return graph.forward(*arguments)

    return run


def compiled_calls(model):
    calls.clear()
    model(torch.ones(1, 2))
    return len(calls)


model = torch.nn.Linear(2, 2)
model.compile(backend=count)
seen = {
    "model": compiled_calls(model),
    "deepcopy": compiled_calls(copy.deepcopy(model)),
    "pickle": compiled_calls(pickle.loads(pickle.dumps(model))),
    "deepcopy of torch.compile(model)": compiled_calls(copy.deepcopy(torch.compile(torch.nn.Linear(2, 2), backend=count))),
}
print("compiled calls:", seen)
assert list(seen.values()) == [1, 0, 0, 1]
PROGRAM
