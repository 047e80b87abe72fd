"""`report.json`: the whole diagnosis for scripts, described by `docs/report.schema.json` and explained in `docs/report.md`."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any

from dynadiag.facts.compiled_work import NO_TIME, breaks_in, compiled_work, why_no_work
from dynadiag.model.graph import Graph
from dynadiag.model.report import (
    SCHEMA_VERSION,
    CompileTime,
    Fallback,
    Finding,
    GraphBreak,
    GuardReport,
    Report,
    Transition,
)
from dynadiag.model.run import Frame, Process, Run
from dynadiag.render import finite_json, wording
from dynadiag.render.completeness import completeness, not_ended
from dynadiag.render.mutation_entries import mutation_entry
from dynadiag.render.sanitise import encodable, json_escaped

NOT_PROBED = "not tried: the probe did not run on this graph"
DEVICE_WHY = "not recorded (the recorder asks CUDA only once the script has initialised it)"
NO_COMPILE_TIME = "no compile time was recorded"
NO_REPLAY = "`dynadiag parity` was not run on this recording, so calls that the program did not make were not tried"
NO_RANKS = "fewer than two ranks were recorded"
NO_PARITY = "calls were not compared with eager: the script was not run with --parity"
NO_MUTATION_PASS = "mutations were not analysed"
_LISTS = frozenset(
    {"frames", "graphs", "graph_breaks", "recompiles", "fallbacks", "mutations", "findings", "transitions", "guards", "ranks", "notes"}
)
_FIELDS: dict[type, tuple[str, ...]] = {}
_VALUES: dict[type, Callable[[Any], Iterable[Any]]] = {}


def plain(value: Any) -> Any:
    """The value as JSON can hold it: dataclasses become objects, tuples lists, sets sorted lists, NaN and infinities null.

    Strings keep every character except lone surrogates, which no UTF-8 file can hold.
    """
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        return value if value.isascii() else encodable(value)
    if kind is tuple or kind is list:
        return [plain(item) for item in value]
    if names := _field_names(kind):
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping):
        return {encodable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return encodable(str(value))


def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass, looked up once a type; none for other types."""
    known = _FIELDS.get(kind)
    if known is None:
        known = _FIELDS[kind] = tuple(item.name for item in fields(kind)) if is_dataclass(kind) else ()
    return known


def _entry(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, their values as they are: the encoder asks for what is inside them (`_inside`)."""
    kind = type(value)
    values = _VALUES.get(kind)
    if values is None:
        names = _field_names(kind)
        values = _VALUES[kind] = attrgetter(*names) if len(names) > 1 else lambda item: [getattr(item, name) for name in names]
    return dict(zip(_FIELDS[kind], values(value), strict=True))


def _inside(value: Any) -> Any:
    """`plain` one level deep, for a value that JSON has no form for."""
    return _entry(value) if _field_names(type(value)) else plain(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_inside)


def to_dict(report: Report) -> dict[str, Any]:
    """The report as plain dicts and lists, keys as DESIGN's table names them and in that order.

    Args:
        report: what `dynadiag.report.build` made; every value in it may come from a hostile log.
    """
    return {key: plain(list(value) if key in _LISTS else value) for key, value in _parts(report)}


def _parts(report: Report) -> Iterable[tuple[str, Any]]:
    """Each key with its value; the long lists as iterators, so that one entry at a time is made."""
    parts: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": _run(report),
        "summary": _summary(report),
        "frames": _frames(report),
        "graphs": (_graph(graph, report.pictures) for graph in report.run.graphs),
        "graph_breaks": map(_graph_break, report.graph_breaks),
        "recompiles": map(_entry, report.recompiles),
        "fallbacks": map(_fallback, report.fallbacks),
        "mutations": (mutation_entry(item, _entry) for item in report.mutations),
        "findings": map(_finding, report.findings),
        "transitions": map(_transition, report.transitions),
        "guards": map(_guards, report.guards),
        "compile_time": _compile_time(report.compile_time),
        "parity": None if report.parity is None else _entry(report.parity),
        "parity_why": _known(report.parity, NO_PARITY),
        "could_happen": _could_happen(report),
        "could_happen_why": _known(report.replayed, NO_REPLAY),
        "compiled_work": _compiled_work(report.run),
        "compiled_work_why": why_no_work(report.run),
        "ranks": report.ranks,
        "rank_groups": None if report.run.ranks is None else _entry(report.run.ranks),
        "rank_groups_why": _known(report.run.ranks, NO_RANKS),
        "notes": (*wording.changed_sources(report), *report.notes),
        "failed_passes": report.failed_passes,
        "pictures": plain(dict(sorted(report.pictures.items()))),
    }
    return parts.items()


def chunks(report: Report) -> Iterator[str]:
    """The JSON text piece by piece: one entry of a list a line, so that big reports stream and `diff` and `grep` work."""
    opening = "{\n"
    for key, value in _parts(report):
        yield f"{opening}{json.dumps(key)}: "
        if key in _LISTS:
            yield from _list_chunks(value)
        else:
            yield from _object_chunks(value) if key == "parity" and value else (_text(value, indent=1),)
        opening = ",\n"
    yield "\n}\n"


def _list_chunks(entries: Iterable[Any]) -> Iterator[str]:
    opening = "["
    for entry in entries:
        yield f"{opening}\n {_text(entry)}"
        opening = ","
    yield "\n]" if opening == "," else "[]"


def _object_chunks(fields_of: Mapping[str, Any]) -> Iterator[str]:
    """An object whose lists may be long: a field, or an entry of a list, a line."""
    opening = "{"
    for name, value in fields_of.items():
        yield f"{opening}\n {json.dumps(name)}: "
        yield from _list_chunks(value) if isinstance(value, tuple) else (_text(value),)
        opening = ","
    yield "\n}"


def _text(value: Any, indent: int | None = None) -> str:
    quick = finite_json.encoded(value, _ENCODER) if indent is None else None
    if quick is None:
        return json_escaped(finite_json.dumps(plain(value), indent=indent, ensure_ascii=False))
    return json_escaped(encodable(quick))


def dumps(report: Report) -> str:
    """The JSON text of the report, ending in a line break; UTF-8 can always encode it."""
    return "".join(chunks(report))


def _known(value: Any, why: str) -> str | None:
    """The reason that goes beside a value: None when it is known."""
    return why if value is None else None


def _run(report: Report) -> dict[str, Any]:
    run, info = report.run, report.run.info
    complete, why = completeness(run)
    skipped: Counter[str] = Counter()
    for process in run.processes:
        skipped.update(process.skipped)
    foreign = "the log does not say: it was not recorded by `dynadiag explain SCRIPT`"
    entry: dict[str, Any] = {
        "dynadiag": info.dynadiag,
        "dynadiag_why": _known(info.dynadiag, foreign),
        "directory": info.directory,
        "started_at": info.started_at,
        "started_at_why": _known(info.started_at, foreign),
        "ended_at": info.ended_at,
        "cwd": info.cwd,
        "command": info.command,
        "command_why": _known(info.command, foreign),
        "exit_status": info.exit_status,
        "exit_status_why": _known(info.exit_status, not_ended(info) or foreign),
        "signal": info.signal,
        "complete": complete,
        "complete_why": why,
        "timed_out": info.timed_out,
        "interrupted": info.interrupted,
        "stopped_stable": info.stopped_stable,
        "running": info.running,
        "killed": info.killed,
        "unended": info.unended,
        "stopped": info.stopped,
        "records": sum(process.records for process in run.processes) + run.left_out.get("records", 0),
        "records_skipped": sum(skipped.values()),
        "records_skipped_by": dict(sorted(skipped.items())),
        "config": next((process.config for process in run.processes if process.config), {}),
        "caches": _caches(report),
        "processes": [_process(process) for process in run.processes],
        "notes": run.notes,
    }
    return dict(plain(entry))


def _caches(report: Report) -> dict[str, dict[str, int]]:
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for event in report.run.caches:
        table[encodable(event.cache)][encodable(event.result)] += 1
    return {cache: dict(sorted(table[cache].items())) for cache in sorted(table)}


def _process(process: Process) -> dict[str, Any]:
    names = ("index", "pid", "parent_pid", "rank", "torch", "python", "device", "argv", "started_at", "environment", "machine", "log")
    entry = {name: plain(getattr(process, name)) for name in names}
    why = "the log does not say: no dynadiag_environment record"
    return entry | {
        "torch_why": _known(process.torch, why),
        "device_why": _known(process.device, DEVICE_WHY),
        "events": process.records,
        "skipped": plain(process.skipped),
        "unknown_artifacts": plain(process.unknown_artifacts),
        "config": plain(process.config),
        "hooks": plain(process.hooks),
        "counters": plain(process.counters),
        "calls": process.calls,
        "finished": process.finished,
        "alike": process.alike,
        "from_text": process.from_text,
    }


def _summary(report: Report) -> dict[str, Any]:
    summary = report.summary
    time_why = (report.compile_time.why if report.compile_time else None) or NO_COMPILE_TIME
    entry: dict[str, Any] = plain(summary)
    return entry | {
        "mutations_why": _known(summary.mutations, NO_MUTATION_PASS),
        "compile_s_why": plain(_known(summary.compile_s, time_why)),
    }


def _frames(report: Report) -> Iterator[dict[str, Any]]:
    graphs: dict[str, list[str]] = defaultdict(list)
    breaks: dict[str, list[str]] = defaultdict(list)
    for graph in report.run.graphs:
        graphs[graph.frame].append(graph.id)
    for site in report.graph_breaks:
        for frame in site.frames:
            breaks[frame].append(site.id)
    return (_frame(frame, graphs.get(frame.id, []), breaks.get(frame.id, [])) for frame in report.run.frames)


def _frame(frame: Frame, graphs: list[str], breaks: list[str]) -> dict[str, Any]:
    return {
        "id": frame.id,
        "compile_id": frame.key.text,
        "process": frame.key.process,
        "epoch": frame.key.epoch,
        "attempt": max(frame.attempts - 1, 0),
        "attempts": frame.attempts,
        "call": frame.call,
        "name": frame.name,
        "file": frame.file,
        "line": frame.line,
        "outcome": frame.outcome,
        "error": frame.error,
        "graphs": graphs,
        "breaks": breaks,
        "stack": frame.callers or frame.stack,
        "metrics": frame.metrics,
        "guard_count": frame.guards.count if frame.guards else None,
    }


def _graph(graph: Graph, pictures: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": graph.id,
        "frame": graph.frame,
        "kind": graph.kind,
        "attempt": graph.attempt,
        "nodes": graph.nodes,
        "nodes_why": _known(graph.nodes, graph.why_not or "the graph's text could not be read"),
        "ops": graph.ops,
        "svg": pictures.get(graph.id),
        "svg_why": _known(pictures.get(graph.id), "not drawn"),
        "runnable": graph.runnable,
        "why_not": graph.why_not or (None if graph.runnable else NOT_PROBED),
    }


def _graph_break(site: GraphBreak) -> dict[str, Any]:
    return _entry(site) | {
        "gb_id_why": _known(site.gb_id, "torch gave this break no id"),
        "own_frame_why": _known(site.own_frame, "the recorded stack has no frame outside site-packages and the standard library"),
        "torch_frame_why": _known(site.torch_frame, "torch recorded no user frame"),
    }


def _transition(item: Transition) -> dict[str, Any]:
    return _entry(item) | {"limit_why": _known(item.limit, "the recompile limit was not recorded")}


def _fallback(item: Fallback) -> dict[str, Any]:
    return _entry(item) | {
        "own_frame_why": _known(item.own_frame, "the record names no line outside site-packages and the standard library")
    }


def _guards(item: GuardReport) -> dict[str, Any]:
    return _entry(item) | {"latency_us_why": _known(item.latency_us, "torch did not record the cost of these guards")}


def _finding(item: Finding) -> dict[str, Any]:
    entry = {"why" if name == "clauses" else name: value for name, value in _entry(item).items()}
    return entry | {"why": item.why, "cost_why": _known(item.cost, "nothing was measured or counted for this finding")}


def _could_happen(report: Report) -> dict[str, Any] | None:
    """What was replayed; its findings stand in `findings`, by their codes."""
    if report.replayed is None:
        return None
    told = report.replayed
    return {"torch": plain(told.torch), "graphs": told.graphs, "compared": told.compared, "findings": len(told.findings)}


def _compiled_work(run: Run) -> dict[str, Any] | None:
    work = compiled_work(run)
    if work is None:
        return None
    entry = {
        "operators": work.operators,
        "operators_compiled": work.compiled,
        "share": work.share,
        "share_why": _known(work.share, "the calls that were looked at run no operator"),
        "graphs_per_call": work.graphs,
        "breaks_per_call": work.breaks,
        "time_share": work.time,
        "time_share_why": _known(work.time, NO_TIME),
    }
    calls = [
        {
            "process": item.process,
            "function": item.function,
            "call": item.call,
            "operators": item.in_graphs + item.outside,
            "operators_compiled": item.in_graphs,
            "graphs": item.graphs,
            "breaks": breaks_in(item, run),
            "eager_part": item.eager is not None,
        }
        for item in run.work
    ]
    return dict(plain(entry | {"calls": calls}))


def _compile_time(item: CompileTime | None) -> dict[str, Any]:
    shown = item or CompileTime(total_s=None, phases={}, thrown_away_s=None, caches={}, frames=(), why=NO_COMPILE_TIME)
    entry: dict[str, Any] = plain(shown)
    return entry
