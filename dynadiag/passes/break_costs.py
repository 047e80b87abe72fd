"""What a graph break costs at run time, from the calls that `--cost` profiled, and what a step would gain without it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from dynadiag.errors import DynadiagError
from dynadiag.facts.gaps import OUTSIDE, Gap, find_gaps
from dynadiag.facts.lookups import costs_of
from dynadiag.facts.replayed_calls import WRITTEN, Cut, ReplayedCalls
from dynadiag.facts.user_frames import of_last_run
from dynadiag.facts.wording import unique
from dynadiag.model.compiled import Ask, Node, Timeline
from dynadiag.model.report import Certainty, Cost
from dynadiag.model.run import RegionCost, Run
from dynadiag.trace.timelines import read_timeline

_US_PER_MS = 1e3
_NS_PER_MS = 1e6
# Calls are played again for so many breaks of a run at most, each in a second or less.
_MOST_PLAYED = 40
# Ends that are closer are at most a quarter off any value between them.
_CLOSE = 1.5


def break_cost(run: Run, frames: Sequence[str], resumed: Sequence[str]) -> Cost | None:
    """Milliseconds that a call of the compiled function spends on a break, or None when nothing was profiled there.

    With a device in the profile it is what the call would gain without the break, at least and at most. Otherwise it is the host's time
    between the graphs around it. `frames` are those that it ended, `resumed` the functions that go on behind it.
    """
    for process in _priced_processes(run):
        certain, possible = process.gaps_of(frames)
        if possible:
            return process.cost(certain, possible)
    return None if _priced_processes(run) else _cost_by_region(run, frames, resumed)


@dataclass
class _PricedProcess:
    """The profiled calls of one process, and which frames are behind the regions in them."""

    gains: BreakGains
    frames: dict[str, str]
    broke: Set[str]
    given_up: Set[str]
    how: str
    rank: str = ""
    played: int = 0

    def gaps_of(self, frames: Sequence[str]) -> tuple[list[Gap], list[Gap]]:
        """The gaps that are there only because of a break of these frames, and all that have to do with it."""
        mine = set(frames)
        only = not self.given_up - mine
        causes = mine | ({OUTSIDE} if self.given_up & mine else set())
        certain, possible = [], []
        for gap in self.gains.gaps:
            found = {self.frames.get(name, "?") for name in gap.regions if name != OUTSIDE} & self.broke
            if OUTSIDE in gap.regions and self.given_up:
                found.add(OUTSIDE)
            if found & causes:
                possible.append(gap)
                if found <= causes and (only or OUTSIDE not in found):
                    certain.append(gap)
        return certain, possible

    def cost(self, certain: Sequence[Gap], possible: Sequence[Gap]) -> Cost:
        """The cost of a break that is behind these gaps."""
        gains = self.gains
        host = gains.host_ns(possible)
        if not gains.on_device:
            least = gains.host_ns(certain, of=possible)
            return _between(least, host, "measured", f"host time, {self.how}", exact=least == host)
        waiting = min(host, gains.waiting_ns(possible))
        parts = f"{self.rank}host time {host / _NS_PER_MS:.3f} ms, {waiting / _NS_PER_MS:.3f} ms of it waiting for the device"
        why_not = gains.why_not or ("only the first breaks are played again" if self.played >= _MOST_PLAYED else "")
        if why_not:
            remark = f"host time without waiting; {parts}; the gain per call is not known ({why_not}); {self.how}"
            return _between(host - waiting, host - waiting, "measured", remark, exact=True)
        self.played += 1
        low, high = gains.gain(certain, possible)
        of = f"of {gains.call_ns / _NS_PER_MS:.3g} ms, " if gains.is_starter(possible) else ""
        known = "" if high <= _CLOSE * low else "not known more closely until the break is gone; "
        return _between(low, high, "derived", f"{of}by replaying host and device without the break; {known}{parts}")


def _between(low_ns: float, high_ns: float, basis: Certainty, remark: str, *, exact: bool = False) -> Cost:
    low, high = (round(end / _NS_PER_MS, 4) for end in (low_ns, high_ns))
    ends = (None, None) if exact else (low, high)
    return Cost(value=low, unit="ms per call", basis=basis, remark=remark, low=ends[0], high=ends[1])


@of_last_run
def _priced_processes(run: Run) -> Sequence[_PricedProcess]:
    """The processes whose calls were profiled."""
    found = []
    # Each rank has calls of its own: what is shown is that of one.
    ranks = {process.index: f"on rank {process.rank}; " for process in run.processes if process.rank is not None}
    for profile in run.profiles:
        try:
            timeline = read_timeline(profile.timeline)
        except DynadiagError:
            continue
        if timeline.too_long or not timeline.spans:
            continue
        costs = [cost for cost in run.costs if cost.process == profile.process]
        broke = {event.frame for event in run.breaks}
        given_up = {event.frame for event in run.breaks if event.skips_frame}
        given_up |= {name for name in broke if (frame := run.frame(name)) and frame.outcome == "skipped" and not frame.broken_by_error}
        found.append(
            _PricedProcess(
                gains=BreakGains(timeline, profile.period_ns),
                frames={cost.region: cost.frame for cost in costs if cost.frame},
                broke=broke,
                given_up=given_up,
                how=timeline.how,
                rank=ranks.get(profile.process, ""),
            )
        )
    return found


def _cost_by_region(run: Run, frames: Sequence[str], resumed: Sequence[str]) -> Cost | None:
    """Of a recording without a timeline: host time of the code behind the graph, and of entering the function that goes on."""
    after, before = costs_of(resumed, run), costs_of(frames, run)
    parts = [_mean_us(before, lambda cost: cost.between_us), _mean_us(after, _entry_us)]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    how = next(cost.how for cost in (*before, *after))
    missing = "" if len(known) == len(parts) else "; only one side of the break was profiled"
    return Cost(value=round(sum(known) / _US_PER_MS, 4), unit="ms per call", basis="measured", remark=f"host time, {how}{missing}")


def _entry_us(cost: RegionCost) -> float | None:
    parts = [part for part in (cost.lookup_us, cost.pregraph_us) if part is not None]
    return sum(parts) if parts else None


def _mean_us(costs: Iterable[RegionCost], of: Callable[[RegionCost], float | None]) -> float | None:
    """The mean over all calls: a call goes through one compilation of one frame."""
    known = [(cost.calls, value) for cost in costs if (value := of(cost)) is not None and cost.calls > 0]
    calls = sum(count for count, _ in known)
    return sum(count * value for count, value in known) / calls if calls else None


def cost_notes(run: Run) -> tuple[str, ...]:
    """Why `--cost` measured nothing in any process, or how to have breaks ranked by time, once a report."""
    if run.costs or run.profiles:
        return ()
    tried = unique(problem.text for problem in run.problems if problem.kind == "no_cost")
    if tried or not run.breaks:
        return tried
    return ("graph breaks are ranked by count; `dynadiag explain --cost SCRIPT` measures their run time",)


# What a compiled call would gain without graph breaks, from the timeline of profiled calls: at least and at most.

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
