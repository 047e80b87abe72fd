"""Profiler events of compiled regions added up: own time, look-up, bytecode before the graph, graph, and the Python around it.

And their timeline, as a reader needs it to play host and device again: `dynadiag/facts/replayed_calls.py`. They are those of torch's older
profiler, for one thread alone: it starts in 0.05 ms, without Kineto and without a device.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.trace.hooks import disguise

_REGION = "Torch-Compiled Region"
LOOKUP = "TorchDynamo Cache Lookup"
"""What the profiler calls a look-up of Dynamo's: guards look at values through operators (`eval_frame_cpp.cpp`, 2.6 to 2.15)."""
_PREGRAPH = "Pregraph bytecode"
GRAPH = "dynadiag graph"
CALL = "dynadiag call "
"""What stands before the number and the name of a compiled function, around a call that no other compiled function makes."""
_PARTS = (_PREGRAPH, GRAPH)
# What runs inside a graph of inductor's, behind AOTAutograd's wrappers (`torch/_inductor/output_code.py`, 2.11 to 2.15).
_CALL = "## Call CompiledFxGraph"
# What autograd's engine calls each node of a backward, and what it calls that of a compiled graph (`torch/csrc/autograd/engine.cpp` and
# `torch/_functorch/_aot_autograd/runtime_wrappers.py`, 2.11 to 2.15).
_NODE = "autograd::engine::evaluate_function: "
_COMPILED_NODE = f"{_NODE}CompiledFunctionBackward"
# Runtime and driver calls that come back only when what was asked for before is done.
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize")
_RUNTIME = ("cuda", "cu", "hip")
# Kernels that Inductor writes, which may be fused with others (2.11 to 2.15), but for its products; and names of those of libraries.
_WRITTEN = ("triton_poi_", "triton_red_", "triton_per_", "triton_for_")
_LIBRARY = re.compile(r"gemm|gemv|nvjet|cutlass|conv|flash|fmha|attention|cudnn|xmma|splitK|_mm_|_bmm_|triton_tem_", re.IGNORECASE)
# A timeline of so many calls of the runtime is some megabytes.
_MOST_ASKS = 60_000


@dataclass(frozen=True)
class Event:
    """One profiler event: nanoseconds; `correlation` ties a runtime call to the device work that it started, `sequence` an operator to the
    node of the backward that it made.
    """

    name: str
    begin: int
    end: int
    correlation: int = 0
    stream: int = 0
    sequence: int = -1
    on_device: bool = False


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


def region_of(name: str) -> str | None:
    """Which compiled region an event of this name is, by its compile id; None for any other event."""
    return name[len(_REGION) :].strip(": ") if name.startswith(_REGION) else None


def read_events(events: Iterable[Any]) -> Profiled:
    """Kineto's events as plain data."""
    read, threads = [], []
    for event in events:
        begin = event.start_ns()
        on_device = "CPU" not in str(event.device_type())
        ids = {"correlation": event.correlation_id(), "stream": event.device_resource_id() if on_device else 0}
        ids["sequence"] = -1 if on_device else event.sequence_nr()
        read.append(Event(name=event.name(), begin=begin, end=begin + event.duration_ns(), on_device=on_device, **ids))
        threads.append(event.start_thread_id())
    return Profiled(events=read, threads=threads)


def summarise(profiled: Profiled) -> list[dict[str, Any]]:
    """One entry a region, means in microseconds per call.

    `graph_us` is the time inside the region's graph, `between_us` what is left beside it and the bytecode before it: Python and eager ops
    up to the next region.
    """
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for spans in _spans_by_thread(profiled).values():
        _add_up(_nest(spans), sums)
    return [_entry(name, total) for name, total in sorted(sums.items()) if total.calls]


def timeline(profiled: Profiled) -> dict[str, Any]:
    """What happened when, in nanoseconds from the first event on; `too_long` where it is none, because the calls ask too much of a device.

    Lines of `spans` are "kind begin end name", the kinds "call" (of a compiled function, which the name says), "region", "lookup", "graph",
    and "inner" (a graph of Inductor's behind the wrappers of AOTAutograd). Lines of `asks` are what waits or gives work to a device: begin,
    end, events on the host since the last, nanoseconds of waiting or -1 where it does not wait, and for each work its stream, its length
    and its kind (`_kind_of_work`). Lines of `nodes` are those of backwards: begin, end, begin of the operator that made it or -1, and
    whether a graph was compiled for it.
    """
    origin = min((event.begin for event in profiled.events), default=0)
    asks = _asks(profiled.events, origin)
    if len(asks) > _MOST_ASKS:
        return {"too_long": len(asks)}
    spans = []
    for event in profiled.events:
        kind, name = ("inner", "") if event.name.startswith(_CALL) else _span_of(event)
        if kind:
            spans.append((event.begin - origin, origin - event.end, kind, name))
    lines = [f"{kind} {begin} {-end} {name}".rstrip() for begin, end, kind, name in sorted(spans)]
    return {"spans": lines, "asks": [_line(ask) for ask in asks], "nodes": [_line(node) for node in _nodes(profiled.events, origin)]}


def _line(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _span_of(event: Event) -> tuple[str, str]:
    if event.on_device:
        return "", ""
    if event.name.startswith(CALL):
        return "call", event.name.removeprefix(CALL)
    if (region := region_of(event.name)) is not None:
        return "region", region
    return {LOOKUP: "lookup", GRAPH: "graph"}.get(event.name, ""), ""


def _asks(events: Sequence[Event], origin: int) -> list[list[int]]:
    device: dict[int, list[Event]] = {}
    for event in events:
        if event.on_device and event.correlation:
            device.setdefault(event.correlation, []).append(event)
    host = sorted((event for event in events if not event.on_device), key=lambda event: event.begin)
    begins = [event.begin for event in host]
    asks: list[list[int]] = []
    seen = done = 0
    for event in (item for item in host if item.name.startswith(_RUNTIME)):
        work = device.get(event.correlation, ())
        mine = max((element.end for element in work), default=0)
        waits = event.name.startswith(_WAITS) or (bool(work) and mine <= event.end)
        done = max(done, mine)
        if not work and not waits:
            continue
        waited = max(0, (done if done <= event.end else 0) - event.begin) if waits else -1
        here = bisect_right(begins, event.begin)
        pieces = [value for entry in work for value in (entry.stream, entry.end - entry.begin, _kind_of_work(entry.name))]
        asks.append([event.begin - origin, event.end - origin, max(1, here - seen), waited, *pieces])
        seen = here
    return asks


def _kind_of_work(name: str) -> int:
    """2 for a kernel that Inductor wrote, 1 for a product, convolution or attention, which it leaves to a library, else 0."""
    return 2 if name.startswith(_WRITTEN) else int(bool(_LIBRARY.search(name)))


def _nodes(events: Sequence[Event], origin: int) -> list[list[int]]:
    """An operator that makes no node may have the number of the next one that does: the last operator of a number made its node."""
    begins = {event.sequence: event.begin for event in events if event.name.startswith(_NODE) and event.sequence >= 0}
    repeated = Counter(event.sequence for event in events if event.name.startswith(_NODE))
    made: dict[int, int] = {}
    for event in events:
        if event.begin < begins.get(event.sequence, -1):
            made[event.sequence] = max(made.get(event.sequence, event.begin), event.begin)
    nodes = []
    for event in events:
        if event.name.startswith(_NODE):
            forward = made.get(event.sequence) if repeated[event.sequence] == 1 else None
            known = -1 if forward is None else forward - origin
            nodes.append([event.begin - origin, event.end - origin, known, int(event.name.startswith(_COMPILED_NODE))])
    return sorted(nodes)


def _spans_by_thread(profiled: Profiled) -> dict[int, list[_Span]]:
    threads: dict[int, list[_Span]] = defaultdict(list)
    for event, thread in zip(profiled.events, profiled.threads):
        kind = None if event.on_device else _kind(event.name)
        if kind is not None:
            threads[thread].append(_Span(kind, event.begin, event.end))
    return threads


def _kind(name: str) -> str | None:
    if (region := region_of(name)) is not None:
        return region
    return name if name in (LOOKUP, *_PARTS) else None


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
        if span.kind == LOOKUP:
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
    if region == "" or region in (LOOKUP, *_PARTS):
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


# Where torch turns a profiler on: ours makes room for one that the program starts (2.6 to 2.15).
_STARTS = (
    ("torch.autograd.profiler", "_prepare_profiler"),
    ("torch.autograd.profiler", "_enable_profiler"),
    ("torch.autograd.profiler_legacy", "_enable_profiler_legacy"),
)


def profiler_runs() -> bool:
    """Whether a profiler is on in this thread."""
    return bool(sys.modules["torch"]._C._autograd._profiler_enabled())


def start_profiler(*, with_stack: bool = False) -> None:
    """Begin; `with_stack` notes the Python stack of each operator, which takes longer and much memory."""
    torch_c = sys.modules["torch"]._C
    experimental = torch_c._profiler._ExperimentalConfig()
    config = torch_c._profiler.ProfilerConfig(torch_c._profiler.ProfilerState.CPU, False, False, with_stack, False, False, experimental)
    torch_c._autograd._enable_profiler_legacy(config)


def stop_profiler() -> Any:
    """End; gives for each thread its events in order."""
    return sys.modules["torch"]._C._autograd._disable_profiler_legacy()


def profiler_starts(leave: Callable[[], Any]) -> Iterator[tuple[ModuleType, str, Callable[..., Any]]]:
    """Functions to put in place of those by which the program starts a profiler of its own: they call `leave` before, in this thread."""
    thread = threading.get_ident()
    for name, start in _STARTS:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, start):
            original = getattr(module, start)
            yield module, start, functools.wraps(original)(disguise(_after(leave, original, thread), module.__file__))


def _after(leave: Callable[[], Any], start: Callable[..., Any], thread: int) -> Callable[..., Any]:
    def dynadiag_room(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            leave()
        return start(*args, **kwargs)

    return dynadiag_room


# Events of torch's older profiler counted: operators outside graphs, graphs and compiled regions of one call.

GLUE = "dynadiag glue"
"""What Dynamo does to call a graph, or torch to show a tensor: none of the program's work."""

_REGION_PREFIX = "Torch-Compiled Region: "
# What autograd's engine calls each step of a backward (`torch/csrc/autograd/engine.cpp`, 2.6 to 2.15).
_BACKWARD = "autograd::engine::evaluate_function"
_OPERATOR = re.compile(r"[A-Za-z_]\w*::[A-Za-z_][\w.]*\Z")
_NO_WORK = "profiler::"
_FUNCTION_SCOPE = 0  # `at::RecordScope::FUNCTION`


@dataclass
class Dispatched:
    """What one call did: operators that it dispatched outside graphs, and how often each compiled region and its graph ran."""

    outside: int = 0
    regions: Counter[str] = field(default_factory=Counter)
    graphs: Counter[str] = field(default_factory=Counter)


def count_dispatched(threads: Iterable[Iterable[Any]], counts: Callable[[Any], bool] | None = None) -> Dispatched:
    """Count what `_disable_profiler_legacy` gave: for each thread its events in order; operators outside graphs only if `counts` says so.

    An operator that another one dispatches is not counted, and neither is what a backward, a graph or Dynamo itself does. Backward
    graphs are no graphs here: they have no region of their own.
    """
    found = Dispatched()
    known: dict[str, bool] = {}
    for events in threads:
        _count_thread(events, found, known, counts)
    return found


def _count_thread(events: Iterable[Any], found: Dispatched, known: dict[str, bool], counts: Callable[[Any], bool] | None) -> None:
    names: list[str] = []
    regions: list[str] = []
    inside = 0  # from this depth on nothing is counted; 0 where everything is
    for event in events:
        kind = event.kind()
        if kind == "pop" and names:
            if len(names) == inside:
                inside = 0
            if names.pop().startswith(_REGION_PREFIX) and regions:
                regions.pop()
        elif kind == "push":
            name = event.name()
            names.append(name)
            if name.startswith(_REGION_PREFIX):
                regions.append(name[len(_REGION_PREFIX) :])
            if inside:
                continue
            if name.startswith(_REGION_PREFIX + "!"):  # compiled autograd: a backward
                inside = len(names)
            elif name == GRAPH:
                found.graphs[regions[-1] if regions else ""] += 1
                inside = len(names)
            elif name.startswith(_REGION_PREFIX):
                found.regions[regions[-1]] += 1
            elif name in (GLUE, LOOKUP) or name.startswith(_BACKWARD):
                inside = len(names)
            elif _is_operator(event, name, known):
                found.outside += counts is None or counts(event)
                inside = len(names)


def _is_operator(event: Any, name: str, known: dict[str, bool]) -> bool:
    """Whether torch has an operator of that name: a program may name parts of its own so."""
    if name not in known:
        known[name] = bool(
            _OPERATOR.match(name) and not name.startswith(_NO_WORK) and sys.modules["torch"]._C._jit_get_schemas_for_operator(name)
        )
    return known[name] and getattr(event, "scope", int)() == _FUNCTION_SCOPE
