"""What calls would gain without some stretches of the host's time: host and device of the profiled calls played again without them.

A call of the CUDA runtime stands at its place in the host's time and hands work to a stream; a stream does its work in order; a call that
waits (`cudaStreamSynchronize`, a copy to the host) goes on when that work is done. What is changed is played again from there on, as in
Daydream (Zhu, Phanishayee and Pekhimenko, USENIX ATC 2020). The profiler makes the host slower: so much is taken off for each event that
the calls as they were last as long as calls without a profiler did.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dynadiag.model.compiled import Ask, CallSpan, Timeline

# What the profiler takes of the host's time for an event at most, and how near the played period must come to the measured one. Beyond that
# all of the host's time is scaled: the first calls after a compilation may take twice as long as later ones (H200, torch 2.11, 2026-11-28).
_MOST_PER_EVENT_NS = 3_000.0
_SCALES = (0.2, 1.1)
_STRETCHES = (0.8, 1.3)
_NEAR = 0.02
_STEPS = 16
# A device that never idles runs slower under its power limit: an H200 that waited for a third of the time took 172 us for a product, and
# 10 % longer without the waits (2026-11-22, 4096 x 4096 in bfloat16).
_BUSY_SLOWER = 1.1
# What a launch takes of the host's time at least and at most, where no graph shows it: in times of an eager operator's.
_LAUNCHES = (0.5, 1.5)
# Kinds of work (`torch_compat/trace/profile_events.py`): a library's product, convolution or attention; a kernel that Inductor wrote.
_LIBRARY, WRITTEN = 1, 2


@dataclass(frozen=True)
class Cut:
    """Host time that goes: in one call from `begin` to `end`.

    The device's work in it is done all the same, at the price of launches: one for each work of a library, and for every second of others
    in a row, which are fused. Or only a library's is done (`drops`).
    """

    begin: int
    end: int
    drops: bool = False


class ReplayedCalls:
    """The host's and the device's time of some calls in a row; `starts` are the beginnings of the calls on the host."""

    def __init__(self, timeline: Timeline, starts: Sequence[int]) -> None:
        self._starts = sorted(starts)
        first = self._starts[0] if self._starts else 0
        self._asks = [ask for ask in timeline.asks if ask.begin >= first]
        self._launch_ns = _launch_ns(timeline)
        self._per_event, self._scale, self._stretch = 0.0, 1.0, 1.0
        self.period_ns = self.play(())

    def calibrate(self, period_ns: float) -> bool:
        """Fit what was profiled to the period without a profiler; False where the two do not agree.

        First the profiler's cost per event, then how fast the host is, then how fast the device.
        """
        self._fit("_per_event", (0.0, _MOST_PER_EVENT_NS), period_ns)
        self._fit("_scale", _SCALES, period_ns)
        self._fit("_stretch", _STRETCHES, period_ns)
        return self._is_near(period_ns)

    def _is_near(self, period_ns: float) -> bool:
        return abs(self.period_ns / period_ns - 1) <= _NEAR

    def _fit(self, name: str, ends: tuple[float, float], period_ns: float) -> None:
        """The value of one parameter that comes nearest; the period grows with all but the cost per event."""
        if self._is_near(period_ns):
            return
        before = getattr(self, name)
        low, high = ends if name != "_per_event" else ends[::-1]
        for _ in range(_STEPS):
            middle = (low + high) / 2
            setattr(self, name, middle)
            low, high = (low, middle) if self.play(()) > period_ns else (middle, high)
        self.period_ns = self.play(())
        if self.period_ns < period_ns and not self._is_near(period_ns):  # it does not decide how long a call takes
            setattr(self, name, before)
            self.period_ns = self.play(())

    def least_gain_ns(self, cuts: Sequence[Cut]) -> float:
        """How much shorter a call gets at least: the device's clock falls where it never idles any more."""
        return max(0.0, self.period_ns - max(self.play(cuts), min(self.play(cuts, slower=_BUSY_SLOWER), self.period_ns)))

    def most_gain_ns(self, cuts: Sequence[Cut]) -> float:
        """How much shorter a call gets at most."""
        return max(0.0, self.period_ns - self.play(cuts))

    def waiting_ns(self, cuts: Sequence[Cut]) -> float:
        """Host time in these stretches that is spent waiting for the device."""
        ordered = sorted(cuts, key=lambda cut: cut.begin)
        return float(sum(ask.waited for ask in self._asks if ask.waits and _inside(ask.begin, ordered) is not None))

    def play(self, cuts: Sequence[Cut], *, slower: float = 1.0) -> float:
        """Nanoseconds a call when host and device go through all calls again; the first third of them fills the queue."""
        cuts = sorted(cuts, key=lambda cut: cut.begin)
        now = device = 0.0
        free: dict[int, float] = {}
        in_row = 0
        ends: list[float] = []
        starts = iter(self._starts[1:])
        following = next(starts, None)
        before = self._starts[0] if self._starts else 0
        for ask in self._asks:
            while following is not None and ask.begin >= following:
                ends.append(max(now, device))
                following = next(starts, None)
            gap = max(0, ask.begin - before)
            lost = _covered(before, ask.begin, cuts)
            now += max(0.0, gap - lost - ask.events * self._per_event * (1 - lost / gap if gap else 1.0)) * self._scale
            before = max(before, ask.end)
            cut = _inside(ask.begin, cuts)
            if cut is not None and (ask.waits or not ask.work):
                continue
            library = any(kind == _LIBRARY for _, _, kind in ask.work)
            in_row = 0 if cut is None or library else in_row + 1
            for stream, length, kind in ask.work:
                if cut is not None and cut.drops and kind != _LIBRARY:
                    continue
                free[stream] = max(free.get(stream, 0.0), now) + length * slower * self._stretch
                device = max(device, free[stream])
            own = float(ask.own)
            if cut is not None and not library and (cut.drops or in_row % 2 == 0):  # goes with another, or altogether
                own = 0.0
            elif cut is not None:
                own = max(ask.own, self._launch_ns[not cut.drops] - self._per_event)
            now = (max(now, device) if ask.waits else now) + own * self._scale
        lengths = [two - number for number, two in pairwise(ends)][len(ends) // 3 :]
        return statistics.median(lengths) if lengths else 0.0


def _launch_ns(timeline: Timeline) -> tuple[float, float]:
    """What a launch in a graph takes of the host's time: the median of those that follow another in the same graph.

    Without any, a share of the median of all that give work in one call.
    """
    spans = [span for span in timeline.spans if span.kind == "inner"]
    if spans and (took := _steps(timeline.asks, spans)):
        return statistics.median(took), statistics.median(took)
    took = _steps(timeline.asks, [span for span in timeline.spans if span.kind == "call"])
    usual = statistics.median(took) if took else 0.0
    return _LAUNCHES[0] * usual, _LAUNCHES[1] * usual


def _steps(asks: Sequence[Ask], spans: Sequence[CallSpan]) -> list[float]:
    """From each ask to the next in the same span, where neither waits."""
    begins = [span.begin for span in spans]
    found = []
    for last, ask in pairwise(asks):
        place = bisect_right(begins, last.begin) - 1
        if place >= 0 and ask.begin < spans[place].end and not ask.waits and not last.waits:
            found.append(float(ask.end - last.end))
    return found


def _inside(at: int, cuts: Sequence[Cut]) -> Cut | None:
    place = bisect_right(cuts, at, key=lambda cut: cut.begin)
    return cuts[place - 1] if place > 0 and at < cuts[place - 1].end else None


def _covered(begin: int, end: int, cuts: Sequence[Cut]) -> float:
    """How much of a stretch the cuts cover; no two of them overlap."""
    place = max(0, bisect_right(cuts, begin, key=lambda cut: cut.begin) - 1)
    total = 0
    while place < len(cuts) and cuts[place].begin < end:
        total += max(0, min(end, cuts[place].end) - max(begin, cuts[place].begin))
        place += 1
    return float(total)
