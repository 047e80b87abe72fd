"""What a compiled call would gain without graph breaks, from the timeline of profiled calls: at least and at most."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import takewhile

from dynadiag.facts.gaps import Gap, find_gaps
from dynadiag.facts.replayed_calls import WRITTEN, Cut, ReplayedCalls
from dynadiag.model.compiled import Ask, Node, Timeline

# How far an end may be from what removing the break by hand gains, as a share of a call.
_RESOLUTION = 0.06
_MORE = 1.15
# Kernels that compute only what a break reads, at most: both steps of a reduction (`if not x.isfinite().all()`, H200, torch 2.11).
_MOST_READ = 2


class BreakGains:
    """The gaps of some profiled calls, and what the calls would gain without some of them."""

    def __init__(self, timeline: Timeline, period_ns: float | None = None) -> None:
        self._timeline = timeline
        self._period_ns = period_ns or timeline.period_ns
        self.gaps = find_gaps(timeline)
        self._begins = [ask.begin for ask in timeline.asks]

    @property
    def on_device(self) -> bool:
        """Whether a device did anything."""
        return any(ask.work for ask in self._timeline.asks)

    @cached_property
    def _calls(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for span in self._timeline.spans:
            if span.kind == "call":
                found.setdefault(span.name, []).append(span.begin)
        return found

    @cached_property
    def _replayed(self) -> ReplayedCalls:
        starter = f"{self._timeline.starter} "
        return ReplayedCalls(self._timeline, next((begins for name, begins in self._calls.items() if name.startswith(starter)), ()))

    @cached_property
    def why_not(self) -> str:
        """Why nothing can be said of a call's length without a break; "" where it can."""
        period_ns = self._period_ns
        if period_ns is None:
            return self._timeline.untimed or "no call was timed without a profiler"
        if self._replayed.calibrate(period_ns):
            return ""
        played, timed = self._replayed.period_ns / 1e6, period_ns / 1e6
        return f"the replayed profile takes {played:.3f} ms per call, a call without a profiler {timed:.3f} ms"

    @property
    def call_ns(self) -> float:
        """How long a call of the function takes that was timed without a profiler."""
        return self._replayed.period_ns

    def is_starter(self, gaps: Collection[Gap]) -> bool:
        """Whether these gaps are in calls of that function."""
        return all(gap.function.startswith(f"{self._timeline.starter} ") for gap in gaps)

    def host_ns(self, gaps: Collection[Gap], *, of: Collection[Gap] = ()) -> float:
        """The host's time in these gaps, in a call of their function, or of that which the gaps `of` are in."""
        return sum(gap.end - gap.begin for gap in gaps) / self._count(of or gaps)

    def waiting_ns(self, gaps: Collection[Gap]) -> float:
        """How much of it waits for the device."""
        return self._replayed.waiting_ns([Cut(gap.begin, gap.end) for gap in gaps]) / self._count(gaps)

    def gain(self, certain: Sequence[Gap], possible: Sequence[Gap]) -> tuple[float, float]:
        """Nanoseconds a call: without the `certain` gaps at least, and without all `possible` ones at most. `why_not` must be empty."""
        replayed = self._replayed
        per_call = len(next((begins for name, begins in self._calls.items() if name.startswith(f"{self._timeline.starter} ")), ()))
        low = replayed.least_gain_ns(self._cuts(certain, wrappers=False)) if certain else 0.0
        high = replayed.most_gain_ns(self._cuts(possible, wrappers=True))
        calls, error = per_call / self._count(possible), replayed.period_ns * _RESOLUTION
        high = min(high * _MORE + error, replayed.period_ns)
        return max(0.0, min(low, high) - error) * calls, high * calls

    def _count(self, gaps: Collection[Gap]) -> int:
        """How often the function was called that has most of these gaps."""
        spent: dict[str, int] = {}
        for gap in gaps:
            spent[gap.function] = spent.get(gap.function, 0) + gap.end - gap.begin
        name = max(spent, key=lambda text: spent[text], default="")
        return max(1, len(self._calls.get(name, ())))

    def _cuts(self, gaps: Sequence[Gap], *, wrappers: bool) -> list[Cut]:
        """The gaps; with `wrappers` also what joining graphs may save, and the nodes that operators in the gaps leave to the backward."""
        cuts = [self._widest(gap) if wrappers else Cut(gap.begin, gap.end) for gap in gaps]
        begins = [gap.begin for gap in gaps]
        joined = sorted((gap.graphs[1].begin, gap.graphs[1].end) for gap in gaps if None not in gap.graphs and gap.graphs[1] is not None)
        for node in self._timeline.nodes if wrappers else ():
            if node.made_at is None:
                continue
            place = bisect_right(begins, node.made_at) - 1
            if not node.compiled and place >= 0 and node.made_at < gaps[place].end:
                cuts.append(Cut(node.begin, node.end, drops=True))
            elif node.compiled:
                place = bisect_right(joined, (node.made_at, node.made_at)) - 1
                if place >= 0 and node.made_at < joined[place][1]:
                    cuts.extend(self._around(node))
        return _merged(cuts)

    def _around(self, node: Node) -> list[Cut]:
        """What stands around the work of a node's backward graph, and the last of its kernels if that may be fused with the next."""
        asks = self._asks_in(node.begin, node.end)
        if not asks:
            return [Cut(node.begin, node.end, drops=True)]
        last = asks[-1].begin if len(asks) > 1 and _is_written(asks[-1]) else asks[-1].end
        return [Cut(node.begin, asks[0].begin, drops=True), Cut(last, node.end, drops=True)]

    def _widest(self, gap: Gap) -> Cut:
        """The gap from the last work of the graph before it to the first of the next, and kernels that Inductor wrote on both sides.

        The last ones before it may compute only what the break reads (a reduction takes two). Of the others, and of those behind it, the
        fewer may be fused with those on the other side.
        """
        before, after = gap.graphs
        if before is None or after is None:
            return Cut(gap.inner_begin, gap.inner_end, drops=True)
        tail, head = self._asks_in(before.begin, before.end), self._asks_in(after.begin, after.end)
        behind = list(takewhile(_is_written, head))
        leading = list(takewhile(_is_written, reversed(tail)))  # the last one first
        most = -1
        begin, end = (tail[-1].end if tail else gap.inner_begin), (head[0].begin if head else gap.inner_end)
        cut = Cut(begin, end, drops=True)
        for read in range(min(_MOST_READ, len(leading)) + 1):
            count = min(len(leading) - read, len(behind))
            fused = [_spent(leading[read : read + count]), _spent(behind[:count])]
            saved = _spent(leading[:read]) + min(fused)
            gone = read + (count if fused[0] <= fused[1] else 0)
            if saved > most:
                most = saved
                last = behind[count - 1].end if count and fused[0] > fused[1] else end
                cut = Cut(leading[gone - 1].begin if gone else begin, last, drops=True)
        return cut

    def _asks_in(self, begin: int, end: int) -> Sequence[Ask]:
        """What gives work to the device between them."""
        asks = self._timeline.asks[bisect_left(self._begins, begin) : bisect_left(self._begins, end)]
        return [ask for ask in asks if ask.work]


def _spent(asks: Sequence[Ask]) -> int:
    return sum(length for ask in asks for _, length, _ in ask.work)


def _is_written(ask: Ask) -> bool:
    return all(kind == WRITTEN for _, _, kind in ask.work)


def _merged(cuts: Sequence[Cut]) -> list[Cut]:
    """In order, and none overlaps another."""
    found: list[Cut] = []
    for cut in sorted(cuts, key=lambda item: (item.begin, -item.end)):
        begin = max(cut.begin, found[-1].end) if found else cut.begin
        if begin < cut.end:
            found.append(Cut(begin, cut.end, drops=cut.drops))
    return found
