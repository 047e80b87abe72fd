#!/usr/bin/env bash
# torch 2.15.0, pytorch-crf 0.7.2.
# Guess: torch.where accepts a uint8 condition, as it does in eager (with a warning), or breaks the graph.
# Seen:  the compiled call raises ("expected predicate to be bool, got torch.uint8"); eager returns the right values. mask.bool() ends it.
#        pytorch-crf makes such a mask itself when none is passed: CRF.forward runs in eager and raises under torch.compile; passing
#        mask=torch.ones_like(tags, dtype=torch.bool) from the user's own line is enough.
# Met by: every program from before torch had bool masks (2019), and taggers built on pytorch-crf.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 pytorch-crf==0.7.2 numpy==2.4.6
run_program <<'PROGRAM'
import logging

import torch
from torchcrf import CRF

logging.disable(logging.CRITICAL)
emissions, tags = torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)
crf = CRF(4, batch_first=True)
mask = torch.tensor([1, 0, 1], dtype=torch.uint8)


def choose(mask):
    return torch.where(mask, torch.ones(3), torch.zeros(3))


def likelihood(mask):
    return crf(emissions, tags, mask=mask)


assert choose(mask).tolist() == [1, 0, 1]
likelihood(None)
for function, arguments in ((choose, mask), (likelihood, None)):
    torch._dynamo.reset()
    try:
        torch.compile(function, backend="eager")(arguments)
        raise SystemExit(f"{function.__name__} ran")
    except Exception as error:
        print(function.__name__, type(error).__name__, next(line for line in str(error).splitlines() if "uint8" in line)[-100:])
torch._dynamo.reset()
print("bool:", torch.compile(choose, backend="eager")(mask.bool()).tolist())
torch._dynamo.reset()
whole = torch.ones_like(tags, dtype=torch.bool)
difference = torch.compile(likelihood, backend="eager")(whole) - likelihood(None)
print("bool mask for CRF, difference:", difference.item())
assert difference.abs() < 1e-5
PROGRAM
