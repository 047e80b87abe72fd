#!/usr/bin/env bash
# torch 2.15.0.
# Guess: torch.compiler.nested_compile_region ("always safe, correctness is preserved") around a block with BatchNorm trains as without it.
# Seen:  in training mode the compilation raises: a region may not write a buffer or input while gradients are needed. The same block
#        without the region compiles, and with the region after .eval() too.
# Met by: ResNet-like models, whose repeated blocks are what regions are meant for.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import logging

import torch

logging.disable(logging.CRITICAL)
norm = torch.nn.BatchNorm1d(2)
region = torch.compiler.nested_compile_region(lambda x: norm(x))
x = torch.randn(4, 2)

torch.compile(lambda x: norm(x) + norm(x), backend="aot_eager")(x)
try:
    torch.compile(lambda x: region(x) + region(x), backend="aot_eager")(x)
    raise SystemExit("the region compiled")
except RuntimeError as error:
    reason = next(line for line in str(error).splitlines() if "mutations" in line)
    print(type(error).__name__, reason.partition(" If you")[0])
norm.eval()
torch._dynamo.reset()
print("eval:", torch.compile(lambda x: region(x) + region(x), backend="aot_eager")(x).shape)
PROGRAM
