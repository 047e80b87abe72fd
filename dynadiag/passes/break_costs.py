"""What a graph break costs at run time, from the regions that `--cost` profiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dynadiag.facts.lookups import costs_of
from dynadiag.facts.wording import unique
from dynadiag.model.report import Cost
from dynadiag.model.run import RegionCost, Run

_US_PER_MS = 1000.0


def break_cost(run: Run, frames: Sequence[str], resumed: Sequence[str]) -> Cost | None:
    """Milliseconds a call that a break costs beside the graphs around it, or None when nothing was profiled there.

    With a device in the profile it is what a call would gain without the break. Otherwise it is the host's time: counted are the Python and
    the eager ops between the graph before the break and the next one (a compiled frame ends at its first break, so they belong to this
    break alone), and the cache look-up and the bytecode before the graph of the function that goes on.
    """
    after, before = costs_of(resumed, run), costs_of(frames, run)
    parts = [_mean_us(before, lambda cost: cost.between_us), _mean_us(after, _entry_us)]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    how = next(cost.how for cost in (*before, *after))
    timed = [cost for cost in after if cost.break_us is not None and cost.on_device]
    if timed:
        return _on_device(timed, how)
    missing = "" if len(known) == len(parts) else "; only one side of the break was profiled"
    return Cost(value=round(sum(known) / _US_PER_MS, 4), unit="ms per call", basis=f"measured: host time, {how}{missing}")


def _on_device(timed: Sequence[RegionCost], how: str) -> Cost:
    """What a call would gain where a device was profiled; the host's time without waiting where that is not known."""
    host = _mean_us(timed, lambda cost: cost.break_us) or 0.0
    waiting = min(host, _mean_us(timed, lambda cost: cost.waiting_us) or 0.0)
    parts = f"host time {host / _US_PER_MS:.3f} ms, {waiting / _US_PER_MS:.3f} ms of it waiting for the device"
    low, high = (_mean_us(timed, lambda cost, at=at: None if cost.gain_us is None else cost.gain_us[at]) for at in (0, 1))  # type: ignore[misc]
    if low is None or high is None:
        why = next((f" ({cost.gain_why_not})" for cost in timed if cost.gain_why_not), "")
        value, basis = host - waiting, f"measured: host time without waiting; {parts}; the gain per call is not known{why}; {how}"
    else:
        error = _mean_us(timed, lambda cost: cost.gain_error_us) or 0.0
        # The least, and nothing where it may be nothing: what is claimed has to be there.
        value = low if low > error else 0.0
        ends = f"{max(0.0, low - error) / _US_PER_MS:.3f} to {(high + error) / _US_PER_MS:.3f} ms"
        if any(cost.backward for cost in timed):
            ends += ", plus what one backward instead of two would gain (not measured)"
        basis = f"derived: gain per call, {ends}, by replaying the timelines of host and device without the break; {parts}; {how}"
    return Cost(value=round(value / _US_PER_MS, 4), unit="ms per call", basis=basis)


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
    if run.costs:
        return ()
    tried = unique(problem.text for problem in run.problems if problem.kind == "no_cost")
    if tried or not run.breaks:
        return tried
    return ("graph breaks are ranked by count; `dynadiag explain --cost SCRIPT` measures their run time",)
