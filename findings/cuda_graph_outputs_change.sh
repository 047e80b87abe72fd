#!/usr/bin/env bash
# torch 2.11.0, one GPU (run on an H200).
# Guess: with mode="reduce-overhead", who reads a result that a later call has overwritten gets the RuntimeError that torch has for it.
# Seen:  only results of the first two calls of a graph raise. Those of every later call silently hold the values of the newest call: of
#        results kept over eight calls, two raise and five are wrong, without an error or a warning.
# Met by: who collects results of a compiled model in a list (batches, decoding steps) after a warm-up: all of them are the last one.
. "$(dirname "$0")/common.sh"
needs_gpu
install torch==2.11.0
run_program <<'PROGRAM'
import torch

double = torch.compile(lambda x: x * 2, mode="reduce-overhead")
kept = [double(torch.full((4,), float(call), device="cuda")) for call in range(8)]
seen = []
for result in kept:
    try:
        seen.append(result[0].item())
    except RuntimeError as error:
        assert "has been overwritten by a subsequent run" in str(error)
        seen.append("RuntimeError")
print("kept results of 8 calls:", seen)
assert seen == ["RuntimeError"] * 2 + [14.0] * 6

model = torch.compile(torch.nn.Linear(4, 4).cuda(), mode="reduce-overhead")
with torch.no_grad():
    for _ in range(4):
        model(torch.ones(2, 4, device="cuda"))
    first = model(torch.ones(2, 4, device="cuda"))
    before = first.clone()
    second = model(torch.zeros(2, 4, device="cuda"))
    print("a layer after its warm-up: the first result is still itself:", torch.equal(first, before), "it is the second:", torch.equal(first, second))
    assert torch.equal(first, second) and not torch.equal(first, before)
PROGRAM
