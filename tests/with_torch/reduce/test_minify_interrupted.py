"""A reduction that is killed or interrupted: the journal keeps every verdict, Ctrl-C writes the best so far."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

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


def start(capture, out, *, resume=False):
    job = {"captures": [str(capture)], "out": str(out), "backward": False, "timeout_s": 60.0, "kind": None, "match": None, "resume": resume}
    job["ablation"] = False
    out.mkdir(exist_ok=True)
    (out / "job.json").write_text(json.dumps(job))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    command = [sys.executable, "-m", "dynadiag.reduce.worker", str(out / "job.json")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def queries_before(worker, count):
    """Read messages until so many queries were answered."""
    for line in worker.stdout:
        if json.loads(line).get("queries", 0) >= count:
            return


@pytest.mark.slow
def test_killed_and_resumed_it_asks_at_most_one_question_twice(capture, tmp_path):
    worker = start(capture, tmp_path / "out")
    queries_before(worker, 4)
    worker.kill()
    worker.wait()
    answered = len((tmp_path / "out" / "journal.jsonl").read_text().splitlines()) - 1
    assert answered >= 4
    resumed = start(capture, tmp_path / "out", resume=True)
    queries_before(resumed, 1)
    began = time.monotonic()
    resumed.send_signal(signal.SIGINT)
    messages = [json.loads(line) for line in resumed.stdout]
    assert resumed.wait() == 0 and messages[-1]["proven"], (messages, time.monotonic() - began)
    result = json.loads((tmp_path / "out" / "minify.json").read_text())
    assert not result["complete"] and result["proven"] == {"runs": 3, "reproduced": 3}
    keys = [json.loads(line)["key"] for line in (tmp_path / "out" / "journal.jsonl").read_text().splitlines()[1:]]
    assert len(keys) == len(set(keys)) and len(keys) > answered
    assert result["size_after"]["nodes"] < result["size_before"]["nodes"]
