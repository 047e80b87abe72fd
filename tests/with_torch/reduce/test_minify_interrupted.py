"""A reduction that is killed or interrupted: the journal keeps every verdict, Ctrl-C writes the best so far."""

from __future__ import annotations

import json
import signal

import pytest
import torch

import dynadiag
from dynadiag.reduce.sources.recording import capture_recorded


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


def job_of(capture, out, *, resume):
    return {
        "captures": [str(capture)],
        "out": str(out),
        "backward": False,
        "timeout_s": 600.0,
        "kind": None,
        "match": None,
        "resume": resume,
        "ablation": False,
    }


@pytest.mark.slow
def test_killed_and_resumed_it_asks_at_most_one_question_twice(capture, signalled, tmp_path):
    worker, out = "graph_worker", tmp_path / "out"
    status, _ = signalled(worker, job_of(capture, out, resume=False), out, "SIGKILL", after=4)
    assert status == -signal.SIGKILL
    answered = len((out / "journal.jsonl").read_text().splitlines()) - 1
    assert answered >= 4
    status, messages = signalled(worker, job_of(capture, out, resume=True), out, "SIGINT", after=2)
    assert status == 0 and messages[-1]["done"], messages
    result = json.loads((out / "minify.json").read_text())
    assert not result["complete"] and result["proven"] == {"runs": 0, "reproduced": 0} and result["reproducer"] == "repro_min.py"
    keys = [json.loads(line)["key"] for line in (out / "journal.jsonl").read_text().splitlines()[1:]]
    assert len(keys) == len(set(keys)) and len(keys) > answered
    assert result["size_after"]["nodes"] < result["size_before"]["nodes"]
