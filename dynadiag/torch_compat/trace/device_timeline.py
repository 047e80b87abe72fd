"""What a step would gain without a break: host and device of the profiled calls played again, with the break's time taken out.

A call of the CUDA runtime stands at its place in the host's time and hands work to a stream; a stream does its work in order; a call that
waits (`cudaStreamSynchronize`, a copy to the host) goes on when that work is done. What is changed is played again from there on, as in
Daydream (Zhu, Phanishayee and Pekhimenko, USENIX ATC 2020). The profiler makes the host slower: so much is taken off for each event that
the calls as they were last as long as calls without a profiler did.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Runtime and driver calls that come back only when what was asked for before is done.
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize")
_RUNTIME = ("cuda", "cu", "hip")
# What one event may cost the host at most, and how near the played period must come to the measured one.
_MOST_PER_EVENT_NS = 20_000.0
_NEAR = 0.1
_STEPS = 30
# A device that never idles runs slower under its power limit: an H200 that waited for a third of the time took 172 us for a product, and
# 10 % longer without the waits (2026-11-22, 4096 x 4096 in bfloat16).
_BUSY_SLOWER = 1.1
# How far an end may be from what removing the break by hand gains, as a share of a call: 5.6 % at most for six breaks of four programs that
# this was not written against (H200, torch 2.11, 2026-11-22), all without a backward.
_RESOLUTION = 0.06


@dataclass(frozen=True)
class Event:
    """One profiler event: nanoseconds; `correlation` ties a runtime call to the device work that it started."""

    name: str
    begin: int
    end: int
    correlation: int = 0
    stream: int = 0
    on_device: bool = False


@dataclass(frozen=True)
class Cut:
    """Host time that a break takes: from the end of one graph to the first work of the next, in one call."""

    begin: int
    end: int


@dataclass(frozen=True)
class _Ask:
    """A runtime call: host time before it (less `events` times the profiler's cost), its own time, and the device work that it starts."""

    at: int
    gap: float
    events: int
    own: float
    waits: bool
    work: tuple[tuple[int, float], ...]
    name: str


class Timeline:
    """The host's and the device's time of some calls in a row; `starts` are the beginnings of the calls on the host."""

    def __init__(self, events: Sequence[Event], starts: Sequence[int]) -> None:
        self._events = sorted((event for event in events if not event.on_device), key=lambda event: event.begin)
        device: dict[int, list[Event]] = {}
        for event in events:
            if event.on_device and event.correlation:
                device.setdefault(event.correlation, []).append(event)
        self._starts = sorted(starts)
        self.on_device = bool(device)
        self._between = _usual_gap([event for works in device.values() for event in works])
        self._asks = self._read(device)
        self._per_event = 0.0
        self.period_ns = self.play(())

    def calibrate(self, period_ns: float) -> bool:
        """Fit the profiler's cost per event to the period without it; False where no cost makes the two agree."""
        if self.period_ns <= period_ns * (1 + _NEAR / 4):
            return self.period_ns >= period_ns * (1 - _NEAR)
        low, high = 0.0, _MOST_PER_EVENT_NS
        for _ in range(_STEPS):
            self._per_event = (low + high) / 2
            low, high = (self._per_event, high) if self.play(()) > period_ns else (low, self._per_event)
        self.period_ns = self.play(())
        return abs(self.period_ns / period_ns - 1) <= _NEAR

    def gain_ns(self, least: Sequence[Cut], most: Sequence[Cut]) -> tuple[float, float]:
        """How much shorter a call is without these stretches of host time: at least and at most.

        At least: without `least`, the device still does what was asked for in them, and its clock falls where it never idles any more. At
        most: without `most`, and without that work.
        """
        low = self.period_ns - max(self.play(least), min(self.play(least, slower=_BUSY_SLOWER), self.period_ns))
        high = self.period_ns - self.play(most, keep_work=False)
        return max(0.0, min(low, high)), max(0.0, high)

    @property
    def error_ns(self) -> float:
        """How far either end of `gain_ns` may be off."""
        return self.period_ns * _RESOLUTION

    def waiting_ns(self, cuts: Sequence[Cut]) -> float:
        """Host time in these stretches that is spent waiting for the device."""
        return sum(self._waited.get(ask.at, 0.0) for ask in self._asks if _inside(ask.at, cuts))

    def _read(self, device: Mapping[int, Sequence[Event]]) -> list[_Ask]:
        self._waited: dict[int, float] = {}
        asks: list[_Ask] = []
        begins = [event.begin for event in self._events]
        last = self._starts[0] if self._starts else 0
        done = 0
        for event in (one for one in self._events if one.name.startswith(_RUNTIME) and one.begin >= last):
            work = device.get(event.correlation, ())
            mine = max((one.end for one in work), default=0)
            waits = event.name.startswith(_WAITS) or (bool(work) and mine <= event.end)
            done = max(done, mine)
            until = max((end for end in (done,) if end <= event.end), default=0)
            waited = max(0, until - event.begin) if waits else 0
            self._waited[event.begin] = float(waited)
            between = bisect_right(begins, event.begin) - bisect_right(begins, last)
            pieces = tuple((one.stream, float(one.end - one.begin)) for one in work)
            gap, own = float(max(0, event.begin - last)), float(event.end - event.begin - waited)
            asks.append(_Ask(event.begin, gap, max(1, between), own, waits, pieces, event.name))
            last = max(last, event.end)
        return asks

    def play(self, cuts: Sequence[Cut], *, keep_work: bool = True, slower: float = 1.0) -> float:
        """Nanoseconds a call when host and device go through all calls again; the first third of them fills the queue."""
        cuts = sorted(cuts, key=lambda cut: cut.begin)
        now = device = 0.0
        free: dict[int, float] = {}
        ends: list[float] = []
        starts = iter(self._starts[1:])
        following = next(starts, None)
        before = self._starts[0] if self._starts else 0
        for ask in self._asks:
            while following is not None and ask.at >= following:
                ends.append(max(now, device))
                following = next(starts, None)
            lost = _covered(before, ask.at, cuts)
            share = 1 - lost / ask.gap if ask.gap else 1.0
            now += max(0.0, ask.gap - lost - ask.events * self._per_event * share)
            cut = _inside(ask.at, cuts)
            before = int(ask.at + ask.own + self._waited[ask.at])
            if cut and not (keep_work and ask.work and not ask.waits):
                continue
            for stream, length in ask.work:
                free[stream] = max(free.get(stream, 0.0) + self._between, now) + length * slower
                device = max(device, free[stream])
            now = max(now, device) + ask.own if ask.waits else now + ask.own
        lengths = [two - one for one, two in zip(ends, ends[1:])][len(ends) // 3 :]
        return statistics.median(lengths) if lengths else 0.0


def _usual_gap(works: Sequence[Event]) -> float:
    """Nanoseconds between two works that follow each other at once: a quarter of all gaps are shorter."""
    ordered = sorted(works, key=lambda work: work.begin)
    gaps = sorted(max(0, two.begin - one.end) for one, two in zip(ordered, ordered[1:]))
    return float(min(gaps[len(gaps) // 4], 5_000)) if gaps else 0.0


def _inside(at: int, cuts: Sequence[Cut]) -> bool:
    place = bisect_right(cuts, at, key=lambda cut: cut.begin)
    return place > 0 and at < cuts[place - 1].end


def _covered(begin: int, end: int, cuts: Sequence[Cut]) -> float:
    """How much of a stretch the cuts cover."""
    place = max(0, bisect_right(cuts, begin, key=lambda cut: cut.begin) - 1)
    total = 0
    while place < len(cuts) and cuts[place].begin < end:
        total += max(0, min(end, cuts[place].end) - max(begin, cuts[place].begin))
        place += 1
    return float(total)
