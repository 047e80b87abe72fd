#!/usr/bin/env bash
# torch 2.15.0 (torch.compiler.precompile, new and a prototype).
# Guess: the artifact takes the model as an argument, so model.eval() or train() at the call decides whether dropout is active.
# Seen:  the mode of the capture is baked in. Captured in training mode, the loaded artifact drops values of a model in eval mode; nothing
#        is said. The result has no gradient either, though the model's parameters need one and grad mode is on.
# Met by: who captures right after training (a new module is in training mode), and deploys after model.eval().
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch
from torch.compiler import precompile

model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Dropout(0.5))
x = torch.ones(1, 4)
with precompile.capture(lambda model, x: model(x), artifact_path="model.py", cache_path="model.cache", backend="eager") as captured:
    captured(model, x)
loaded = precompile.load("model.py", "model.cache")
model.eval()
zeros = (loaded(model, x) == 0).sum().item()
print("zeros of 64 in eval mode: eager", (model(x) == 0).sum().item(), "artifact", zeros, "requires_grad", loaded(model, x).requires_grad)
assert (model(x) == 0).sum().item() == 0 and zeros > 10
assert model(x).requires_grad and not loaded(model, x).requires_grad
PROGRAM
