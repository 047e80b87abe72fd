"""Waiting until the threads of this process sleep, before another process is timed.

After a parallel region OpenMP's threads go on spinning (libgomp: 300,000 times, 4 to 8 ms on one machine), so that the next region begins
sooner. A block of 20 ms that another process times meanwhile has those cores taken away: its threads wait for each other at each barrier.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

_TASKS = Path("/proc/self/task")
_NAP_S = 0.0005
_LONGEST_S = 0.01


def come_to_rest(tasks: Path = _TASKS) -> float:
    """Seconds that it took until every other thread of this process slept, 0.01 at most; where the system does not say, none."""
    began = time.perf_counter()
    while _another_runs(tasks) and time.perf_counter() - began < _LONGEST_S:
        time.sleep(_NAP_S)
    return time.perf_counter() - began


def _another_runs(tasks: Path) -> bool:
    """From the state of each thread, behind its name in brackets (proc_pid_stat(5))."""
    own = str(threading.get_native_id())
    try:
        threads = list(tasks.iterdir())
    except OSError:
        return False
    return any(_state(thread / "stat") == "R" for thread in threads if thread.name != own)


def _state(stat: Path) -> str:
    try:
        text = stat.read_text("utf-8", "replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].strip()[:1]
