"""What a sweep costs, and what it loses: `python benchmarks/sweep_study.py [--engine ray] [--tasks 300] [--timeout 60]`.

Tasks that sleep, of which 5 % crash and 2 % hang. The driver is killed with SIGKILL half-way and started again; with Ray there are two
worker nodes and one is killed instead. Printed: rows by status, how many have another status than the injected one, keys without a row or
with two, how many tasks ran twice, the time that a task costs beyond its own process, and the efficiency from 2 to 8 workers. On a busy
machine a small `--timeout` ends tasks that do not hang.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "cli")]

from dynadiag.sweep import rows  # noqa: E402
from dynadiag.sweep.matrix import read_matrix  # noqa: E402
from dynadiag.sweep.session import SweepOptions, sweep  # noqa: E402
from dynadiag.sweep.tasks import tasks_of  # noqa: E402

PROGRAM = """import os, sys, time
number, seconds, log = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
with open(log, "a") as stream:
    stream.write(f"{number}\\n")
time.sleep(seconds)
if number % 20 == 7:
    os.kill(os.getpid(), 11)
if number % 50 == 9:
    time.sleep(1000)
"""


def injected(number: int) -> str:
    """The status that the task of this number has to have."""
    return "crashed" if number % 20 == 7 else "timeout" if number % 50 == 9 else "done"


def matrix(folder: Path, tasks: int, seconds: float, timeout_s: float) -> Path:
    """A matrix of programs that sleep; each notes that it has begun."""
    (folder / "p.py").write_text(PROGRAM)
    scripts = ", ".join(f'"p.py {number} {seconds} {folder / "begun"}"' for number in range(tasks))
    (folder / "m.toml").write_text(f'verbs = ["run"]\ntimeout-s = {timeout_s}\nmemory-gb = 1\n[subjects]\nscripts = [{scripts}]\n')
    return folder / "m.toml"


def lost(folder: Path, given: Path) -> dict[str, object]:
    """What the journal says: every key once?"""
    found = [json.loads(line)["key"] for line in (folder / rows.JOURNAL).read_text().splitlines()]
    keys = {task.key for task in tasks_of(read_matrix(given))}
    begun = Counter((given.parent / "begun").read_text().split())
    return {
        "rows": dict(rows.statuses(rows.read(folder))),
        "other_status": sum(row.status != injected(int(row.subject.split()[1])) for row in rows.read(folder)),
        "without_row": len(keys - set(found)),
        "with_two": len(found) - len(set(found)),
        "ran_twice": sum(count > 1 for count in begun.values()),
    }


def killed_driver(folder: Path, tasks: int, timeout_s: float) -> dict[str, object]:
    """Half-way the driver is killed, and the same command continues the sweep."""
    given, out = matrix(folder, tasks, 0.3, timeout_s), folder / "out"
    command = [sys.executable, "-m", "dynadiag", "sweep", "--workers", "8", "--out", str(out), "--fail-on", "never", str(given)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "cli")])}
    driver = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (out / rows.JOURNAL).exists() or len(rows.read(out)) < tasks // 2:
        time.sleep(0.1)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    before = len(rows.read(out))
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {"rows_at_kill": before, **lost(out, given)}


def killed_node(folder: Path, tasks: int, timeout_s: float) -> dict[str, object]:
    """One of two worker nodes of Ray is killed when a third of the rows is there."""
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80 << 20, "num_gpus": 0}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    cluster.add_node(num_cpus=4, **small)
    doomed = cluster.add_node(num_cpus=4, **small)
    given, out = matrix(folder, tasks, 0.3, timeout_s), folder / "out"
    reached = threading.Event()

    def kill() -> None:
        reached.wait()
        cluster.remove_node(doomed, allow_graceful=False)

    threading.Thread(target=kill, daemon=True).start()
    options = SweepOptions(workers=64, engine="ray", address=cluster.address)
    sweep(read_matrix(given), out, options, lambda state, left_s: reached.set() if len(state.rows) >= tasks // 3 else None)
    cluster.shutdown()
    return lost(out, given)


def overhead(folder: Path, tasks: int) -> dict[str, float]:
    """Milliseconds a task costs beyond the time between the start and the end of its process, one task at a time."""
    given = matrix(folder, tasks, 0.0, 60.0)
    given.write_text(given.read_text().replace("p.py 7 ", "p.py 0 ").replace("p.py 9 ", "p.py 1 "))
    cpu = resource.getrusage(resource.RUSAGE_SELF)
    begun = time.monotonic()
    state = sweep(read_matrix(given), folder / "out", SweepOptions(workers=1), lambda state, left_s: None)
    wall_s = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_SELF)
    own_s = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
    count = len(state.rows)
    return {
        "tasks": count,
        "overhead_ms": 1000 * (wall_s - sum(row.wall_s or 0 for row in state.rows)) / count,
        "driver_cpu_ms": 1000 * own_s / count,
    }


def efficiency(folder: Path, tasks: int) -> dict[str, float]:
    """How many times faster 8 workers are than 2, as a share of four times."""
    took = {}
    for workers in (2, 8):
        there = folder / str(workers)
        there.mkdir()
        given = matrix(there, tasks, 1.0, 60.0)
        (there / "p.py").write_text(PROGRAM.partition("if number % 20")[0])
        begun = time.monotonic()
        sweep(read_matrix(given), there / "out", SweepOptions(workers=workers), lambda state, left_s: None)
        took[workers] = time.monotonic() - begun
    return {"seconds_2": took[2], "seconds_8": took[8], "efficiency": took[2] / took[8] / 4}


def main() -> None:
    """The study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one task")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for what in ("lost", "overhead", "efficiency"):
            (Path(name) / what).mkdir()
        study = killed_driver if asked.engine == "local" else killed_node
        print(json.dumps({"engine": asked.engine, **study(Path(name) / "lost", asked.tasks, asked.timeout)}))
        if asked.engine == "local":
            print(json.dumps(overhead(Path(name) / "overhead", 40)))
            print(json.dumps(efficiency(Path(name) / "efficiency", 48)))


if __name__ == "__main__":
    main()
