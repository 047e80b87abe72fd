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
from dynadiag.model.report import Advice, CompileTime, Finding, Mutation, Report
from dynadiag.model.run import Frame, Process, Run
from dynadiag.render import finite_json, wording
from dynadiag.render.completeness import completeness, not_ended
from dynadiag.render.report_keys import (
    OF_MUTATIONS,
    REASONS,
    CallKeys,
    CompiledWorkKeys,
    CouldHappenKeys,
    FrameKeys,
    GraphKeys,
    ProcessKeys,
    ReportFile,
    RunKeys,
)
from dynadiag.render.sanitise import encodable, json_escaped

NOT_PROBED = "not tried: the probe did not run on this graph"
DEVICE_WHY = "not recorded (the recorder asks CUDA only once the script has initialised it)"
NO_COMPILE_TIME = "no compile time was recorded"
NO_REPLAY = "`dynadiag parity` was not run on this recording, so calls that the program did not make were not tried"
NO_RANKS = "fewer than two ranks were recorded"
NO_PARITY = "calls were not compared with eager: the script was not run with --parity"
NO_MUTATION_PASS = "mutations were not analysed"
_NOT_RECORDED = "not recorded"
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
    if kind is Advice:
        return plain(_inside(value))
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
    if isinstance(value, Advice):
        return {name: item for name, item in (_entry(value) | {"text": value.words}).items() if name != "clauses"}
    return _entry(value) if _field_names(type(value)) else plain(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_inside)


def to_dict(report: Report) -> dict[str, Any]:
    """The report as plain dicts and lists, keys as DESIGN's table names them and in that order.

    Args:
        report: what `dynadiag.report.build` made; every value in it may come from a hostile log.
    """
    return {key: plain(list(value) if isinstance(value, Iterator) else value) for key, value in _parts(report).items()}


def _parts(report: Report) -> ReportFile:
    """Each key with its value; the long lists as iterators, so that one entry at a time is made."""
    return {
        "schema_version": 1,
        "run": _run(report),
        "summary": _summary(report),
        "frames": _frames(report),
        "graphs": (_graph(graph, report.pictures) for graph in report.run.graphs),
        "graph_breaks": map(_explained, report.graph_breaks),
        "recompiles": report.recompiles,
        "fallbacks": map(_explained, report.fallbacks),
        "mutations": map(_mutation, report.mutations),
        "findings": map(_finding, report.findings),
        "transitions": map(_explained, report.transitions),
        "guards": map(_explained, report.guards),
        "compile_time": _compile_time(report.compile_time),
        "parity": report.parity,
        "parity_why": _known(report.parity, NO_PARITY),
        "could_happen": _could_happen(report),
        "could_happen_why": _known(report.replayed, NO_REPLAY),
        "compiled_work": _compiled_work(report.run),
        "compiled_work_why": why_no_work(report.run),
        "ranks": report.ranks,
        "rank_groups": report.run.ranks,
        "rank_groups_why": _known(report.run.ranks, NO_RANKS),
        "notes": (*wording.changed_sources(report), *report.notes),
        "failed_passes": report.failed_passes,
        "pictures": dict(sorted(report.pictures.items())),
    }


def chunks(report: Report) -> Iterator[str]:
    """The JSON text piece by piece: one entry of a list a line, so that big reports stream and `diff` and `grep` work."""
    opening = "{\n"
    for key, value in _parts(report).items():
        yield f"{opening}{json.dumps(key)}: "
        if key in _LISTS:
            yield from _list_chunks(value)
        else:
            yield from _object_chunks(_entry(value)) if key == "parity" and value is not None else (_text(value, indent=1),)
        opening = ",\n"
    yield "\n}\n"


def _list_chunks(entries: Any) -> Iterator[str]:
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


def _run(report: Report) -> RunKeys:
    run, info = report.run, report.run.info
    complete, why = completeness(run)
    skipped: Counter[str] = Counter()
    for process in run.processes:
        skipped.update(process.skipped)
    foreign = "the log does not say: it was not recorded by `dynadiag explain SCRIPT`"
    return {
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


def _caches(report: Report) -> dict[str, dict[str, int]]:
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for event in report.run.caches:
        table[encodable(event.cache)][encodable(event.result)] += 1
    return {cache: dict(sorted(table[cache].items())) for cache in sorted(table)}


def _process(process: Process) -> ProcessKeys:
    why = "the log does not say: no dynadiag_environment record"
    return {
        "index": process.index,
        "pid": process.pid,
        "parent_pid": process.parent_pid,
        "rank": process.rank,
        "torch": process.torch,
        "python": process.python,
        "device": process.device,
        "argv": process.argv,
        "started_at": process.started_at,
        "environment": process.environment,
        "machine": process.machine,
        "log": process.log,
        "torch_why": _known(process.torch, why),
        "device_why": _known(process.device, DEVICE_WHY),
        "events": process.records,
        "skipped": process.skipped,
        "unknown_artifacts": process.unknown_artifacts,
        "config": process.config,
        "hooks": process.hooks,
        "counters": process.counters,
        "calls": process.calls,
        "finished": process.finished,
        "alike": process.alike,
        "from_text": process.from_text,
    }


def _summary(report: Report) -> dict[str, Any]:
    time_why = (report.compile_time.why if report.compile_time else None) or NO_COMPILE_TIME
    reasons = {"mutations": NO_MUTATION_PASS, "compile_s": time_why}
    return _with_reasons(_entry(report.summary), reasons)


def _frames(report: Report) -> Iterator[FrameKeys]:
    graphs: dict[str, list[str]] = defaultdict(list)
    breaks: dict[str, list[str]] = defaultdict(list)
    for graph in report.run.graphs:
        graphs[graph.frame].append(graph.id)
    for site in report.graph_breaks:
        for frame in site.frames:
            breaks[frame].append(site.id)
    return (_frame(frame, graphs.get(frame.id, []), breaks.get(frame.id, [])) for frame in report.run.frames)


def _frame(frame: Frame, graphs: list[str], breaks: list[str]) -> FrameKeys:
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


def _graph(graph: Graph, pictures: Mapping[str, str]) -> GraphKeys:
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


def _explained(item: Any) -> dict[str, Any]:
    """An entry, and for each field that may be null why it is."""
    return _with_reasons(_entry(item), REASONS[type(item)])


def _with_reasons(entry: dict[str, Any], reasons: Mapping[str, str]) -> dict[str, Any]:
    return entry | {f"{name}_why": why if entry[name] is None else None for name, why in reasons.items()}


def _mutation(item: Mutation) -> dict[str, Any]:
    """A mutation says itself why something is not known; an empty list needs a reason too."""
    entry = _entry(item)
    unknown = entry.pop("unknown")
    return entry | {
        f"{name}_why": unknown.get(name, _NOT_RECORDED) if entry[name] is None or entry[name] == () else None for name in OF_MUTATIONS
    }


def _finding(item: Finding) -> dict[str, Any]:
    entry = {"why" if name == "clauses" else name: value for name, value in _entry(item).items()}
    return _with_reasons(entry | {"why": item.why}, REASONS[Finding])


def _could_happen(report: Report) -> CouldHappenKeys | None:
    """What was replayed; its findings stand in `findings`, by their codes."""
    if report.replayed is None:
        return None
    told = report.replayed
    return {"torch": told.torch, "graphs": told.graphs, "compared": told.compared, "findings": len(told.findings)}


def _compiled_work(run: Run) -> CompiledWorkKeys | None:
    work = compiled_work(run)
    if work is None:
        return None
    calls: list[CallKeys] = [
        {
            "process": call.process,
            "function": call.function,
            "call": call.call,
            "operators": call.in_graphs + call.outside,
            "operators_compiled": call.in_graphs,
            "graphs": call.graphs,
            "breaks": breaks_in(call, run),
            "eager_part": call.eager is not None,
        }
        for call in run.work
    ]
    return {
        "operators": work.operators,
        "operators_compiled": work.compiled,
        "share": work.share,
        "share_why": _known(work.share, "the calls that were counted run no operator"),
        "graphs_per_call": work.graphs,
        "breaks_per_call": work.breaks,
        "time_share": work.time,
        "time_share_why": _known(work.time, NO_TIME),
        "calls": calls,
    }


def _compile_time(item: CompileTime | None) -> CompileTime:
    return item or CompileTime(total_s=None, phases={}, thrown_away_s=None, caches={}, frames=(), why=NO_COMPILE_TIME)
