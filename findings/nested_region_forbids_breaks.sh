#!/usr/bin/env bash
# torch 2.15.0.
# Guess: nested_compile_region is a hint; what breaks the graph or returns its input inside of it does the same as outside.
# Seen:  both end the program with UncapturedHigherOrderOpError, although fullgraph is not set: a print() in a region, and a region that
#        returns its argument (nn.Identity, a residual that is switched off). Without the region both run.
# Met by: who marks the layers of a model that logs, or one whose layers have optional parts.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import logging

import torch

logging.disable(logging.CRITICAL)


def log(x):
    print("size", tuple(x.shape))
    return x + 1


def identity(x):
    return x


for function in (log, identity):
    torch._dynamo.reset()
    torch.compile(lambda x, f=function: f(x) * 2, backend="eager")(torch.ones(2))
    region = torch.compiler.nested_compile_region(function)
    try:
        torch.compile(lambda x, f=region: f(x) * 2, backend="eager")(torch.ones(2))
        raise SystemExit(f"{function.__name__} ran in a region")
    except RuntimeError as error:
        print(function.__name__, type(error).__name__)
        assert type(error).__name__ == "UncapturedHigherOrderOpError"
PROGRAM
