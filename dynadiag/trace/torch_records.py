"""What each kind of torch's own records adds to a run: one function a kind, by the record's key or the artifact's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dynadiag.model.graph import Graph, GraphKind
from dynadiag.model.location import PayloadRef
from dynadiag.model.run import SOFT_ERRORS, Problem, RecompileEvent, Symbol
from dynadiag.trace import compiled_records
from dynadiag.trace.break_text import last_exception, parse_break, parse_reason
from dynadiag.trace.builders import FrameBuilder, ProcessBuilder, RunBuilder, attempt_of, key_of
from dynadiag.trace.cache_records import cache_look_up
from dynadiag.trace.graph_text import count_graph
from dynadiag.trace.guards import read_guards
from dynadiag.trace.metrics import limit_in, merged, read_metrics
from dynadiag.trace.records import Record
from dynadiag.trace.stacks import interned_stack, printed_stack
from dynadiag.trace.values import BadRecordError, as_bool, as_dict, as_float, as_id, as_int, as_list, as_text, as_texts, decode, parse_json

Handler = Callable[[RunBuilder, ProcessBuilder, Record], None]
LONGEST_ERROR = 4000
_LONGEST_PATH = 4096
_LONGEST_REASON = 100_000
_LEAST_REASON = 200
_MOST_RESTARTS = 1000
_MOST_OPS = 2000
_MOST_REASONS = 300  # torch lists one for each version in the cache, the newest first; 256 is where it gives up


def intern(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`str`: a string and its number, used by the stacks that follow."""
    pair = as_list(record.value)
    number = as_id(pair[1]) if len(pair) == 2 else None
    text = as_text(pair[0]) if pair else None
    if number is None or text is None:
        raise BadRecordError("interned string is mistyped")
    if run.room.take("strings", len(text)):
        process.strings[number] = text[:_LONGEST_PATH]


def start(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynamo_start`: a frame is being compiled. A compile id that starts again means that Dynamo was reset in between."""
    header = record.header
    stack = run.share(interned_stack(as_dict(record.value).get("stack"), process.strings, process.inherited))
    key = key_of(process, header)
    seen = process.frames.get(key)
    line = hash(record.line)
    if seen is not None and seen.start is not None:
        if seen.start == line:
            process.skip("repeated record")
            return
        process.epoch += 1
        key = key_of(process, header)
        seen = process.frames.get(key)
    frame = seen or run.new_frame(process, key)
    frame.attempts = max(frame.attempts, attempt_of(header) + 1)
    frame.start, frame.stack, frame.record = line, stack, record.index
    if stack:
        code = stack[-1]
        frame.name, frame.file, frame.line = code.function, code.file, code.line
        frame.stack = stack[:-1]


def metrics(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`compilation_metrics`, also of the backward and at run time: they complete what is known of the frame."""
    values = as_dict(record.value)
    if not values:
        raise BadRecordError("metrics are mistyped")
    if as_id(record.header.get("frame_id")) is None:
        return
    frame = run.frame_of(process, record.header)
    found = read_metrics(_within(run, values), limit_in(record.line))
    if record.kind == "compilation_metrics":
        frame.metrics, frame.finished = merged(found, frame.metrics) if frame.metrics else found, True
        frame.suppressed = as_bool(values.get("config_suppress_errors"))
        frame.name = frame.name or as_text(values.get("co_name"))
        frame.file = frame.file or as_text(values.get("co_filename"))
        frame.line = frame.line if frame.line is not None else as_int(values.get("co_firstlineno"))
        _versions(process, as_text(values.get("pytorch_version")), as_text(values.get("python_version")))
    else:
        if record.kind == "bwd_compilation_metrics" and found.fail_type is not None:
            _backward_failed(run, process, frame, f"{found.fail_type}: {found.fail_reason or 'torch recorded no reason'}")
            found = replace(found, fail_type=None, fail_reason=None, fail_location=None)
        frame.metrics = merged(frame.metrics, found)
    process.has_metrics = True
    frame.record = frame.record if frame.record is not None else record.index


def _within(run: RunBuilder, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values with texts that have room; those of honest programs are never cut."""
    kept = dict(values)
    for name in ("fail_type", "fail_reason", "recompile_reason", "cudagraph_skip_reason"):
        if text := as_text(values.get(name)):
            kept[name] = run.room.fits(text[:_LONGEST_REASON], _LEAST_REASON)
    if reasons := as_texts(values.get("restart_reasons")):
        kept["restart_reasons"] = [run.share(reason[:_LONGEST_REASON]) for reason in reasons[:_MOST_RESTARTS]]
    return kept


def _backward_failed(run: RunBuilder, process: ProcessBuilder, frame: FrameBuilder, text: str) -> None:
    """The forward may have been compiled and run before, so the frame did not fail. torch tries a dynamic backward twice: told once."""
    if not frame.backward_failed and run.room.take("problems"):
        frame.backward_failed = True
        run.problems.append(Problem(kind="backward_error", process=process.index, text=run.share(text[:LONGEST_ERROR]), frame=frame.id))


def _versions(process: ProcessBuilder, torch: str | None, python: str | None) -> None:
    if torch and not process.facts.get("torch"):
        process.facts["torch"] = torch
    if python and not process.facts.get("python"):
        process.facts["python"] = python.split()[0] if python.strip() else None


def torch_version(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`torch_version` (torch 2.12 and newer): the version that ran."""
    _versions(process, as_text(record.object().get("pytorch_version")), None)


def graph_break(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynamo_graph_break_reason`: one event of a graph break."""
    text = parse_break(record.text())
    frame = run.frame_of(process, record.header)
    attempt = attempt_of(record.header)
    cause = _warning_before(run, frame, attempt) if not text.warning else None
    if not run.room.take("graph break events"):
        return
    frame.breaks.append(len(run.breaks))
    cause = (text.cause or cause or "")[:LONGEST_ERROR] or None
    text = replace(text, cause=cause, prefix=WARNING if text.warning else text.prefix)
    run.breaks.append(run.break_event(text, frame.id, attempt, record=record.index))


def _warning_before(run: RunBuilder, frame: FrameBuilder, attempt: int) -> str | None:
    """The cause out of a warning of the same break: `unimplemented_with_warning` writes a record of its own before the break is logged."""
    if not frame.breaks:
        return None
    before = run.breaks[frame.breaks[-1]]
    if before is None or before.attempt != attempt or before.prefix != WARNING:
        return None
    run.breaks[frame.breaks.pop()] = None
    return before.cause


WARNING = "backend warning"


def error(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynamo_error`: the exception that ended the compilation of a frame; of a skipped frame it has the second half of the reason."""
    text = record.text()
    raised = last_exception(text)
    frame = run.frame_of(process, record.header)
    if raised is None:
        return
    frame.error_type, message = raised[0].rpartition(".")[2], raised[1].strip()
    frame.error = run.share(f"{frame.error_type}: {message}"[:LONGEST_ERROR])
    _, said, user_code = text.rpartition("\nfrom user code:\n")
    frame.user_stack = run.share(printed_stack(user_code.split("\n"))) if said else ()
    if frame.error_type in SOFT_ERRORS:
        _join_skip_reason(run, frame, message)


def _join_skip_reason(run: RunBuilder, frame: FrameBuilder, message: str) -> None:
    if not frame.breaks:
        return
    event = run.breaks[frame.breaks[-1]]
    if event is None or event.skip_reason is not None:
        return
    first, second = parse_reason(message)
    said = second or (first if first.gb_type != event.gb_type else None)
    if said is not None:
        text = f"{said.gb_type}: {said.explanation}" if said.explanation else said.gb_type
        run.breaks[frame.breaks[-1]] = replace(event, skip_reason=run.share(text))


def recompile(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`recompile_reasons`: which guards of the cache entries failed (one reason as plain text, several as a JSON list)."""
    text = record.text()
    reasons: tuple[str, ...] = (text,)
    if text.startswith("["):
        found = as_list(parse_json(text, "payload is not JSON"))
        reasons = tuple(reason for reason in found if isinstance(reason, str))
    if len(reasons) > _MOST_REASONS:
        run.note(f"of recompiles with more than {_MOST_REASONS} failed guards the first {_MOST_REASONS} are shown")
        reasons = reasons[:_MOST_REASONS]
    frame = run.frame_of(process, record.header, coming=True)
    if run.room.take("recompiles"):
        frame.reasons = tuple(map(run.share, reasons))
        run.recompiles.append(RecompileEvent(frame=frame.id, reasons=frame.reasons, record=record.index))


def guards(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynamo_cpp_guards_str`: the guards of a frame, summed up."""
    frame = run.frame_of(process, record.header)
    found, latency = read_guards(decode(record.raw_payload()), frame.reasons, values="rank" in process.facts)
    if found is not None:
        frame.guards = run.shared_guards(found)
    frame.latency_us = latency
    compiled_records.listing("guards", run, process, record, frame)


def symbol(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`create_symbol`: a size, stride or number that is compiled as dynamic."""
    values = as_dict(record.value)
    name, source = as_text(values.get("symbol")), as_text(values.get("source"))
    if name is None or source is None:
        raise BadRecordError("symbol is mistyped")
    frame = run.frame_of(process, record.header)
    key = (frame.id, attempt_of(record.header), name)
    if key not in run.symbols and not run.room.take("dynamic symbols", len(source)):
        return
    found = Symbol(frame=frame.id, symbol=name, source=source, value=as_text(values.get("val")), range=as_text(values.get("vr")))
    run.symbols[key] = found


def specialization(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`symbolic_shape_specialization`: a symbol became a constant after all."""
    frame = run.frame_of(process, record.header)
    key = (frame.id, attempt_of(record.header), as_text(as_dict(record.value).get("symbol")) or "")
    if key in run.symbols:
        run.symbols[key] = replace(run.symbols[key], specialized=True)
    compiled_records.specialized(run, process, record)


def phase(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`chromium_event`: a phase of the compilation begins or ends (those that torch prints as it does today are read by `load`)."""
    event = record.object()
    name, at = as_text(event.get("name")), as_float(event.get("ts"))
    kind = event.get("ph")
    if name is None or at is None or not isinstance(kind, str):
        raise BadRecordError("event is mistyped")
    if kind == "B":
        process.clock.begin(name, at)
    elif kind == "E":
        frame = run.known_frame(process, record.header)
        process.clock.end(name, at, frame.id if frame else None, run.room)


def _graph(kind: GraphKind) -> Handler:
    def add(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
        frame = run.frame_of(process, record.header)
        if not run.room.take("graphs"):
            return
        count = count_graph(record.payload())
        graph = Graph(
            id=f"g{len(run.graphs)}",
            frame=frame.id,
            kind=kind,
            attempt=attempt_of(record.header),
            nodes=count.nodes if count else None,
            ops=run.shared_counts({run.share(op): number for op, number in _few(count.ops).items()}) if count else {},
            text=PayloadRef(process.log, record.payload_offset, record.payload_length),
            why_not=None if count else "the graph's text contains no forward method",
            record=record.index,
        )
        frame.graphs.append(len(run.graphs))
        run.graphs.append(graph)

    return add


def _few(ops: Mapping[str, int]) -> Mapping[str, int]:
    """The counts by op; an honest graph has some hundreds of ops, a hostile one any number."""
    if len(ops) <= _MOST_OPS:
        return ops
    few = dict(sorted(ops.items(), key=lambda item: -item[1])[:_MOST_OPS])
    return {**few, "others": sum(ops.values()) - sum(few.values())}


BY_KEY: dict[str, Handler] = {
    "str": intern,
    "dynamo_start": start,
    "compilation_metrics": metrics,
    "bwd_compilation_metrics": metrics,
    "dynamo_cpp_guards_str": guards,
    "create_symbol": symbol,
    "symbolic_shape_specialization": specialization,
    "guard_added_fast": compiled_records.guard_added,
    "create_unbacked_symbol": compiled_records.unbacked,
    "chromium_event": phase,
    "inductor_output_code": compiled_records.output_code,
    "dynamo_output_graph": _graph("dynamo"),
    "aot_joint_graph": _graph("aot_joint"),
    "aot_forward_graph": _graph("aot_forward"),
    "aot_backward_graph": _graph("aot_backward"),
    "aot_inference_graph": _graph("aot_inference"),
    "inductor_post_grad_graph": _graph("post_grad"),
}

BY_ARTIFACT: dict[str, Handler] = {
    "dynamo_graph_break_reason": graph_break,
    "dynamo_error": error,
    "recompile_reasons": recompile,
    "torch_version": torch_version,
    "inductor_post_grad_graph": _graph("post_grad"),
    "after_post_grad_graph": _graph("post_grad"),
    **{
        f"{name}_cache_{result}": cache_look_up(name, result)
        for name in ("fx_graph", "aotautograd")
        for result in ("hit", "miss", "bypass")
    },
}
