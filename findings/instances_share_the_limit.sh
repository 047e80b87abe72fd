#!/usr/bin/env bash
# torch 2.15.0.
# Guess: each torch.compile(model) has a cache of its own, so ten models of one class with ten widths compile ten times.
# Seen:  eight do; from the ninth on the models run in eager, with one warning. The limit of 8 belongs to the code of forward(), which all
#        instances share. torch.compile(model, isolate_recompiles=True) (not in torch 2.11) gives all ten their graph.
# Met by: hyperparameter sweeps, ensembles and test suites that compile many models in one process: the later ones are slower.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import logging

import torch

logging.disable(logging.CRITICAL)
graphs = []


def count(graph, inputs):
    graphs.append(graph)
    return graph.forward


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)
        self.width = width

    def forward(self, x):
        return self.layer(x) * self.width


def compile_ten(**options):
    torch._dynamo.reset()
    graphs.clear()
    for width in range(2, 12):
        torch.compile(Model(width), backend=count, **options)(torch.ones(1, width))
    return len(graphs)


shared, isolated = compile_ten(), compile_ten(isolate_recompiles=True)
print("graphs of ten models:", shared, "isolated:", isolated)
assert (shared, isolated) == (8, 10)
PROGRAM
