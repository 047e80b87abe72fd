"""What dynadiag's own artifacts (`dynadiag_*`) add to a run; other people's logs have none of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dynadiag.masking import masked_arguments, masked_setting
from dynadiag.model.compiled import CompiledTime, CompiledWork, EagerCall
from dynadiag.model.graph import Graph
from dynadiag.model.location import Location, PayloadRef
from dynadiag.model.run import UNGUARDED, CallProfile, CompileCall, Problem, RegionCost, RegistryEntry, SourceFunction, UnguardedState
from dynadiag.trace import compiled_records
from dynadiag.trace.builders import ProcessBuilder, RunBuilder, attempt_of, key_of
from dynadiag.trace.cache_records import key_parts
from dynadiag.trace.parity import parity, whole_call
from dynadiag.trace.records import Record
from dynadiag.trace.stacks import named_stack, printed_stack
from dynadiag.trace.torch_records import LONGEST_ERROR, Handler
from dynadiag.trace.values import BadRecordError, as_bool, as_dict, as_float, as_id, as_list, as_text, as_texts, shallow

_MOST_ENTRIES = 20_000
_OF_TORCH = "payload: "  # as `torch_compat/trace/structured.py` names a payload that raised
_NO_COST = "--cost: "  # older logs give the kind of a failed hook to the reason why nothing was measured
_MOST_PREFIXES = 200
_MOST_ROOTS, _LONGEST_PATH = 8, 4096
_MOST_ARGUMENTS = 1000
_MOST_AREAS = 20
_LONGEST = 100_000
_MOST_BLOCKS = 2_000
_LONGEST_BLOCK = 8_000
_MOST_FUNCTIONS = 5_000
_MOST_VARIABLES = 200
_LONGEST_VERSION = 200
_LONGEST_FUNCTION = 40_000
_REGION = re.compile(r"(\d{1,9})/(\d{1,9})")
_OPERATOR_COUNT = re.compile(rb'\s*\{\s*"graph": \d{1,9},\s*"operator_count": (\d{1,9}),')
_MOST_ENDED = 20  # exceptions that ended a process: one does, or one a thread


def environment(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_environment`: who the process was."""
    facts = record.object()
    torch, python, started = (as_text(facts.get(name)) for name in ("torch", "python", "started_at"))
    found = {
        "pid": as_id(facts.get("pid")),
        "parent_pid": as_id(facts.get("ppid")),
        "rank": as_id(facts.get("rank")),
        "torch": torch,
        "python": python,
        "device": as_text(facts.get("device")),
        "argv": run.share(masked_arguments(as_texts(facts.get("argv"))[:_MOST_ARGUMENTS])) or None,
        "started_at": started,
        "machine": _machine(run, facts),
        "environment": {
            key: run.share(masked_setting(key, text[:_LONGEST]))
            for key, text in as_dict(facts.get("env")).items()
            if isinstance(text, str) and run.room.take("settings", len(key))
        },
    }
    process.facts.update({name: value for name, value in found.items() if value is not None})
    for path, name in list(as_dict(facts.get("project")).items())[:_MOST_ROOTS]:
        if isinstance(name, str) and len(run.project) < _MOST_PREFIXES:
            run.project.setdefault(path[:_LONGEST_PATH], name[:_LONGEST_PATH])
    if (around := as_text(facts.get("around"))) is not None and len(run.around) < _MOST_PREFIXES:
        run.around[around[:_LONGEST_PATH]] = None
    for name, kept in (("site_prefixes", run.site_prefixes), ("libraries", run.libraries)):
        for prefix in as_texts(facts.get(name))[:_MOST_PREFIXES]:
            if len(kept) < _MOST_PREFIXES:
                kept[prefix] = None


def _machine(run: RunBuilder, facts: Mapping[str, Any]) -> Mapping[str, str]:
    """What PyTorch's bug form asks of the machine, by the names that its own tool gives it."""
    built = {"PyTorch version": "torch", "PyTorch git version": "git", "CUDA used to build PyTorch": "cuda"}
    told = {**{name: facts.get(key) for name, key in built.items()}, **as_dict(facts.get("machine"))}
    return {run.share(name[:200]): run.share(text[:2000]) for name, text in list(told.items())[:50] if isinstance(text, str)}


def config(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_config`: the options that differ from their defaults, and the names of all; a later record replaces an earlier one."""
    facts = record.object()
    _name_device(process, facts)
    for area in ("dynamo", "functorch", "inductor"):
        if isinstance(facts.get(area), dict):
            process.config[area] = _options(run, facts[area])
    if (grad := as_bool(facts.get("grad_mode"))) is not None:
        process.config["torch"] = {"grad_mode": grad}
    for area, names in as_dict(facts.get("options")).items():
        if area in process.option_names or len(process.option_names) < _MOST_AREAS:
            process.option_names[area] = run.share(frozenset(as_texts(names)[:_MOST_ENTRIES]))


def _options(run: RunBuilder, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of an area, as far as there is room; those of all ranks are kept once."""
    if not values:
        return values
    text = json.dumps(shallow(values))
    known: Mapping[str, Any] | None = run.shared.get(("options", text))
    if known is None:
        known = {name: value for name, value in values.items() if run.room.take("settings", len(text) // len(values))}
        run.shared["options", text] = known
    return known


def _name_device(process: ProcessBuilder, facts: Mapping[str, Any]) -> None:
    """The name of a GPU, from the first record written after the script had initialised it."""
    if (name := as_text(facts.get("device"))) is not None:
        process.facts.setdefault("device", name)


def registry(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_registry`: what the torch that ran says of one graph-break id."""
    facts = record.object()
    gb_id = as_text(facts.get("gb_id"))
    if gb_id is None:
        raise BadRecordError("registry entry is mistyped")
    if len(process.registry) < _MOST_ENTRIES and run.room.take("settings"):
        texts = [as_text(facts.get(name)) or "" for name in ("gb_type", "explanation")]
        process.registry[gb_id] = run.share(RegistryEntry(gb_id, texts[0], texts[1], as_texts(facts.get("hints"))))


def source(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_source`: the text of the statement that broke and of those behind it in its block."""
    facts = record.object()
    file, line, text = as_text(facts.get("file")), as_id(facts.get("line")), as_text(facts.get("text"))
    if file is None or line is None or text is None:
        raise BadRecordError("source is mistyped")
    if len(run.blocks) < _MOST_BLOCKS and len(text) <= _LONGEST_BLOCK and run.room.take("settings"):
        run.blocks.setdefault((file, line), text)


def function(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_function`: the source of a function of the user's that was compiled, or inlined."""
    facts = record.object()
    file, line, name, text = as_text(facts.get("file")), as_id(facts.get("line")), as_text(facts.get("name")), as_text(facts.get("text"))
    if file is None or line is None or name is None or text is None:
        raise BadRecordError("function is mistyped")
    if len(run.functions) < _MOST_FUNCTIONS and len(text) <= _LONGEST_FUNCTION and run.room.take("settings", len(text)):
        run.functions.setdefault((file, line), SourceFunction(file, line, name, text))


def library_function(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_library_function`: the source of a function of a library, between a line of the user's and a graph break."""
    facts = record.object()
    file, line, name, text = as_text(facts.get("file")), as_id(facts.get("line")), as_text(facts.get("name")), as_text(facts.get("text"))
    if file is None or line is None or name is None or text is None:
        raise BadRecordError("library function is mistyped")
    variables = [(item, found) for item, found in as_dict(facts.get("environment")).items() if isinstance(found, str)][:_MOST_VARIABLES]
    if len(run.library_functions) < _MOST_FUNCTIONS and len(text) <= _LONGEST_FUNCTION and run.room.take("settings", len(text)):
        run.library_functions.setdefault((file, line), SourceFunction(file, line, name, text, tuple(variables)))


def library(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_library`: the version of a package of the atlas that was imported when something was compiled."""
    facts = record.object()
    package, version = as_text(facts.get("package")), as_text(facts.get("version"))
    if package is None or version is None or len(package) + len(version) > _LONGEST_VERSION:
        raise BadRecordError("library is mistyped")
    if len(process.libraries) < _MOST_VARIABLES and run.room.take("settings"):
        process.libraries.setdefault(run.share(package), run.share(version))


def compile_call(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_compile_call`: a call of `torch.compile`."""
    facts = record.object()
    if not run.room.take("torch.compile calls", record.payload_length):
        return
    stack = named_stack(facts.get("stack"))
    options = {key: value for key, value in facts.items() if key in ("mode", "fullgraph", "dynamic") and value is not None}
    options.update(as_dict(facts.get("options")))
    options = dict(shallow(options))
    call = CompileCall(
        process=process.index,
        location=_asking(stack),
        target=as_text(facts.get("target")) or "?",
        backend=as_text(facts.get("backend")),
        options=options,
        disabled=as_bool(facts.get("disable")) or False,
        definition=next(iter(named_stack([facts.get("definition")])), None),
        epoch=process.epoch,
    )
    run.compile_calls.append(call)


def unguarded(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_unguarded`: what was traced otherwise than Python does it, changed where no guard looks, or is checked no more."""
    facts = record.object()
    what, name = as_text(facts.get("what")), as_text(facts.get("name"))
    if what not in UNGUARDED or name is None:
        raise BadRecordError("unguarded is mistyped")
    if run.room.take("unguarded state", record.payload_length):
        frame = process.frames.get(key_of(process, record.header))
        kind, stack = as_text(facts.get("kind")), named_stack(facts.get("stack"))
        found = UnguardedState(process.index, what, name[:LONGEST_ERROR], kind, frame.id if frame is not None else None, stack)
        run.unguarded.append(found)


def _asking(stack: Sequence[Location]) -> Location | None:
    """The frame that asked to compile: the caller of what calls `torch.compile` itself, as `module.compile()` does, and the decorator that
    `torch.compile(backend=...)` returns.
    """
    asking = [location for location in stack if location.function not in _COMPILE_THEMSELVES] or stack
    return asking[-1] if asking else None


_COMPILE_THEMSELVES = ("Module.compile", "compile.<locals>.fn")  # torch/nn/modules/module.py and torch/__init__.py, 2.11 and 2.15


def graph(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_graph`: inputs, module and line of every node of the Dynamo graph that was recorded just before."""
    frame = run.frame_of(process, record.header)
    attempt = attempt_of(record.header)
    details = PayloadRef(process.log, record.payload_offset, record.payload_length)
    counted = _OPERATOR_COUNT.match(record.raw_payload())
    operators = int(counted[1]) if counted else None
    for position in reversed(frame.graphs):
        known = run.graphs[position]
        if known.kind == "dynamo" and known.attempt == attempt and known.details is None:
            run.graphs[position] = replace(known, details=details, operators=operators)
            return
    nodes = as_list(record.object().get("nodes"))
    if not run.room.take("graphs"):
        return
    frame.graphs.append(len(run.graphs))
    run.graphs.append(
        Graph(
            id=f"g{len(run.graphs)}",
            frame=frame.id,
            kind="dynamo",
            attempt=attempt,
            nodes=len(nodes) or None,
            ops={},
            text=None,
            details=details,
            operators=operators,
            why_not="torch recorded no text of this graph",
        )
    )


def problem(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_problem`: something went wrong or was switched off."""
    facts = record.object()
    kind = as_text(facts.get("kind"))
    if kind is None:
        raise BadRecordError("problem is mistyped")
    frame = run.frame_of(process, record.header) if "frame_id" in record.header else None
    if kind == "uncaught" and process.ended >= _MOST_ENDED:
        run.room.left["problems"] += 1
        return
    if not run.room.take("problems"):
        return
    process.ended += kind == "uncaught"
    stack = run.share(named_stack(facts.get("stack")) or printed_stack((as_text(facts.get("printed_stack")) or "")[:20_000].split("\n")))
    text = run.share((as_text(facts.get("text")) or "")[:LONGEST_ERROR])
    if kind == "recorder":
        if text.startswith(_OF_TORCH):
            run.note(f"torch could not make the text of one of its records, which is missing: {text.removeprefix(_OF_TORCH)}")
            return
        if text.startswith(_NO_COST):
            kind = "no_cost"
        else:
            run.note(f"a recorder hook failed: {text}")
    found = Problem(
        kind=run.share(kind[:LONGEST_ERROR]),
        process=process.index,
        text=text,
        raised=run.share((as_text(facts.get("raised")) or "")[:LONGEST_ERROR]) or None,
        frame=frame.id if frame else None,
        location=stack[-1] if stack else None,
        stack=stack,
        record=record.index,
    )
    run.problems.append(found)
    if kind == "unlogged_skip":
        run.left_silently.add(found.frame)


def reset(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_reset`: `torch._dynamo.reset()` was called; compile ids begin again. A log that begins later names a later epoch."""
    try:
        told = as_id(record.object().get("epoch"))
    except BadRecordError:
        told = None
    process.epoch = max(process.epoch + 1, told or 0)


# What each hook of the recorder (`Hooks.install`) tells; one that only some versions of torch can have is not among them.
_WATCHED = {
    "trace_handler": "torch's trace records",
    "trace_structured": "payloads of torch's trace that cannot be constructed",
    "torch.compile": "calls of torch.compile",
    "set_stance": "stances (torch.compiler.set_stance)",
    "disable": "functions that torch.compiler.disable excludes",
    "reset": "calls of torch._dynamo.reset",
    "call_user_compiler": "inputs, lines and errors of graphs",
    "recompile_limit": "frames that reached the recompile limit",
    "suppressed_error": "errors that torch suppressed",
    "no_tensor": "frames without a tensor",
    "cudagraph_skip": "skipped CUDA graphs",
    "cudagraph_partition": "parts of graphs that Inductor keeps out of the CUDA graphs",
    "cudagraph_rerecord": "recordings of CUDA graphs",
}


def hooks(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_hooks`: which parts of the recorder work in this torch."""
    found = {name: text for name, text in record.object().items() if isinstance(text, str)}
    for name, text in found.items():
        if text != "ok" and name in _WATCHED and process.hooks.get(name) != text:
            run.note(f"the recorder could not watch {_WATCHED[name]} in this torch: what it would record is missing (hook {name})")
        if name in process.hooks or (len(process.hooks) < _MOST_ENTRIES and run.room.take("settings", len(name))):
            process.hooks[name] = run.share(text[:LONGEST_ERROR])


def cost(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_cost`: run time of compiled regions."""
    facts = record.object()
    how = run.share((as_text(facts.get("how")) or "")[:LONGEST_ERROR])
    step_us = _step_us(facts)
    for region in map(as_dict, as_list(facts.get("regions"))[:_MOST_ENTRIES]):
        calls, spent = as_id(region.get("calls")), as_float(region.get("region_us"))
        if calls and spent is not None and run.room.take("profiled regions", len(as_text(region.get("region")) or "?")):
            run.costs.append(_region(run, process, region, (calls, spent), how, step_us))


def _region(
    run: RunBuilder, process: ProcessBuilder, region: Mapping[str, Any], took: tuple[int, float], how: str, step_us: float | None
) -> RegionCost:
    frame = run.known_frame(process, region)
    calls, spent = took
    return RegionCost(
        process=process.index,
        frame=frame.id if frame else None,
        region=as_text(region.get("region")) or "?",
        calls=calls,
        region_us=spent,
        lookup_us=as_float(region.get("lookup_us")),
        pregraph_us=as_float(region.get("pregraph_us")),
        between_us=as_float(region.get("between_us")),
        how=how,
        step_us=step_us,
    )


def _step_us(facts: Mapping[str, Any]) -> float | None:
    period_ns, rounds = as_float(facts.get("period_ns")), as_id(facts.get("rounds"))
    return period_ns * rounds / 1000 if period_ns and rounds else None


def timeline(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_timeline`: what happened when in the profiled calls, read when it is needed."""
    if run.room.take("processes with profiled calls"):
        details = PayloadRef(process.log, record.payload_offset, record.payload_length)
        run.profiles[process.index] = CallProfile(process.index, details)


def period(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_period`: what a call takes without a profiler, from more calls than were timed when the timeline was written."""
    known, period_ns = run.profiles.get(process.index), as_float(record.object().get("period_ns"))
    if known is not None and period_ns:
        run.profiles[process.index] = replace(known, period_ns=period_ns)


def compiled_work(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_compiled_work`: what one call of a compiled function ran inside and outside graphs."""
    facts = record.object()
    call, outside = as_id(facts.get("call")), as_id(facts.get("outside"))
    graphs = [[as_id(number) for number in as_list(pair)] for pair in as_dict(facts.get("graphs")).values()]
    sizes = [(pair[0], pair[1]) for pair in graphs if len(pair) == 2 and pair[0] is not None and pair[1] is not None]
    if call is None or outside is None or len(sizes) < len(graphs):
        raise BadRecordError("compiled_work is mistyped")
    regions: dict[str, int] = {}
    for name, count in as_dict(facts.get("regions")).items():
        ids = _REGION.fullmatch(name)
        frame = run.known_frame(process, {"frame_id": int(ids[1]), "frame_compile_id": int(ids[2])}) if ids else None
        if frame is not None and (times := as_id(count)):
            regions[frame.id] = times
    if run.room.take("calls looked at", record.payload_length):
        run.work.append(
            CompiledWork(
                process=process.index,
                function=run.share((as_text(facts.get("function")) or "?")[:LONGEST_ERROR]),
                call=call,
                in_graphs=sum(times * size for times, size in sizes),
                outside=outside,
                graphs=sum(times for times, _ in sizes),
                regions=regions,
            )
        )


def eager_method(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_eager_method`: what one call of a part of a compiled module ran, which is not compiled; a later record replaces it."""
    facts = record.object()
    number, call, operators, calls = (as_id(facts.get(name)) for name in ("number", "call", "operators", "calls"))
    if number is None or call is None or operators is None or calls is None:
        raise BadRecordError("eager_method is mistyped")
    eager = EagerCall(number, facts.get("kind") == "module", calls, run.share(named_stack(facts.get("stack"))))
    found = CompiledWork(
        process=process.index,
        function=run.share((as_text(facts.get("function")) or "?")[:LONGEST_ERROR]),
        call=call,
        in_graphs=0,
        outside=operators,
        graphs=0,
        regions={},
        eager=eager,
    )
    if (earlier := process.eager.get(number)) is not None:
        run.work[earlier] = found
    elif run.room.take("calls looked at", record.payload_length):
        process.eager[number] = len(run.work)
        run.work.append(found)


def compiled_time(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_compiled_time`: how much of some calls' time was spent in graphs."""
    facts = record.object()
    graph_s, call_s = as_float(facts.get("graph_s")), as_float(facts.get("call_s"))
    if graph_s is None or not call_s or not 0 <= graph_s <= call_s:
        raise BadRecordError("compiled_time is mistyped")
    if run.room.take("calls looked at"):
        run.work_times.append(CompiledTime(process.index, graph_s, call_s))


def leave(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_exit`: the interpreter ended normally; Dynamo's counters as they were then."""
    process.finished = True
    facts = record.object()
    _name_device(process, facts)
    process.calls = as_id(facts.get("calls"))
    if (why := as_text(facts.get("no_compiled_work"))) is not None:
        process.facts["no_work"] = run.share(why[:LONGEST_ERROR])
    counters = as_dict(facts.get("counters"))
    process.counters = {
        group: {
            name: number for name, number in as_dict(values).items() if as_id(number) is not None and run.room.take("settings", len(name))
        }
        for group, values in counters.items()
    }


BY_ARTIFACT: dict[str, Handler] = {
    "dynadiag_environment": environment,
    "dynadiag_config": config,
    "dynadiag_registry": registry,
    "dynadiag_source": source,
    "dynadiag_function": function,
    "dynadiag_library_function": library_function,
    "dynadiag_library": library,
    "dynadiag_compile_call": compile_call,
    "dynadiag_unguarded": unguarded,
    "dynadiag_graph": graph,
    "dynadiag_problem": problem,
    "dynadiag_reset": reset,
    "dynadiag_hooks": hooks,
    "dynadiag_cost": cost,
    "dynadiag_timeline": timeline,
    "dynadiag_period": period,
    "dynadiag_compiled_work": compiled_work,
    "dynadiag_compiled_time": compiled_time,
    "dynadiag_eager_method": eager_method,
    "dynadiag_guard_cost": compiled_records.guard_cost,
    "dynadiag_key_parts": key_parts,
    "dynadiag_parity": parity,
    "dynadiag_whole_call": whole_call,
    "dynadiag_exit": leave,
}
