"""The Ray engine on a cluster of this machine, of whose nodes one is killed: every task has its row once."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.errors import UsageError
from dynadiag.sweep.matrix import read_matrix
from dynadiag.sweep.session import SweepOptions, sweep
from tests.unit.sweep.sweep_builders import write_matrix

STUDY = Path(__file__).parents[3] / "benchmarks" / "sweep_study.py"


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_a_lost_node_costs_no_row():
    # In a process of its own: a process that has used Ray 2.60 gives its forked children a crash at their end.
    command = [sys.executable, str(STUDY), "--engine", "ray", "--tasks", "20", "--timeout", "4"]
    # Ray calls a node dead after five questions without an answer, of which it asks one every three seconds.
    environment = {**os.environ, "RAY_health_check_period_ms": "300"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)  # and not a word of Ray's about its node
    assert (said["without_row"], said["with_two"], sum(said["rows"].values())) == (0, 0, 20)
    assert said["rows"]["done"] > 0


def test_no_cluster_at_the_address_is_one_line(tmp_path):
    options = SweepOptions(workers=1, engine="ray", address="127.0.0.1:1")
    with pytest.raises(UsageError) as raised:
        sweep(read_matrix(write_matrix(tmp_path, ["fine"])), tmp_path / "out", options, lambda state, left_s: None)
    assert raised.value.message.startswith("no Ray cluster can be used at 127.0.0.1:1")
    assert "\n" not in raised.value.message
