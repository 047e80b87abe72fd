#!/usr/bin/env bash
# torch 2.15.0.
# Guess: `try: cholesky(a) except LinAlgError: cholesky(a + jitter)` in a compiled function either works or breaks the graph.
# Seen:  no break, and the exception leaves the function: the handler is gone. The try block is traced without values, so nothing is
#        raised then; the graph runs later, outside of it. contextlib.suppress is lost in the same way. Eager returns a result.
# Met by: Gaussian processes, Kalman filters and whitening with the usual jitter fallback: fails at the first singular matrix, maybe days in.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 numpy==2.4.6
run_program <<'PROGRAM'
import contextlib

import torch
from torch._dynamo.utils import counters


def factor(a):
    try:
        return torch.linalg.cholesky(a)
    except torch.linalg.LinAlgError:
        return torch.linalg.cholesky(a + 2 * torch.eye(2))


def invert(a):
    with contextlib.suppress(RuntimeError):
        a = torch.linalg.inv(a)
    return a


for function, matrix in ((factor, torch.tensor([[1.0, 2.0], [2.0, 1.0]])), (invert, torch.zeros(2, 2))):
    function(matrix)
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        try:
            torch.compile(function, backend=backend)(matrix)
            raise SystemExit(f"{function.__name__}: the exception was caught")
        except torch.linalg.LinAlgError as error:
            print(function.__name__, backend, type(error).__name__, "breaks:", sum(counters["graph_break"].values()))
assert not counters["graph_break"]
PROGRAM
