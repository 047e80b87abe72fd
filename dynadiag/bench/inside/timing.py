"""Blocks of calls between two synchronisations, and warming up until nothing is compiled any more."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynadiag.torch_compat.dynamo.counters import compile_counters

MIN_BLOCK_S = 0.02
# A block may come out a little shorter than its first estimate said.
_BLOCK_MARGIN = 1.15
_STILL_CALLS = 3
WARM_UP_S = 0.3
_WARM_UP_LIMIT_S = 60.0
# The first one or two of them compile, which alone may take longer than the limit.
_LEAST_CALLS = 8
_LEAD_IN_SHARE = 0.04


_TASKS = Path("/proc/self/task")
_NAP_S = 0.0005
_LONGEST_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """How many calls it took until the counters stood still (`still` is False when they never did) and seconds per call after that."""

    calls: int
    still: bool
    call_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block: calls, wall seconds, seconds between the CUDA events around it (None without CUDA), and whether something was compiled.

    `rest_s` is how long this process's other threads went on running after it.
    """

    calls: int
    wall_s: float
    device_s: float | None
    late: bool
    rest_s: float


class StepTimer:
    """Times steps that somebody else makes, one at each `yield`; `cuda` says whether there is a queue to wait for."""

    def __init__(self, *, cuda: bool) -> None:
        self._cuda = cuda

    def wait(self) -> None:
        """Until the device has done all that was asked of it."""
        if self._cuda:
            import torch

            torch.cuda.synchronize()

    def warm_up(self) -> Generator[None, None, WarmUp]:
        """Until three steps in a row and 0.3 seconds have changed no counter, for a minute or eight steps at most."""
        began = time.perf_counter()
        calls, still_since, still_calls, counted = 0, began, 0, compile_counters()
        while True:
            yield
            self.wait()
            calls, now, counted_now = calls + 1, time.perf_counter(), compile_counters()
            if counted_now != counted:
                counted, still_since, still_calls = counted_now, now, 0
            else:
                still_calls += 1
            still = still_calls >= _STILL_CALLS and now - still_since >= WARM_UP_S
            if still or (calls >= _LEAST_CALLS and now - began > _WARM_UP_LIMIT_S):
                return WarmUp(calls=calls, still=still, call_s=(now - still_since) / max(1, still_calls))

    def block(self, calls: int) -> Generator[None, None, Block]:
        """So many steps as one block."""
        before = compile_counters()
        self.wait()
        started, ended = self.events()
        began = time.perf_counter()
        if started is not None:
            started.record()
        for _ in range(calls):
            yield
        return self.finish(calls, began, started, ended, before)

    def finish(self, calls: int, began: float, started: Any, ended: Any, before: Any) -> Block:
        """The block that began at `began`, between these two events; then wait for threads that would disturb the next process."""
        if ended is not None:
            ended.record()
        self.wait()
        wall_s = time.perf_counter() - began
        device_s = None if started is None else started.elapsed_time(ended) / 1e3
        # With CUDA the host's threads compute nothing, and asking for each would cost what it saves.
        rest_s = 0.0 if self._cuda else come_to_rest()
        return Block(calls=calls, wall_s=wall_s, device_s=device_s, late=compile_counters() != before, rest_s=rest_s)

    def events(self) -> tuple[Any, Any]:
        """Two CUDA events; None without CUDA."""
        if not self._cuda:
            return None, None
        import torch

        event: Any = torch.cuda.Event
        return event(enable_timing=True), event(enable_timing=True)


class Timer:
    """Times `call` on one device; `cuda` says whether there is a queue to wait for."""

    def __init__(self, call: Callable[[], Any], *, cuda: bool) -> None:
        self._call = call
        self._steps = StepTimer(cuda=cuda)
        self._lead_in = False

    def wait(self) -> None:
        """Until the device has done all that was asked of it."""
        self._steps.wait()

    def warm_up(self) -> WarmUp:
        """Call until three calls in a row and 0.3 seconds have changed no counter, for a minute or eight calls at most."""
        steps = self._steps.warm_up()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                warmed: WarmUp = end.value
                return replace(warmed, call_s=self._estimate(warmed.call_s))
            self._call()

    def _estimate(self, guess_s: float) -> float:
        """Seconds per call without waiting after each."""
        calls = self.calls_for(guess_s)
        seconds = min(self.block(calls).wall_s / calls for _ in range(3))
        self._lead_in = seconds < _LEAD_IN_SHARE * MIN_BLOCK_S
        return seconds

    @staticmethod
    def calls_for(call_s: float) -> int:
        """How many calls make a block of at least 20 ms."""
        return max(1, math.ceil(_BLOCK_MARGIN * MIN_BLOCK_S / max(call_s, 1e-9)))

    def block(self, calls: int) -> Block:
        """Time `calls` calls as one. Where a call is short, one goes before the clock starts: another arm has just used the caches."""
        before = compile_counters()
        if self._lead_in:
            self._call()
        self.wait()
        started, ended = self._steps.events()
        began = time.perf_counter()
        if started is not None:
            started.record()
        for _ in range(calls):
            self._call()
        return self._steps.finish(calls, began, started, ended, before)


def come_to_rest(tasks: Path = _TASKS) -> float:
    """Seconds that it took until every other thread of this process slept, 0.01 at most; where the system does not say, none.

    After a parallel region OpenMP's threads go on spinning (libgomp: 300,000 times, 4 to 8 ms on one machine). A block of 20 ms that
    another process times meanwhile has those cores taken away: its threads wait for each other at each barrier.
    """
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
