"""Runs of a program of several processes: what is taken from a launcher's command, and what its ranks come to together."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynadiag.errors import UsageError
from dynadiag.fix.inside.running import RunJob
from dynadiag.fix.launch import LaunchedRunner, split

# Starts two ranks as torchrun does, without torch.
LAUNCHER = """import os, subprocess, sys
around = {**os.environ, "LOCAL_WORLD_SIZE": "2"}
ranks = [subprocess.Popen([sys.executable, "-u", *sys.argv[1:]], env={**around, "RANK": str(rank)}) for rank in (0, 1)]
sys.exit(max(one.wait() for one in ranks))
"""
TRAIN = """import os, sys
rank = int(os.environ["RANK"])
print(rank, sys.argv[1], os.path.basename(sys.path[0]))
if rank == int(sys.argv[1]):
    VALUE
"""


@pytest.mark.parametrize(
    ("command", "launch", "behind"),
    [
        ("torchrun --nproc-per-node 2 train.py --lr 3", "torchrun --nproc-per-node 2", "train.py --lr 3"),
        ("/a/bin/torchrun --standalone -m job.train 4", "/a/bin/torchrun --standalone", "-m job.train 4"),
        ("python3.12 -m torch.distributed.run train.py -m", "python3.12 -m torch.distributed.run", "train.py -m"),
        ("python train.py -m", "", "train.py -m"),
        ("/a/python -m job.train 4", "", "-m job.train 4"),
    ],
)
def test_the_script_is_found_behind_its_launcher(tmp_path, command, launch, behind):
    (tmp_path / "train.py").write_text("")
    assert split(command.split(), tmp_path) == (tuple(launch.split()), tuple(behind.split()))


@pytest.mark.parametrize("command", ["accelerate launch train.py", "mpirun -n 2 python train.py", "torchrun gone.py"])
def test_another_launcher_and_a_script_that_is_not_there_are_refused(tmp_path, command):
    with pytest.raises(UsageError, match="^[^\n]*(torchrun|no script)[^\n]*$"):
        split(command.split(), tmp_path)


def runner(folder: Path, rank: int) -> LaunchedRunner:
    (folder / "launcher.py").write_text(LAUNCHER)
    (folder / "train.py").write_text(TRAIN.replace("VALUE", "sys.exit(3)"))
    (folder / "runs").mkdir()
    job = RunJob(script=str(folder / "train.py"), arguments=[str(rank)], folder=str(folder), output="")
    return LaunchedRunner(folder / "runs", job, lambda message: {}, [sys.executable, str(folder / "launcher.py")], timeout_s=60)


def test_every_rank_runs_the_new_text_and_tells_how_it_ended(tmp_path):
    launched = runner(tmp_path, 1)
    first = launched.run_program()
    words = f"1 {tmp_path.name}\n"
    assert (first.ended, first.exit_status, first.stdout) == (True, 3, f"0 {words}1 {words}")
    text = {str(tmp_path / "train.py"): TRAIN.replace("VALUE", "print('new', flush=True); raise KeyError")}
    again = launched.run_program(texts=text)
    assert (again.exit_status, again.raised, again.stdout) == (1, "KeyError", f"0 {words}1 {words}new\n")
    assert launched.runs == 2 and again.changes == {"texts": text}


def test_a_rank_that_does_not_end_is_said(tmp_path):
    launched = runner(tmp_path, 0)
    text = {str(tmp_path / "train.py"): TRAIN.replace("VALUE", "print('gone', file=sys.stderr, flush=True); os._exit(4)")}
    ended = launched.run_program(texts=text)
    assert not ended.ended and ended.why is not None and ended.why.startswith("1 of its ranks did not end")
