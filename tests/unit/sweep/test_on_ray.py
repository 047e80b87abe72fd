"""The Ray engine on a cluster of this machine, of whose nodes one is killed: every task has its row once, with its files."""

from __future__ import annotations

from collections import Counter

import pytest

from dynadiag.errors import UsageError
from dynadiag.sweep import rows
from dynadiag.sweep.matrix import read_matrix
from dynadiag.sweep.session import TASKS, SweepOptions, sweep
from tests.unit.sweep.sweep_builders import write_matrix

pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_DISABLE_MEMORY_MONITOR", "1")
    small = {"object_store_memory": 80 << 20, "num_gpus": 0}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    made.add_node(num_cpus=4, **small)
    made.doomed = made.add_node(num_cpus=4, **small)
    yield made
    made.shutdown()


def test_a_lost_node_costs_no_row(tmp_path, cluster):
    words = [f"wait 1.5 {number}" for number in range(16)] + ["raise", "crash"]
    seen = []

    def told(state, left_s):
        if state.rows and not seen:
            cluster.remove_node(cluster.doomed, allow_graceful=False)
        seen.append(len(state.rows))

    options = SweepOptions(workers=64, engine="ray", address=cluster.address)
    state = sweep(read_matrix(write_matrix(tmp_path, words)), tmp_path / "out", options, told)
    assert Counter(row.status for row in state.rows) == {"done": 16, "failed": 1, "crashed": 1}
    assert sorted(row.key for row in rows.read(tmp_path / "out")) == sorted(task.key for task in state.tasks)
    journal = (tmp_path / "out" / rows.JOURNAL).read_bytes()
    assert journal.count(b"\n") == len(state.tasks)
    assert all((tmp_path / "out" / TASKS / row.key / "output.txt").is_file() for row in state.rows)


def test_no_cluster_at_the_address_is_one_line(tmp_path):
    options = SweepOptions(workers=1, engine="ray", address="127.0.0.1:1")
    with pytest.raises(UsageError) as raised:
        sweep(read_matrix(write_matrix(tmp_path, ["fine"])), tmp_path / "out", options, lambda state, left_s: None)
    assert raised.value.message.startswith("no Ray cluster can be used at 127.0.0.1:1")
    assert "\n" not in raised.value.message
