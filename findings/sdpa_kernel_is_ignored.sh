#!/usr/bin/env bash
# torch 2.15.0.
# Guess: `with sdpa_kernel(SDPBackend.MATH):` around a compiled call is honoured, or makes it compile again.
# Seen:  neither, if the function was compiled before: the kernel that was chosen then runs in every later call, inside the context and
#        outside of it. Compiled first inside the context, it stays on MATH outside. torch.compiler.reset() between them is what helps.
# Met by: comparing attention backends in one process, and MATH for a double backward or a debugging run after normal steps.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 numpy==2.4.6
run_program <<'PROGRAM'
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._debug_mode import DebugMode


def attention(x):
    return scaled_dot_product_attention(x, x, x)


def is_fused(function):
    with DebugMode() as log:
        function(x)
    return "_scaled_dot_product_flash_attention" in log.debug_string()


x = torch.randn(1, 2, 8, 16)
with sdpa_kernel(SDPBackend.MATH):
    assert not is_fused(attention)
compiled = torch.compile(attention, backend="aot_eager")
compiled(x)
with sdpa_kernel(SDPBackend.MATH):
    inside = is_fused(compiled)
torch.compiler.reset()
with sdpa_kernel(SDPBackend.MATH):
    compiled(x)
print("compiled before: fused kernel under MATH:", inside, "- compiled under MATH: fused kernel outside:", is_fused(compiled))
assert inside and not is_fused(compiled)
PROGRAM
