"""What the records that tell of mutations add to a run. Long payloads stay on disk until the mutation pass wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dynadiag.model.run import MutationRecord, PayloadRef
from dynadiag.trace.drafts import ProcessDraft, RunDraft, attempt_of
from dynadiag.trace.records import Record
from dynadiag.trace.stacks import named_stack
from dynadiag.trace.torch_records import Handler
from dynadiag.trace.traced_inputs import source, tensor
from dynadiag.trace.values import BadRecordError, as_bool, as_id, as_text


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


def entry(run: RunDraft, process: ProcessDraft, record: Record) -> None:
    """`dynadiag_entry`: the callers of a frame that is being compiled, the innermost ones included, which `dynamo_start` leaves out."""
    run.frame_of(process, record.header).callers = run.share(named_stack(record.object().get("stack")))


BY_KEY: dict[str, Handler] = {"describe_tensor": tensor, "describe_source": source}
BY_ARTIFACT: dict[str, Handler] = {
    "aot_forward_graph_fw_metadata": _kept("aot_metadata"),
    "dynamo_side_effects": _kept("side_effects"),
    "dynadiag_entry": entry,
    "dynadiag_probe": probe,
}
