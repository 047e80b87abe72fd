#!/usr/bin/env bash
# torch 2.15.0.
# Guess: an operator that refuses its arguments raises the same exception from a compiled call as in eager.
# Seen:  ValueError, TypeError and AttributeError of torch's operators arrive as TorchRuntimeError, which is a RuntimeError and none of these.
#        IndexError keeps its type, and so do errors of Python's own (KeyError of a dict, TypeError of unpacking).
# Met by: `except ValueError` around a call, as validation code and tests (pytest.raises) have it: green in eager, an uncaught error compiled.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import logging

import torch
import torch.nn.functional as F

logging.disable(logging.CRITICAL)


def error_of(function):
    try:
        function(torch.ones(3))
    except Exception as error:
        return type(error)
    return None


PROGRAMS = {
    "binary_cross_entropy of two sizes": (lambda x: F.binary_cross_entropy(x, torch.ones(2)), ValueError, True),
    "batch_norm of one value": (lambda x: F.batch_norm(x[None, :, None], None, None, training=True), ValueError, True),
    "tensor / list": (lambda x: x / [1], TypeError, True),
    "mse_loss with a string": (lambda x: F.mse_loss(x, "a"), AttributeError, True),
    "x[10]": (lambda x: x[10], IndexError, False),
    "sum over dimension 5": (lambda x: x.sum(5), IndexError, False),
    "missing key": (lambda x: x * {}["a"], KeyError, False),
}
for name, (function, expected, changes) in PROGRAMS.items():
    torch._dynamo.reset()
    plain, compiled = error_of(function), error_of(torch.compile(function, backend="eager"))
    print(f"{name}: eager {plain.__name__}, compiled {compiled.__name__}")
    assert plain is expected
    assert issubclass(compiled, expected) != changes
    assert not changes or issubclass(compiled, RuntimeError)
PROGRAM
