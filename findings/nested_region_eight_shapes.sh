#!/usr/bin/env bash
# torch 2.15.0.
# Guess: a nested_compile_region that meets a new shape inside one graph is compiled for it again ("transparently", says its docstring).
# Seen:  eight versions are; at the ninth the compilation of the whole function ends with InternalTorchDynamoError "exceeded maximum reuse
#        entries (8)". Without the region the function compiles. nested_compile_region(max_reuse_entries=...) raises the limit.
# Met by: U-Nets, feature pyramids and other stacks where one block is called at each resolution.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import logging

import torch

logging.disable(logging.CRITICAL)


def block(x):
    return x.sin()


def compile_blocks(function, count):
    torch._dynamo.reset()
    sizes = [torch.ones(size) for size in range(2, 2 + count)]
    return len(torch.compile(lambda xs: [function(x) for x in xs], backend="eager")(sizes))


region = torch.compiler.nested_compile_region(block)
print("eight shapes:", compile_blocks(region, 8), "plain, nine:", compile_blocks(block, 9))
wide = torch.compiler.nested_compile_region(lambda x: x.sin(), max_reuse_entries=9)
print("nine with max_reuse_entries=9:", compile_blocks(wide, 9))
try:
    compile_blocks(region, 9)
    raise SystemExit("nine shapes compiled")
except Exception as error:
    print("nine:", type(error).__name__, str(error).splitlines()[0][:90])
    assert "maximum reuse entries (8)" in str(error)
PROGRAM
