#!/usr/bin/env bash
# torch 2.15.0.
# Guess: a method that is replaced on its class (Model.helper = ...) after the first compiled call is used from the next call on.
# Seen:  the old method stays in use, with no warning and no recompilation; eager uses the new one. The same holds for torch's own modules
#        (nn.GELU.forward = ...). Seen at once are: forward of the compiled module's class, a method set on the instance, a property,
#        a staticmethod, a class attribute that is a number, a function in a module (functional.relu = ...).
# Met by: monkeypatching for experiments or attention kernels, mock.patch.object in tests, notebook cells that redefine a method.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch


class Model(torch.nn.Module):
    def helper(self, x):
        return x + 1

    def forward(self, x):
        return self.helper(x)


x = torch.ones(1)
model = Model()
compiled = torch.compile(model, backend="eager")
compiled(x)
Model.helper = lambda self, x: x + 100
print("class method:  eager", model(x).item(), "compiled", compiled(x).item())
assert model(x).item() == 101 and compiled(x).item() == 2

model.helper = lambda x: x + 1000
print("instance:      eager", model(x).item(), "compiled", compiled(x).item())
assert model(x).item() == compiled(x).item() == 1001

torch._dynamo.reset()
gelu = torch.nn.Sequential(torch.nn.GELU())
compiled = torch.compile(gelu, backend="eager")
before = compiled(x)
torch.nn.GELU.forward = lambda self, x: x + 100
print("torch's class: eager", gelu(x).item(), "compiled", compiled(x).item())
assert gelu(x).item() == 101 and torch.equal(compiled(x), before)
PROGRAM
