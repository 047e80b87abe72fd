#!/usr/bin/env bash
# torch 2.15.0 (torch.compiler.precompile, new and a prototype).
# Guess: a loaded artifact treats a Python number among its arguments as an argument, or refuses another value than at capture.
# Seen:  the value of the capture is baked in; another one is accepted and ignored, without an error or a warning, while another tensor
#        shape or dtype is refused with PrecompileError.
# Met by: guidance scale, temperature, step size or loss weight passed beside the tensors.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch
from torch.compiler import PrecompileError, precompile


def scale(x, factor):
    return x * factor


x = torch.ones(3)
with precompile.capture(scale, artifact_path="scale.py", cache_path="scale.cache", backend="eager") as captured:
    captured(x, 2.0)
loaded = precompile.load("scale.py", "scale.cache")
print("captured with 2.0, called with 3.0:", loaded(x, 3.0).tolist())
assert torch.equal(loaded(x, 3.0), 2 * x)
try:
    loaded(torch.ones(5), 2.0)
    raise SystemExit("another shape was accepted")
except PrecompileError as error:
    print("another shape:", str(error)[:70])
PROGRAM
