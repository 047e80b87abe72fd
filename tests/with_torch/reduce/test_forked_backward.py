"""A backward in a forked child: the threads that autograd starts there must find torch's thread pool in order."""

import os
import subprocess
import sys

PROGRAM = """
import time

import torch
from dynadiag.children.forked import run_forked
from dynadiag.torch_compat.dynamo.compiling import warm_up

def work(tell):
    x = torch.ones(3, requires_grad=True)
    (x * x).sum().backward()
    time.sleep(0.02)  # the other threads begin
    tell({"grad": x.grad.tolist()})

torch.set_num_threads(1)
warm_up("aot_eager")
reports = [run_forked(work, timeout_s=600) for _ in range(60)]
wrong = [report for report in reports if report.messages != ({"grad": [2.0, 2.0, 2.0]},) or report.exit_status != 0]
print(len(wrong), wrong[0].output[:300] if wrong else "")
"""


def test_no_backward_in_a_forked_child_ends_it():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("0 "), done.stdout
