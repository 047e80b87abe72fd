#!/usr/bin/env bash
# torch 2.15.0 (CPU, inductor).
# Guess: x + 0.0 and x.clamp(min=0.0) of a zero give the same bits compiled and in eager; both are one IEEE operation.
# Seen:  inductor drops "+ 0.0", so -0.0 stays -0.0 (eager: 0.0), and clamp and maximum turn -0.0 into 0.0 (eager keeps -0.0). ==, allclose
#        and assert_close do not see it; 1/x, atan2, copysign and signbit do: infinity changes its sign.
# Met by: angles from atan2, safe divisions such as 1 / (x + eps) with eps = 0, bitwise comparisons of eager and compiled runs.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import torch


def operations(x, zero):
    return x + 0.0, x.clamp(min=0.0), torch.maximum(x, zero), 1 / (x + 0.0)


x, zero = torch.full((8,), -0.0), torch.zeros(8)
plain, compiled = operations(x, zero), torch.compile(operations)(x, zero)
for name, a, b in zip(("x + 0.0", "clamp", "maximum", "1 / (x + 0.0)"), plain, compiled, strict=True):
    print(name, "eager", a[0].item(), "compiled", b[0].item())
assert [a[0].signbit().item() for a in plain] == [False, True, True, False]
assert [b[0].signbit().item() for b in compiled] == [True, False, False, True]
assert torch.equal(plain[0], compiled[0]) and plain[3][0] == float("inf") == -compiled[3][0]
PROGRAM
