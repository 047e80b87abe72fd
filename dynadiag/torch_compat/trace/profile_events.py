"""Profiler events of compiled regions added up: own time, look-up, bytecode before the graph, graph, and the Python around it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynadiag.torch_compat.trace.device_timeline import Cut, Event, Timeline

_REGION = "Torch-Compiled Region: "
_LOOKUP = "TorchDynamo Cache Lookup"
_PREGRAPH = "Pregraph bytecode"
GRAPH = "dynadiag graph"
_PARTS = (_PREGRAPH, GRAPH)
# What runs inside a graph of inductor's, behind AOTAutograd's wrappers (`torch/_inductor/output_code.py`, 2.11 to 2.15).
_CALL = "## Call CompiledFxGraph"
# What autograd's engine calls the backward of a compiled graph (`torch/_functorch/_aot_autograd/runtime_wrappers.py`, 2.11 to 2.15).
_BACKWARD = "CompiledFunctionBackward"


@dataclass
class _Span:
    """One event and what lies directly inside it; times in nanoseconds."""

    kind: str
    begin: int
    end: int
    children: list[_Span] = field(default_factory=list)

    @property
    def own(self) -> int:
        """Duration less what nested regions and their look-ups took; bytecode before the graph is the region's own."""
        return self.end - self.begin - sum(child.end - child.begin for child in self.children if child.kind not in _PARTS)


@dataclass
class _Sum:
    calls: int = 0
    own: int = 0
    lookup: int = 0
    lookups: int = 0
    pregraph: int = 0
    graph: int = 0


@dataclass(frozen=True)
class Profiled:
    """All events of a profile, and the threads of those on the host; `works` says whether the device did anything."""

    events: Sequence[Event]
    threads: Sequence[int]

    @property
    def works(self) -> bool:
        """Whether work of a device is among them."""
        return any(event.on_device for event in self.events)


def read_events(events: Iterable[Any]) -> Profiled:
    """Kineto's events as plain data."""
    read, threads = [], []
    for event in events:
        begin = event.start_ns()
        on_device = "CPU" not in str(event.device_type())
        ids = {"correlation": event.correlation_id(), "stream": event.device_resource_id() if on_device else 0}
        read.append(Event(name=event.name(), begin=begin, end=begin + event.duration_ns(), on_device=on_device, **ids))
        threads.append(event.start_thread_id())
    return Profiled(events=read, threads=threads)


def summarise(profiled: Profiled, starter: str = "", period_ns: float | None = None, untimed: str = "") -> list[dict[str, Any]]:
    """One entry a region, means in microseconds per call.

    `graph_us` is the time inside the region's graph, `between_us` what is left beside it and the bytecode before it: Python and eager ops
    up to the next region. Of a region that is entered inside another, behind a break, `break_us` is the host's time from the graph before
    to its own, `waiting_us` how much of that waits for the device, and with a device `gain_us` what a call would gain without it, at least
    and at most, give or take `gain_error_us`, or `gain_why_not`; `backward` says that a compiled backward ran. `period_ns` is the length of
    a call of the region `starter` without a profiler, `untimed` why there is none.
    """
    sums: dict[str, _Sum] = defaultdict(_Sum)
    breaks: dict[str, list[tuple[Cut, Cut]]] = defaultdict(list)
    calls = sorted((event.begin, event.end) for event in profiled.events if event.name.startswith(_CALL))
    threads = [_nest(spans) for spans in _spans_by_thread(profiled).values()]
    for root in threads:
        _add_up(root, sums)
        _find_breaks(root, calls, breaks)
    gains = _gains(profiled, breaks, starter, period_ns, untimed)
    return [_entry(name, total) | gains.get(name, {}) for name, total in sorted(sums.items()) if total.calls]


def _find_breaks(span: _Span, calls: Sequence[tuple[int, int]], breaks: dict[str, list[tuple[Cut, Cut]]]) -> None:
    """The stretches of host time between two graphs of one call, without and with the wrappers of the graphs around them."""
    before: _Span | None = None
    for child in span.children:
        if child.kind == GRAPH:
            before = child
        elif child.kind not in (_LOOKUP, *_PARTS):
            graph = next((part for part in child.children if part.kind == GRAPH), None)
            if before is not None and graph is not None:
                last = bisect_right(calls, (before.end, before.end)) - 1
                first = bisect_left(calls, (graph.begin, 0))
                left = calls[last][1] if last >= 0 and calls[last][0] >= before.begin else before.end
                right = calls[first][0] if first < len(calls) and calls[first][0] < graph.end else graph.begin
                breaks[child.kind].append((Cut(before.end, graph.begin), Cut(left, right)))
            before = None
        _find_breaks(child, calls, breaks)


def _gains(
    profiled: Profiled, breaks: dict[str, list[tuple[Cut, Cut]]], starter: str, period_ns: float | None, untimed: str
) -> dict[str, dict[str, Any]]:
    """What is known of the break before each region."""
    starts = [event.begin for event in profiled.events if event.name == _REGION + starter]
    timeline = Timeline(profiled.events, starts)
    fits = timeline.on_device and period_ns is not None and timeline.calibrate(period_ns)
    trained = any(_BACKWARD in event.name for event in profiled.events)
    found: dict[str, dict[str, Any]] = {}
    for name, cuts in breaks.items():
        least, most = ([pair[side] for pair in cuts] for side in (0, 1))
        known: dict[str, Any] = {
            "break_us": _mean_us(sum(cut.end - cut.begin for cut in least), len(least)),
            "waiting_us": _mean_us(timeline.waiting_ns(least), len(least)),
        }
        if timeline.on_device:
            known["gain_us"] = [round(gain / 1000, 3) for gain in timeline.gain_ns(least, most)] if fits else None
            known["gain_error_us"] = round(timeline.error_ns / 1000, 3)
            known["backward"] = trained
            if period_ns is None:
                known["gain_why_not"] = untimed
            elif not fits:
                played, timed = timeline.period_ns / 1e6, period_ns / 1e6
                known["gain_why_not"] = f"the replayed profile takes {played:.3f} ms per call, a call without a profiler {timed:.3f} ms"
        found[name] = known
    return found


def _mean_us(total_ns: float, count: int) -> float:
    return round(total_ns / count / 1000, 3)


def _spans_by_thread(profiled: Profiled) -> dict[int, list[_Span]]:
    threads: dict[int, list[_Span]] = defaultdict(list)
    for event, thread in zip(profiled.events, profiled.threads):
        kind = None if event.on_device else _kind(event.name)
        if kind is not None:
            threads[thread].append(_Span(kind, event.begin, event.end))
    return threads


def _kind(name: str) -> str | None:
    if name.startswith(_REGION):
        return name.removeprefix(_REGION)
    return name if name in (_LOOKUP, *_PARTS) else None


def _nest(spans: list[_Span]) -> _Span:
    """Events of one thread as a tree under a root without meaning."""
    root = _Span("", 0, 0)
    open_spans = [root]
    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        while len(open_spans) > 1 and open_spans[-1].end <= span.begin:
            open_spans.pop()
        open_spans[-1].children.append(span)
        open_spans.append(span)
    return root


def _add_up(parent: _Span, sums: dict[str, _Sum]) -> None:
    """A look-up belongs to the region that follows it under the same parent."""
    lookup: _Span | None = None
    for span in parent.children:
        if span.kind == _LOOKUP:
            lookup = span
        elif span.kind in _PARTS:
            _add_part(parent.kind, span, sums)
        else:
            total = sums[span.kind]
            total.calls += 1
            total.own += span.own
            if lookup is not None:
                total.lookup += lookup.end - lookup.begin
                total.lookups += 1
            lookup = None
        _add_up(span, sums)


def _add_part(region: str, span: _Span, sums: dict[str, _Sum]) -> None:
    """A part of a region; one whose region began before the profile is left out, as the region is."""
    if region == "" or region in (_LOOKUP, *_PARTS):
        return
    if span.kind == GRAPH:
        sums[region].graph += span.end - span.begin
    else:
        sums[region].pregraph += span.end - span.begin


def _entry(name: str, total: _Sum) -> dict[str, Any]:
    ids = re.search(r"(\d+)/(\d+)$", name)
    region_us, graph_us, pregraph_us = (value / total.calls / 1000 for value in (total.own, total.graph, total.pregraph))
    return {
        "frame_id": int(ids[1]) if ids else None,
        "frame_compile_id": int(ids[2]) if ids else None,
        "region": name,
        "calls": total.calls,
        "region_us": round(region_us, 3),
        "lookup_us": round(total.lookup / total.lookups / 1000, 3) if total.lookups else None,
        "pregraph_us": round(pregraph_us, 3),
        "graph_us": round(graph_us, 3),
        "between_us": round(max(0.0, region_us - pregraph_us - graph_us), 3),
    }
