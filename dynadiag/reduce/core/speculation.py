"""Questions judged ahead of time, in children beside the one that is asked about. What is adopted never depends on how many there are.

The search names the questions that are likely to come next; a free slot starts one. Only when the search asks is the answer used, so the
answers are used in one order whatever the width.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from dynadiag.children.forked import Child, ChildReport, Tell, listen, start_forked
from dynadiag.reduce.core.reducer import Candidate

_KEPT = 200


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """`width` children at most run at a time, each for `timeout_s` of its own; with several `gpus` (numbers of CUDA), one a slot."""

    width: int = 1
    timeout_s: float = 60.0
    gpus: tuple[str, ...] = ()

    @property
    def deadline_s(self) -> float:
        """More children than cores take their turns: then each is given that much more time."""
        return self.timeout_s * max(1, -(-self.width // usable_cores()))


class Pool(Generic[Candidate]):
    """Children by the key of the candidate that they run."""

    def __init__(self, work: Callable[[Candidate], Callable[[Tell], None]], options: PoolOptions) -> None:
        self._work = work
        self._options = options
        self._running: dict[str, tuple[int, Child]] = {}
        self._done: dict[str, ChildReport] = {}
        self.wasted_cpu_s = 0.0
        self.wasted = 0

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """Start what is not running yet, in this order, as far as there is room; what is not among them any more gives up its slot."""
        wanted = {item.key for item in candidates}
        for key in [key for key in self._running if key not in wanted]:
            self._give_up(key)
        for candidate in candidates:
            self.begin(candidate)

    def begin(self, candidate: Candidate) -> None:
        """Start a candidate that is not known yet, if there is room."""
        known = candidate.key in self._running or candidate.key in self._done
        if len(self._running) < self._options.width and not known:
            self._start(candidate)

    def report(self, candidate: Candidate) -> ChildReport:
        """The report on a candidate: waits for it, started before or now."""
        if candidate.key in self._done:
            return self._done.pop(candidate.key)
        if candidate.key not in self._running:
            self._start(candidate)
        _, child = self._running[candidate.key]
        try:
            return child.wait([other for _, other in self._running.values() if other is not child])
        finally:
            del self._running[candidate.key]

    def close(self) -> None:
        """End all children. What nobody asked about was in vain."""
        for key in list(self._running):
            self._give_up(key)
        for report in self._done.values():
            self._count(report)
        self._done.clear()

    def _start(self, candidate: Candidate) -> None:
        taken = {slot for slot, _ in self._running.values()}
        slot = next(number for number in range(len(taken) + 1) if number not in taken)
        gpus = self._options.gpus
        own = {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}
        self._running[candidate.key] = slot, start_forked(self._work(candidate), timeout_s=self._options.deadline_s, environment=own)

    def _give_up(self, key: str) -> None:
        """End a child; one that has told all by now is kept, the search may come back to it."""
        _, child = self._running.pop(key)
        while not child.told and listen([child], until=0.0):
            pass
        told, report = child.told, child.end()
        if told and len(self._done) < _KEPT:
            self._done[key] = report
        else:
            self._count(report)

    def _count(self, report: ChildReport) -> None:
        self.wasted += 1
        self.wasted_cpu_s += report.cpu_s


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_width() -> int:
    """Half the cores, at most four: what is judged ahead in vain costs CPU time."""
    return max(1, min(4, usable_cores() // 2))
