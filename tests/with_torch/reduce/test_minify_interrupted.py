"""A reduction that is killed or interrupted: the journal keeps every verdict, Ctrl-C writes the best so far."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

import dynadiag
from dynadiag.reduce.recording import capture_recorded


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")

    def f(x):
        x = torch.relu(x)
        for _ in range(12):
            x = torch.cos(torch.sin(x) + 1)
        return x

    with dynadiag.observe(folder / "run"), torch.no_grad():
        torch.compile(f, backend="eager")(torch.randn(3, 4))
    torch._dynamo.reset()
    return capture_recorded(folder / "run", "g0", folder, backend="relu_compile_error_TESTING_ONLY")


SIGNALLED = """
import os, signal, sys
from dynadiag.reduce import proving, worker

proving.prove.__kwdefaults__["runs"] = 1  # other tests ask for three
asked = []

def show(progress):
    told(progress)
    asked.append(1)
    if len(asked) == int(sys.argv[2]):
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))

told, worker.show = worker.show, show
sys.exit(worker.main(sys.argv[1]))
"""


def signalled(name, capture, out, *, after, resume=False):
    """The worker, as `dynadiag minify` starts it, which gets a signal after so many questions; its exit status and messages."""
    job = {
        "captures": [str(capture)],
        "out": str(out),
        "backward": False,
        "timeout_s": 600.0,
        "kind": None,
        "match": None,
        "resume": resume,
    }
    job["ablation"] = False
    out.mkdir(exist_ok=True)
    (out / "job.json").write_text(json.dumps(job))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    command = [sys.executable, "-c", SIGNALLED, str(out / "job.json"), str(after), name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_killed_and_resumed_it_asks_at_most_one_question_twice(capture, tmp_path):
    status, _ = signalled("SIGKILL", capture, tmp_path / "out", after=4)
    assert status == -signal.SIGKILL
    answered = len((tmp_path / "out" / "journal.jsonl").read_text().splitlines()) - 1
    assert answered >= 4
    status, messages = signalled("SIGINT", capture, tmp_path / "out", after=2, resume=True)
    assert status == 0 and messages[-1]["proven"], messages
    result = json.loads((tmp_path / "out" / "minify.json").read_text())
    assert not result["complete"] and result["proven"] == {"runs": 1, "reproduced": 1}
    keys = [json.loads(line)["key"] for line in (tmp_path / "out" / "journal.jsonl").read_text().splitlines()[1:]]
    assert len(keys) == len(set(keys)) and len(keys) > answered
    assert result["size_after"]["nodes"] < result["size_before"]["nodes"]
