"""What a graph break costs at run time, from the calls that `--cost` profiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from dynadiag.errors import DynadiagError
from dynadiag.facts.break_gains import BreakGains
from dynadiag.facts.gaps import OUTSIDE, Gap
from dynadiag.facts.lookups import costs_of
from dynadiag.facts.user_frames import of_last_run
from dynadiag.facts.wording import unique
from dynadiag.model.report import Basis, Cost
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


def _between(low_ns: float, high_ns: float, basis: Basis, remark: str, *, exact: bool = False) -> Cost:
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
