"""The stretches of a compiled call that no graph runs in, and which compiled code leaves them: what graph breaks cost lies in them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dynadiag.model.compiled import CallSpan, Timeline

OUTSIDE = ""
"""Stands for code of a call that runs in no compiled region: functions that Dynamo gave up."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Host time of one call from one graph to the next, from the call's begin to its first graph, or from its last graph to its end.

    `regions` are the compiled regions that are left in it, by name, and `OUTSIDE` where other code of the call runs. `inner_begin` and
    `inner_end` are the same without the wrappers of the graphs, `graphs` the two graphs around it (None: there is none).
    """

    function: str
    begin: int
    end: int
    inner_begin: int
    inner_end: int
    regions: frozenset[str]
    graphs: tuple[CallSpan | None, CallSpan | None]


@dataclass
class _Node:
    """A span and what lies directly inside it."""

    span: CallSpan
    children: list[_Node] = field(default_factory=list)

    @property
    def graph(self) -> CallSpan | None:
        """The first graph directly inside: a region's own."""
        return next((child.span for child in self.children if child.span.kind == "graph"), None)


def find_gaps(timeline: Timeline) -> list[Gap]:
    """All gaps of all calls, in order; without marks of calls a region that no other encloses is one."""
    spans = [span for span in timeline.spans if span.kind != "inner"]
    inner = [span for span in timeline.spans if span.kind == "inner"]
    begins = [span.begin for span in inner]
    asks = [ask.begin for ask in timeline.asks]
    root = _nest(spans)
    calls = [child for child in root.children if child.span.kind == "call"]
    calls = calls or [child for child in root.children if child.span.kind == "region"]
    return [gap for call in calls for gap in _gaps_of(call, inner, begins, asks)]


def _nest(spans: Sequence[CallSpan]) -> _Node:
    root = _Node(CallSpan("", 0, 0, ""))
    opened = [root]
    for span in spans:
        while len(opened) > 1 and opened[-1].span.end <= span.begin:
            opened.pop()
        node = _Node(span)
        opened[-1].children.append(node)
        opened.append(node)
    return root


def _gaps_of(call: _Node, inner: Sequence[CallSpan], begins: Sequence[int], asks: Sequence[int]) -> Iterator[Gap]:
    graphs = sorted(_graphs_in(call), key=lambda span: span.begin)
    ends = [call.span.begin, *(span.end for span in graphs)]
    nexts = [*(span.begin for span in graphs), call.span.end]
    first = next((child for child in call.children if child.span.kind == "region"), None)
    alone = sum(child.span.kind == "region" for child in call.children) == 1
    if graphs and first is not None and first.span.begin <= graphs[0].begin and first.graph in (graphs[0], None):
        looked_up = [child.span.begin for child in call.children if child.span.kind == "lookup" and child.span.end <= first.span.begin]
        nexts[0] = max(call.span.begin, looked_up[-1] if looked_up else first.span.begin) if first.graph else nexts[0]
    for number, (begin, end) in enumerate(zip(ends, nexts, strict=True)):
        around = (graphs[number - 1] if number else None, graphs[number] if number < len(graphs) else None)
        left, right = begin, end
        if around[0] is not None:
            place = bisect_right(begins, around[0].end) - 1
            left = inner[place].end if place >= 0 and begins[place] >= around[0].begin else begin
        if around[1] is not None and number:
            place = bisect_left(begins, around[1].begin)
            right = begins[place] if place < len(begins) and begins[place] < around[1].end else end
        regions = frozenset(_left_in(call, begin, end))
        if None in around and alone and not _works(asks, begin, end):
            regions -= {OUTSIDE}  # torch's own way into a compiled function and back
        yield Gap(function=call.span.name, begin=begin, end=end, inner_begin=left, inner_end=right, regions=regions, graphs=around)


def _works(asks: Sequence[int], begin: int, end: int) -> bool:
    return bisect_left(asks, begin) < bisect_left(asks, end)


def _graphs_in(node: _Node) -> Iterator[CallSpan]:
    for child in node.children:
        if child.span.kind == "graph":
            yield child.span
        else:
            yield from _graphs_in(child)


def _left_in(call: _Node, begin: int, end: int) -> Iterator[str]:
    """The regions whose own code runs between `begin` and `end`, but for its way to a graph and back from another region."""
    position = begin
    for child in call.children:
        if child.span.kind == "region" and child.span.begin < end and child.span.end > begin:
            if position < child.span.begin and call.span.kind == "call":
                yield OUTSIDE
            position = max(position, child.span.end)
            yield from _left_by(child, begin, end)
    if call.span.kind == "call" and position < end:
        yield OUTSIDE


def _left_by(region: _Node, begin: int, end: int) -> Iterator[str]:
    inside = [child for child in region.children if child.span.kind == "region"]
    own = region.graph
    # Where its own code begins that is left: behind its graph, or with its begin where it has none.
    position = region.span.begin if own is None else own.end
    for child in inside:
        if position < child.span.begin and begin <= position < end and child.span.end > begin:
            yield region.span.name
        position = max(position, child.span.end)
        if child.span.begin < end and child.span.end > begin:
            yield from _left_by(child, begin, end)
    if not inside and own is not None and begin <= own.end < end:
        yield region.span.name
