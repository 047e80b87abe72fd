"""What the records that tell of mutations add to a run. Long payloads stay on disk until the mutation pass wants them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

from dynadiag.model.run import MutationRecord, PayloadRef, TracedInput
from dynadiag.trace.drafts import ProcessDraft, RunDraft, attempt_of
from dynadiag.trace.records import Record
from dynadiag.trace.stacks import named_stack
from dynadiag.trace.torch_records import Handler
from dynadiag.trace.values import BadRecordError, as_bool, as_dict, as_id, as_list, as_text

_MOST_TENSORS = 200_000
_MOST_DEVICES = 64
_DEVICE = re.compile(r"device\(type='([a-z]{1,20})'(?:, index=(\d{1,4}))?\)")


def _kept(kind: Literal["aot_metadata", "side_effects"]) -> Handler:
    def keep(run: RunDraft, process: ProcessDraft, record: Record) -> None:
        frame = run.frame_of(process, record.header)
        payload = PayloadRef(process.log, record.payload_offset, record.payload_length)
        found = MutationRecord(kind=kind, frame=frame.id, attempt=attempt_of(record.header), payload=payload, record=record.index)
        run.mutation_records.append(found)

    return keep


def probe(run: RunDraft, process: ProcessDraft, record: Record) -> None:
    """`dynadiag_probe`: what the probe found in a graph of the same log, which it names by where the graph's text lies."""
    facts = record.object()
    offset = as_id(facts.get("text_offset"))
    for position in range(len(run.graphs) - 1, -1, -1):
        graph = run.graphs[position]
        if graph.text is not None and graph.text.log == process.log and graph.text.offset == offset:
            payload = PayloadRef(process.log, record.payload_offset, record.payload_length)
            why_not = as_text(facts.get("why_not")) or graph.why_not
            run.graphs[position] = replace(graph, probe=payload, runnable=as_bool(facts.get("runnable")), why_not=why_not)
            return
    raise BadRecordError("probe of an unknown graph")


def tensor(run: RunDraft, process: ProcessDraft, record: Record) -> None:
    """`describe_tensor`: shape, type and memory of a tensor that Dynamo met."""
    facts = as_dict(record.value)
    device = _DEVICE.fullmatch(as_text(facts.get("device")) or "")
    if device is not None and len(process.devices) < _MOST_DEVICES:
        process.devices.add(device[1] if device[2] is None else f"{device[1]}:{device[2]}")
    if len(process.tensors) < _MOST_TENSORS:
        process.tensors[as_id(facts.get("describer_id")), as_id(facts.get("id"))] = facts


def source(run: RunDraft, process: ProcessDraft, record: Record) -> None:
    """`describe_source`: Dynamo's name of a tensor that was described just before."""
    facts = as_dict(record.value)
    name = as_text(facts.get("source"))
    known = process.tensors.get((as_id(facts.get("describer_id")), as_id(facts.get("id"))))
    if name is None or known is None or len(run.traced_inputs) >= _MOST_TENSORS:
        return
    frame = run.frame_of(process, record.header)
    run.traced_inputs.append(
        TracedInput(
            frame=frame.id,
            source=run.share(name),
            shape=_sizes(known.get("size")),
            stride=_sizes(known.get("stride")),
            dtype=run.share(as_text(known.get("dtype"))),
            device=run.share(as_text(known.get("device"))),
            requires_grad=as_bool(known.get("requires_grad")) or False,
            is_leaf=as_bool(known.get("is_leaf")) or False,
            is_parameter=as_bool(known.get("is_parameter")) or False,
            storage=as_id(known.get("storage")),
        )
    )


def entry(run: RunDraft, process: ProcessDraft, record: Record) -> None:
    """`dynadiag_entry`: the callers of a frame that is being compiled, the innermost ones included, which `dynamo_start` leaves out."""
    run.frame_of(process, record.header).callers = run.share(named_stack(record.object().get("stack")))


def _sizes(value: object) -> tuple[int, ...] | None:
    sizes = [as_id(size) for size in as_list(value)]
    known = tuple(size for size in sizes if size is not None)
    return known if isinstance(value, list) and len(known) == len(sizes) else None


BY_KEY: dict[str, Handler] = {"describe_tensor": tensor, "describe_source": source}
BY_ARTIFACT: dict[str, Handler] = {
    "aot_forward_graph_fw_metadata": _kept("aot_metadata"),
    "dynamo_side_effects": _kept("side_effects"),
    "dynadiag_entry": entry,
    "dynadiag_probe": probe,
}
