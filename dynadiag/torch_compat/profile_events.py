"""Profiler events of compiled regions added up: own time, look-up, bytecode before the graph, graph, and the Python around it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_REGION = "Torch-Compiled Region: "
_LOOKUP = "TorchDynamo Cache Lookup"
_PREGRAPH = "Pregraph bytecode"
GRAPH = "dynadiag graph"
_PARTS = (_PREGRAPH, GRAPH)


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


def summarise(events: Iterable[Any]) -> list[dict[str, Any]]:
    """One entry a region, means in microseconds per call.

    `graph_us` is the time inside the region's graph, `between_us` what is left beside it and the bytecode before it: Python and eager ops
    up to the next region.
    """
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for spans in _spans_by_thread(events).values():
        _add_up(_nest(spans), sums)
    return [_entry(name, total) for name, total in sorted(sums.items()) if total.calls]


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
