"""What the records that tell of mutations add to a run, and the tensors that Dynamo met while it traced.

These are in `describe_tensor` and `describe_source` (torch/_subclasses/meta_utils.py, 2.4 to 2.15). A training step has thousands of both,
so those that torch prints as it does today are read by a pattern, in a fifth of the time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from dynadiag.model.graph import MutationRecord, TracedInput
from dynadiag.model.location import PayloadRef
from dynadiag.trace.builders import FrameBuilder, ProcessBuilder, RunBuilder, TensorLayout, attempt_of
from dynadiag.trace.records import Record
from dynadiag.trace.stacks import named_stack
from dynadiag.trace.torch_records import Handler
from dynadiag.trace.values import BadRecordError, as_bool, as_dict, as_id, as_list, as_text, decode, parse_json

_MOST_CONTEXTS = 1000
_LONGEST_CONTEXT = 1000
_MOST_DEVICES = 64
_DEVICE = re.compile(r"device\(type='([a-z]{1,20})'(?:, index=(\d{1,4}))?\)")
_SIZES = rb"\[(?:\d{1,18}(?:, \d{1,18})*)?\]"
_LAYOUT = (
    rb'"ndim": \d{1,3}, "dtype": "[\w.]{1,60}", "device": "device\([^"\\]{1,60}\)", "size": ' + _SIZES + rb", "
    rb'(?:"dynamo_hint_overrides": \{\}, )?(?:"(?:is_leaf|requires_grad|is_parameter)": true, )*"stride": ' + _SIZES
)
_TENSOR = re.compile(
    rb'\{"describe_tensor": \{"id": (\d{1,9}), (?P<layout>' + _LAYOUT + rb'), "storage": (?P<storage>\d{1,9}), (?:"grad": \d{1,9}, )?'
    rb'"view_func": "[ -!#-\[\]-~]*", "describer_id": (?P<describer>\d{1,9})\}'
)
_SOURCE = re.compile(rb'\{"describe_source": \{"describer_id": (\d{1,9}), "id": (\d{1,9}), "source": "([ -!#-\[\]-~]*)"\}')


def tensor(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`describe_tensor`: shape, type and memory of a tensor that Dynamo met."""
    match = _TENSOR.match(record.rest)
    if match is not None and _frame(process, record.rest[match.end() :]) is not None:
        number, layout, storage, describer = match.group(1, "layout", "storage", "describer")
        key: tuple[int | None, int | None] = int(describer), int(number)
        found: tuple[TensorLayout, int | None] = _layout(layout), int(storage)
    else:
        facts = as_dict(record.value)
        key = as_id(facts.get("describer_id")), as_id(facts.get("id"))
        found = _described(facts), as_id(facts.get("storage"))
    named = found[0].named_device
    if named is not None and len(process.devices) < _MOST_DEVICES:
        process.devices.add(named)
    if key in process.tensors or run.room.take("described tensors"):
        process.tensors[key] = found


def source(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`describe_source`: Dynamo's name of a tensor that was described just before."""
    match = _SOURCE.match(record.rest)
    context = record.rest[match.end() :] if match is not None else b""
    frame = _frame(process, context)
    if match is not None and frame is not None:
        name: str | None = decode(match[3])
        known = process.tensors.get((int(match[1]), int(match[2])))
    else:
        facts = as_dict(record.value)
        name = as_text(facts.get("source"))
        known = process.tensors.get((as_id(facts.get("describer_id")), as_id(facts.get("id"))))
    if name is None or known is None:
        return
    if frame is None:
        frame = run.frame_of(process, record.header)
        if len(context) <= _LONGEST_CONTEXT:
            if len(process.contexts) >= _MOST_CONTEXTS:
                process.contexts.clear()
            process.contexts[process.epoch, context] = frame
    if not run.room.take("traced tensors", len(name)):
        return
    layout, storage = known
    run.traced_inputs.append(
        TracedInput(
            frame=frame.id,
            source=run.share(name),
            shape=layout.shape,
            stride=layout.stride,
            dtype=layout.dtype,
            device=layout.device,
            requires_grad=layout.requires_grad,
            is_leaf=layout.is_leaf,
            is_parameter=layout.is_parameter,
            storage=storage,
        )
    )


def _frame(process: ProcessBuilder, context: bytes) -> FrameBuilder | None:
    """The frame of the last record with the same compile context, if no frame began since."""
    return process.contexts.get((process.epoch, context)) if context else None


@functools.lru_cache(maxsize=4096)
def _layout(text: bytes) -> TensorLayout:
    """What torch prints between the number and the storage of a tensor; remembered, since most tensors of a model are alike."""
    facts = parse_json(f"{{{decode(text)}}}", "tensor is mistyped")
    return _described(as_dict(facts))


def _described(facts: Mapping[str, Any]) -> TensorLayout:
    device = as_text(facts.get("device"))
    named = _DEVICE.fullmatch(device or "")
    return TensorLayout(
        shape=_sizes(facts.get("size")),
        stride=_sizes(facts.get("stride")),
        dtype=as_text(facts.get("dtype")),
        device=device,
        named_device=None if named is None else named[1] if named[2] is None else f"{named[1]}:{named[2]}",
        requires_grad=as_bool(facts.get("requires_grad")) or False,
        is_leaf=as_bool(facts.get("is_leaf")) or False,
        is_parameter=as_bool(facts.get("is_parameter")) or False,
    )


def _sizes(value: object) -> tuple[int, ...] | None:
    sizes = [as_id(size) for size in as_list(value)]
    known = tuple(size for size in sizes if size is not None)
    return known if isinstance(value, list) and len(known) == len(sizes) else None


_PROBE_HEAD = re.compile(r'\{("format": 1, "graph": "[\w]{1,20}", "text_offset": \d{1,18}, "runnable": (?:true|false|null)), "mutations": ')
_PROBE_TAIL = '"why_not": '
_NO_JSON = "payload is not JSON"


def _kept(kind: Literal["aot_metadata", "side_effects"]) -> Handler:
    def keep(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
        frame = run.frame_of(process, record.header)
        if not run.room.take("mutation records"):
            return
        payload = PayloadRef(process.log, record.payload_offset, record.payload_length)
        found = MutationRecord(kind=kind, frame=frame.id, attempt=attempt_of(record.header), payload=payload, record=record.index)
        run.mutation_records.append(found)

    return keep


def probe(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_probe`: what the probe found in a graph of the same log, which it names by where the graph's text lies."""
    facts = _ends(record) or record.object()
    position = run.graph_at(process.log, as_id(facts.get("text_offset")))
    if position is None:
        raise BadRecordError("probe of an unknown graph")
    graph = run.graphs[position]
    payload = PayloadRef(process.log, record.payload_offset, record.payload_length)
    why_not = as_text(facts.get("why_not")) or graph.why_not
    run.graphs[position] = replace(graph, probe=payload, runnable=as_bool(facts.get("runnable")), why_not=why_not)


def _ends(record: Record) -> Mapping[str, Any] | None:
    """What stands before and behind the mutations in a record that lies in the log as it was written: nine tenths need no parsing here."""
    text = record.text()
    head, tail = _PROBE_HEAD.match(text), text.rpartition(_PROBE_TAIL)[2]
    if head is None or record.mismatch or not record.has_checksum:
        return None
    return {**as_dict(parse_json(f"{{{head[1]}}}", _NO_JSON)), **as_dict(parse_json(f"{{{_PROBE_TAIL}{tail}", _NO_JSON))}


def entry(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_entry`: the callers of a frame that is being compiled, the innermost ones included, which `dynamo_start` leaves out."""
    frame = run.frame_of(process, record.header)
    facts = record.object()
    frame.call = as_id(facts.get("call")) or None
    if run.room.take("call stacks"):
        frame.callers = run.share(named_stack(facts.get("stack")))


BY_KEY: dict[str, Handler] = {"describe_tensor": tensor, "describe_source": source}
BY_ARTIFACT: dict[str, Handler] = {
    "aot_forward_graph_fw_metadata": _kept("aot_metadata"),
    "dynamo_side_effects": _kept("side_effects"),
    "dynadiag_entry": entry,
    "dynadiag_probe": probe,
}
