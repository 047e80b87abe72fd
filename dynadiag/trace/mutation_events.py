"""What the records that tell of mutations add to a run. Long payloads stay on disk until the mutation pass wants them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from dynadiag.model.graph import MutationRecord
from dynadiag.model.location import PayloadRef
from dynadiag.trace.builders import ProcessBuilder, RunBuilder, attempt_of
from dynadiag.trace.records import Record
from dynadiag.trace.stacks import named_stack
from dynadiag.trace.torch_records import Handler
from dynadiag.trace.traced_inputs import source, tensor
from dynadiag.trace.values import BadRecordError, as_bool, as_dict, as_id, as_text, parse_json

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
