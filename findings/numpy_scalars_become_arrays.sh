#!/usr/bin/env bash
# torch 2.15.0, numpy 2.4.6.
# Guess: np.mean(a) returns a numpy scalar from a compiled function as it does from a plain one.
# Seen:  it returns a 0-dimensional ndarray. Of float64 numpy's scalar is a Python float (isinstance, json.dumps and use as a dictionary key
#        work), the array is none: json.dumps raises TypeError, hash() too.
# Met by: metrics computed with numpy in a compiled evaluation function, logged as JSON.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 numpy==2.4.6
run_program <<'PROGRAM'
import json

import numpy as np
import torch


def mean(values):
    return np.mean(values)


values = np.arange(3.0)
plain, compiled = mean(values), torch.compile(mean, backend="eager")(values)
print(type(plain).__name__, json.dumps(plain), "->", type(compiled).__name__, compiled.shape)
assert isinstance(plain, float) and isinstance(compiled, np.ndarray) and compiled.shape == ()
for use in (json.dumps, hash):
    try:
        use(compiled)
        raise SystemExit(f"{use.__name__} works")
    except TypeError as error:
        print(use.__name__, error)
PROGRAM
