#!/usr/bin/env bash
# torch 2.15.0.
# Guess: a log record from a compiled function names the function that the user wrote.
# Seen:  the first does; each record behind a graph break has funcName "torch_dynamo_resume_in_f_at_<line>", which changes when the file is
#        edited. Line numbers are right. Tracebacks of exceptions behind a break hold these names too, once for each break before.
# Met by: log filters, dashboards and error grouping by function name: one cause becomes several, and new ones at each edit.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import logging
import re
import traceback

import torch

records = []


class Keep(logging.Handler):
    def emit(self, record):
        records.append((record.funcName, record.lineno))


logger = logging.getLogger("app")
logger.addHandler(Keep())
logger.setLevel(logging.INFO)
logger.propagate = False


def step(x, fail):
    x = x + 1
    logger.info("first")
    x = x * 2
    logger.info("second")
    if fail:
        raise ValueError("no")
    return x


step(torch.ones(1), False)
plain, records[:] = list(records), []
compiled = torch.compile(step, backend="eager")
compiled(torch.ones(1), False)
print("eager:", plain)
print("compiled:", records)
assert [line for _, line in records] == [line for _, line in plain]
assert [name for name, _ in plain] == ["step", "step"]
assert records[0][0] == "step" and re.fullmatch(r"torch_dynamo_resume_in_step_at_\d+", records[1][0])
try:
    compiled(torch.ones(1), True)
except ValueError as error:
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    print("traceback:", names)
    assert sum(name.startswith("torch_dynamo_resume_in_step_at_") for name in names) == 2
PROGRAM
