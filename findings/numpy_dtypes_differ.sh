#!/usr/bin/env bash
# torch 2.15.0, numpy 2.4.6.
# Guess: numpy code in a compiled function gives numpy's results and dtypes.
# Seen:  np.cumsum of int8 stays int8 and wraps around (numpy sums in int64), and integers divided give float32 (numpy: float64).
#        No warning. np.ones, np.linspace and np.array of floats do give float64.
# Met by: quantised counts and masks summed in pre- and postprocessing: wrong totals beyond 127.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 numpy==2.4.6
run_program <<'PROGRAM'
import numpy as np
import torch


def total(counts):
    return np.cumsum(counts)


def half(counts):
    return counts / 3


counts = np.full(4, 100, dtype=np.int8)
for function in (total, half):
    plain, compiled = function(counts), torch.compile(function, backend="eager")(counts)
    print(function.__name__, "numpy", plain.dtype, plain.tolist(), "compiled", compiled.dtype, compiled.tolist())
compiled = torch.compile(total, backend="eager")(counts)
assert total(counts).tolist() == [100, 200, 300, 400] and compiled.tolist() == [100, -56, 44, -112]
assert torch.compile(half, backend="eager")(counts).dtype == np.float32 and half(counts).dtype == np.float64
PROGRAM
