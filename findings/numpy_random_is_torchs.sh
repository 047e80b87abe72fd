#!/usr/bin/env bash
# torch 2.15.0, numpy 2.4.6.
# Guess: np.random.rand() in a compiled function draws from numpy's stream, or breaks the graph.
# Seen:  one graph, no break; the numbers come from torch's generator. np.random.seed(0) does not repeat them, torch.manual_seed(0) does,
#        and numpy's own stream is not advanced.
# Met by: augmentation and replay code that seeds numpy; a resumed run differs and every later numpy draw is shifted.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 numpy==2.4.6
run_program <<'PROGRAM'
import numpy as np
import torch
from torch._dynamo.utils import counters


def noise():
    return torch.from_numpy(np.random.rand(3))


compiled = torch.compile(noise, backend="eager", fullgraph=True)
np.random.seed(0)
eager = noise()
np.random.seed(0)
first, second = compiled(), (np.random.seed(0), compiled())[1]
torch.manual_seed(0)
third = compiled()
torch.manual_seed(0)
fourth = compiled()
np.random.seed(0)
compiled()
following = np.random.rand()
print("numpy seeded:", eager.tolist(), first.tolist(), second.tolist())
print("torch seeded:", third.tolist(), fourth.tolist())
assert not torch.equal(eager, first) and not torch.equal(first, second)
assert torch.equal(third, fourth)
assert following == eager[0].item(), "numpy's stream was advanced"
PROGRAM
