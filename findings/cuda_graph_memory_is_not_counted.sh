#!/usr/bin/env bash
# torch 2.11.0, one GPU (run on an H200).
# Guess: `torch.cuda.max_memory_allocated()` of a training step with mode="reduce-overhead" is about that of the plain compiled step.
# Seen:  a step that is replayed reports a fifth of it, less than its activations take: the memory of a CUDA graph belongs to a pool of its
#        own, which counts as reserved and not as allocated. The step needs as much as before; `max_memory_reserved()` has it.
# Met by: who compares the peak memory of modes, or sizes a batch by it: "reduce-overhead saves 80 %" is no saving.
. "$(dirname "$0")/common.sh"
needs_gpu
install torch==2.11.0
run_program <<'PROGRAM'
import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(8)]).cuda()
x = torch.randn(8192, 2048, device="cuda")


def peaks(mode):
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    compiled = torch.compile(model, mode=mode)
    for _ in range(4):
        compiled(x).sum().backward()
        model.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    compiled(x).sum().backward()
    model.zero_grad()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() >> 20, torch.cuda.max_memory_reserved() >> 20


plain, replayed = peaks("default"), peaks("reduce-overhead")
print("MiB allocated and reserved at most: default", plain, "reduce-overhead", replayed)
activations = 8 * 2 * x.nbytes >> 20  # the input of each layer and of each GELU
assert replayed[0] < plain[0] / 2 and replayed[0] < activations and replayed[1] > 0.9 * plain[1]
PROGRAM
