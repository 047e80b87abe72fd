"""Two ranks of one recorded run: one breaks where the other does not, and one is killed; two of gloo with other collectives."""

from pathlib import Path

import pytest

from dynadiag import report
from dynadiag.passes.find_rank_differences import find_rank_differences
from dynadiag.record import RecordOptions, Target, record
from dynadiag.trace import load
from dynadiag.trace.digest import digests_of, recorded_digest

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
GLOO = """
import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{__file__}.store", rank=rank, world_size=2)


@torch.compile(backend="aot_eager")
def step(x, op):
    total = collectives.all_reduce(x + 1, "sum", dist.group.WORLD)
    if op == "stop":
        torch._dynamo.graph_break()
    return collectives.all_reduce(total, "sum" if op == "stop" else op, dist.group.WORLD)


step(torch.ones(4), "stop" if rank else "sum")
step(torch.ones(4), "max" if rank else "min")
dist.destroy_process_group()
"""


def recorded(folder, rank):
    (folder / "launch.py").write_text(LAUNCHER)
    (folder / "rank.py").write_text(rank)
    return record(Target("script", (str(folder / "launch.py"), str(folder / "rank.py"))), RecordOptions(out=folder / "run")).directory


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load(recorded(tmp_path_factory.mktemp("ranks"), RANK))


@pytest.mark.any_torch
def test_the_recorded_digest_of_a_killed_rank_is_the_one_made_of_its_log(run):
    logs = [Path(process.log) for process in run.processes if process.rank is not None]
    assert len(logs) == 3 and [(recorded_digest(log, 1 << 20, {}),) for log in logs] == [digests_of(str(log))[0] for log in logs]
    ended = {process.rank: process.finished for process in run.processes if process.rank == 1}
    assert ended == {1: False}


@pytest.mark.any_torch
def test_collectives_of_another_kind_are_told_and_a_mere_break_between_two_is_not(tmp_path):
    directory = recorded(tmp_path, GLOO)
    logs = sorted(directory.glob("*_rank_*.log"))
    assert len(logs) == 2 and [(recorded_digest(log, 1 << 20, {}),) for log in logs] == [digests_of(str(log))[0] for log in logs]
    found = {one.code: one.why for one in report.build(load(directory)).findings}
    assert "graph break" in found["DX07"]
    assert "collective 4 is step: all_reduce" in found["DX08"] and "'max', 'group 0' in Dynamo's graph" in found["DX08"]


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
