"""Two ranks of one recorded run: one breaks where the other does not, and one is killed."""

import pytest

from dynadiag.passes.find_rank_differences import find_rank_differences
from dynadiag.record import RecordOptions, Target, record
from dynadiag.trace import load

LAUNCHER = """
import os
import subprocess
import sys

common = {**os.environ, "WORLD_SIZE": "2"}
ranks = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
children = [subprocess.Popen([sys.executable, sys.argv[1]], env=rank) for rank in ranks]
for child in children:
    child.wait()
"""
RANK = """
import os
import signal
import subprocess
import sys

import torch


def step(x):
    x = x + 1
    if os.environ["RANK"] == "1":
        torch._dynamo.graph_break()
    return x * 2


torch.compile(step, backend="eager")(torch.ones(3))
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
WORKER = "import torch; torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))"
subprocess.run([sys.executable, "-c", WORKER], check=True)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "launch.py").write_text(LAUNCHER)
    (folder / "rank.py").write_text(RANK)
    result = record(Target("script", (str(folder / "launch.py"), str(folder / "rank.py"))), RecordOptions(out=folder / "run"))
    return load(result.directory)


@pytest.mark.any_torch
def test_breaks_differ_and_the_killed_rank_is_said(run):
    found = find_rank_differences(run)
    assert {finding.code for finding in found.findings} == {"DX01", "DX03", "DX04", "DX06"}  # DX06: the guard on os.environ["RANK"]
    broke = next(one for one in found.ranks if one.what.startswith("graph break"))
    assert broke.values == {"rank 0": "0 events", "rank 1": "1 event"}
    ended = next(one for one in found.ranks if one.what == "end of the log")
    assert ended.odd_ranks == (1,)


@pytest.mark.any_torch
def test_a_process_that_a_rank_started_is_not_compared(run):
    assert len([process for process in run.processes if process.rank == 0]) == 2
    assert not any("<lambda>" in one.what for one in find_rank_differences(run).ranks)
