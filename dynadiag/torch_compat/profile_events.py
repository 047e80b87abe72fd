"""Profiler events of compiled regions added up: each region's own time, its look-up, its bytecode before the graph, the Python around it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_REGION = "Torch-Compiled Region: "
_LOOKUP = "TorchDynamo Cache Lookup"
_PREGRAPH = "Pregraph bytecode"


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
        return self.end - self.begin - sum(child.end - child.begin for child in self.children if child.kind != _PREGRAPH)


@dataclass
class _Sum:
    calls: int = 0
    own: int = 0
    lookup: int = 0
    lookups: int = 0
    pregraph: int = 0


def summarise(events: Iterable[Any], graph_ns: Mapping[str, int]) -> list[dict[str, Any]]:
    """One entry a region, means in microseconds per call; `graph_ns` is the time inside each region's graph over the same calls.

    `between_us` is what is left of a region beside the bytecode before its graph and the graph itself: Python and eager ops up to the next region.
    """
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for spans in _spans_by_thread(events).values():
        _add_up(_nest(spans), sums)
    return [_entry(name, total, graph_ns.get(name)) for name, total in sorted(sums.items()) if total.calls]


def _spans_by_thread(events: Iterable[Any]) -> dict[int, list[_Span]]:
    threads: dict[int, list[_Span]] = defaultdict(list)
    for event in events:
        kind = _kind(event.name())
        if kind is not None:
            begin = event.start_ns()
            threads[event.start_thread_id()].append(_Span(kind, begin, begin + event.duration_ns()))
    return threads


def _kind(name: str) -> str | None:
    if name.startswith(_REGION):
        return name.removeprefix(_REGION)
    return name if name in (_LOOKUP, _PREGRAPH) else None


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
        elif span.kind == _PREGRAPH:
            if parent.kind:
                sums[parent.kind].pregraph += span.end - span.begin
        else:
            total = sums[span.kind]
            total.calls += 1
            total.own += span.own
            if lookup is not None:
                total.lookup += lookup.end - lookup.begin
                total.lookups += 1
            lookup = None
        _add_up(span, sums)


def _entry(name: str, total: _Sum, graph_ns: int | None) -> dict[str, Any]:
    ids = re.search(r"(\d+)/(\d+)$", name)
    graph_us = None if graph_ns is None else graph_ns / total.calls / 1000
    region_us, pregraph_us = total.own / total.calls / 1000, total.pregraph / total.calls / 1000
    return {
        "frame_id": int(ids[1]) if ids else None,
        "frame_compile_id": int(ids[2]) if ids else None,
        "region": name,
        "calls": total.calls,
        "region_us": round(region_us, 3),
        "lookup_us": round(total.lookup / total.lookups / 1000, 3) if total.lookups else None,
        "pregraph_us": round(pregraph_us, 3),
        "graph_us": None if graph_us is None else round(graph_us, 3),
        "between_us": None if graph_us is None else round(max(0.0, region_us - pregraph_us - graph_us), 3),
    }
