"""What torch measures of a compilation: `compilation_metrics` (`torch._dynamo.utils.CompilationMetrics`, 2.4 to 2.15), and its phases."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dynadiag.model.compiled import PhaseSpan
from dynadiag.model.location import Location
from dynadiag.model.run import CompileMetrics, Phase
from dynadiag.trace.room import Room
from dynadiag.trace.values import as_bool, as_float, as_id, as_int, as_text, as_texts

# Fields of many kilobytes that we do not use: each begins and ends with bytes that cannot stand inside it, where quotes are escaped.
_LONG = (
    (b'"exception_stack_trace": ["', b'"], "'),
    (b'"dynamo_config": "{', b'}", "'),
    (b'"compiler_config": "{', b'}", "'),
    (b'"inductor_config": "{', b'}", "'),
    (b'"functorch_config": "{', b'}"'),
)
_LIMITS = (b'\\"recompile_limit\\": ', b'\\"cache_size_limit\\": ')
_NUMBER = re.compile(rb"(\d{1,9})[,}]")
_FIELDS = tuple(field.name for field in fields(CompileMetrics))
_UNKNOWN = (None, ())


def trimmed(line: bytes) -> bytes:
    """A metrics header without the dumps of whole configurations, which are nine tenths of it; other shapes are left as they are."""
    for start, end in _LONG:
        begin = line.find(start)
        stop = line.find(end, begin + len(start)) if begin >= 0 else -1
        if stop >= 0:
            line = (
                line[: begin + len(start) - 1]
                + (b"]" if start.endswith(b'["') else b'"')
                + line[stop + end.index(b'"') + len(b'"') + (start.endswith(b'["')) :]
            )
    return line


def limit_in(line: bytes) -> int | None:
    """`recompile_limit` (before torch 2.6 `cache_size_limit`) of the configuration that a metrics header carries."""
    for name in _LIMITS:
        position = line.find(name)
        match = _NUMBER.match(line, position + len(name)) if position >= 0 else None
        if match:
            return int(match[1])
    return None


def read_metrics(values: Mapping[str, Any], limit: int | None = None) -> CompileMetrics:
    """The metrics that we use; every one that is missing, null or mistyped is None.

    Seconds: `total_s` is the whole frame and contains `aot_s` (AOTAutograd with the back end), which contains `inductor_s`; `dynamo_s` is
    the rest, `total_s` - `aot_s`. torch counts a back end without AOTAutograd in `aot_s`
    too (`call_user_compiler` in `_dynamo/output_graph.py`, 2.15).
    """
    found: dict[str, Any] = {_READERS[name][0]: _READERS[name][1](value) for name, value in values.items() if name in _READERS}
    total = _seconds(values, "dynamo_cumulative_compile_time_us", "entire_frame_compile_time_s")
    aot = _seconds(values, "aot_autograd_cumulative_compile_time_us", "backend_compile_time_s")
    return CompileMetrics(
        total_s=total,
        dynamo_s=max(0.0, total - (aot or 0.0)) if total is not None else None,
        aot_s=aot,
        inductor_s=_seconds(values, "inductor_cumulative_compile_time_us", "inductor_compile_time_s"),
        backward_s=_seconds(values, "backward_cumulative_compile_time_us"),
        code_gen_s=_seconds(values, "inductor_code_gen_cumulative_compile_time_us", "code_gen_time_s"),
        before_restart_s=_seconds(values, "dynamo_compile_time_before_restart_us", "dynamo_time_before_restart_s"),
        recompile_limit=limit,
        fail_location=_fail_location(values),
        **found,
    )


# The field of `CompileMetrics` that holds one of torch's, and how its value is read.
_READERS: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "guard_count": ("guard_count", as_id),
    "shape_env_guard_count": ("shape_guard_count", as_id),
    "guard_latency_us": ("guard_latency_us", as_float),
    "cache_size": ("cache_size", as_id),
    "accumulated_cache_size": ("accumulated_cache_size", as_id),
    "graph_op_count": ("graph_ops", as_id),
    "graph_node_count": ("graph_nodes", as_id),
    "graph_input_count": ("graph_inputs", as_id),
    "fail_type": ("fail_type", as_text),
    "fail_reason": ("fail_reason", as_text),
    "restart_reasons": ("restart_reasons", as_texts),
    "recompile_reason": ("recompile_reason", as_text),
    "has_guarded_code": ("has_guarded_code", as_bool),
    "cudagraph_skip_reason": ("cudagraph_skip_reason", as_text),
}


def _seconds(values: Mapping[str, Any], microseconds: str, seconds: str | None = None) -> float | None:
    """Seconds from the field in microseconds (since torch 2.6), else from the older one."""
    if microseconds in values:
        exact = as_float(values[microseconds])
        if exact is not None and exact >= 0:
            return exact / 1e6
    older = as_float(values[seconds]) if seconds is not None and seconds in values else None
    return older if older is not None and older >= 0 else None


def _fail_location(values: Mapping[str, Any]) -> Location | None:
    file = as_text(values.get("fail_user_frame_filename"))
    return Location(file, as_int(values.get("fail_user_frame_lineno"))) if file else None


def merged(first: CompileMetrics | None, second: CompileMetrics) -> CompileMetrics:
    """Both records of one frame as one: what the first does not know comes from the second (a backward compiled later)."""
    if first is None:
        return second
    missing = {name: value for name in _FIELDS if (value := getattr(second, name)) not in _UNKNOWN and getattr(first, name) in _UNKNOWN}
    return replace(first, **missing) if missing else first


_EVENT = re.compile(rb'\t\{\r?\n\t"name": "([^"\\\n]*)",\r?\n\t"ts": (\d{1,20}(?:\.\d{1,9})?),\r?\n')
_KIND = b'\n\t"ph": "'
DEEPEST = 200


@dataclass(slots=True)
class _Open:
    name: str
    began_us: float
    inside_us: float = 0.0


@dataclass(slots=True)
class PhaseClock:
    """The phases that are open in one process; a finished one goes to `done` under its frame."""

    open: list[_Open] = field(default_factory=list)
    done: dict[tuple[str | None, str], list[float]] = field(default_factory=dict)
    spans: list[tuple[str | None, str, float, float, int]] = field(default_factory=list)

    def begin(self, name: str, at_us: float) -> None:
        """A phase begins inside the one that is open."""
        if len(self.open) < DEEPEST:
            self.open.append(_Open(name, at_us))

    def end(self, name: str, at_us: float, frame: str | None, room: Room) -> None:
        """A phase ends, and is kept if there is room; what began inside it and never ended (an exception, a lost record) is dropped."""
        position = next((p for p in range(len(self.open) - 1, -1, -1) if self.open[p].name == name), None)
        if position is None:
            return
        phase = self.open[position]
        del self.open[position:]
        took = at_us - phase.began_us
        if took < 0:
            return
        if self.open:
            self.open[-1].inside_us += took
        if room.take("timed phases"):
            self.spans.append((frame, name, phase.began_us, max(0.0, took), position))
        entry = self.done.get((frame, name))
        if entry is None:
            if not room.take("compile phases"):
                return
            entry = self.done[frame, name] = [0.0, 0.0, 0]
        entry[0] += took
        entry[1] += max(0.0, took - phase.inside_us)
        entry[2] += 1

    def timed(self, process: int) -> tuple[PhaseSpan, ...]:
        """Each finished phase that there was room for, in the order in which they ended."""
        return tuple(PhaseSpan(process, *span) for span in self.spans)

    def phases(self) -> tuple[Phase, ...]:
        """The sums of all finished phases in seconds, in the order in which they first ended."""
        return tuple(
            Phase(frame=frame, name=name, total_s=total / 1e6, self_s=own / 1e6, count=int(count))
            for (frame, name), (total, own, count) in self.done.items()
        )


def quick_event(buffer: bytes, start: int, end: int) -> tuple[bytes, bytes, float] | None:
    """Kind (B, E or i), name and time in microseconds of an event as torch prints it; None when it looks different or damaged."""
    match = _EVENT.match(buffer, start, end)
    place = buffer.rfind(_KIND, start, end) if match else -1
    whole = place >= 0 and buffer[place - 2 : place].endswith((b"},", b",\r")) and buffer[end - 2 : end].rstrip().endswith(b"}")
    if match is None or not whole:
        return None
    kind = place + len(_KIND)
    return buffer[kind : kind + 1], match[1], float(match[2])
