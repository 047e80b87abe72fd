"""What several tests of the reducers share."""

import json
import os
import subprocess
import sys

import pytest

SIGNALLED = """
import importlib, os, signal, sys

from dynadiag.reduce.reproducer import proving, script_outcome

worker = importlib.import_module(f"dynadiag.reduce.{sys.argv[4]}")
for one in (proving, script_outcome):
    one.prove.__kwdefaults__["runs"] = 1  # other tests ask for three
asked = []

def show(progress):
    told(progress)
    asked.append(1)
    if len(asked) == int(sys.argv[2]):
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))

told, worker.show = worker.show, show
sys.exit(worker.serve(sys.argv[1], worker.reduce_job))
"""


@pytest.fixture
def signalled():
    """A worker by its name, as `dynadiag minify` starts it, with a signal after so many questions; its exit status and messages."""

    def run(worker, job, out, name, *, after):
        out.mkdir(exist_ok=True)
        (out / "job.json").write_text(json.dumps(job))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        command = [sys.executable, "-c", SIGNALLED, str(out / "job.json"), str(after), name, worker]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    return run
