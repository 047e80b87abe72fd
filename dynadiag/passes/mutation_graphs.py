"""All that is recorded of one Dynamo graph, joined: inputs with their sources, AOTAutograd's metadata, the probe's findings, its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dynadiag import trace
from dynadiag.errors import UnreadableInputError
from dynadiag.model.mutations import AotMetadata, ProbedGraph
from dynadiag.model.run import Frame, Graph, Location, MutationRecord, Node, Run, TracedInput
from dynadiag.passes.mutation_text import TextWrites, text_writes

_DTYPE_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int16": 2, "uint16": 2, "float16": 2, "half": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "float": 4, "int64": 8, "uint64": 8, "float64": 8, "double": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9]+")
_STATIC_SOURCE = re.compile(r"\._(?:buffers|parameters)\[|\.param_groups\[|\.state\[")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownInput:
    """One flat input of a graph: attributes of the graph first, then its placeholders, as AOTAutograd counts them."""

    index: int
    name: str
    source: str | None
    size: int | None = None
    storage: int | None = None
    static: bool | None = None
    requires_grad: bool | None = None
    is_leaf: bool | None = None


@dataclass(frozen=True)
class GraphView:
    """One Dynamo graph with what was recorded of it. `aot` is None when AOTAutograd left no metadata that fits its inputs: `why_no_aot`."""

    graph: Graph
    frame: Frame
    inputs: tuple[KnownInput, ...]
    aot: AotMetadata | None
    why_no_aot: str | None
    probe: ProbedGraph | None
    merged_inputs: bool = False

    @property
    def why_not_probed(self) -> str | None:
        """Why the probe says nothing of this graph, or None."""
        if self.probe is None:
            return "the probe did not run on this recording"
        return self.probe.error if self.probe.mutations is None else None

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the graph's text; empty when it cannot be read."""
        return read_nodes(self.graph)

    @cached_property
    def text(self) -> TextWrites:
        """The writes that the text shows."""
        return text_writes(self.nodes)

    @cached_property
    def _stacks(self) -> Mapping[str, tuple[Location, ...]]:
        return trace.node_stacks(_details(self.graph))

    def stack_of(self, node: Node) -> tuple[Location, ...]:
        """The user code of a node: its whole stack when we recorded it, else the one line that the text shows."""
        return self._stacks.get(node.name) or (() if node.location is None else (node.location,))

    def input_named(self, name: str) -> KnownInput | None:
        """The input with this name in the graph's text, or None."""
        return next((one for one in self.inputs if one.name.lower() == name.lower()), None)


def read_nodes(graph: Graph) -> tuple[Node, ...]:
    """The nodes of a graph's text; empty when there is none or it cannot be read any more."""
    try:
        return trace.graph_nodes(trace.read_payload(graph.text)) if graph.text is not None else ()
    except UnreadableInputError:
        return ()


def graph_views(run: Run) -> Iterator[GraphView]:
    """Each Dynamo graph of the last attempt of its frame, also of frames that failed in the back end."""
    attempts = {frame.id: frame for frame in run.frames}
    for graph in run.graphs:
        frame = attempts.get(graph.frame)
        if graph.kind == "dynamo" and frame is not None and graph.attempt >= frame.attempts - 1:
            yield _view(graph, frame, run)


def _view(graph: Graph, frame: Frame, run: Run) -> GraphView:
    inputs = _inputs(graph, frame, run)
    probe = _probe(graph)
    records = [record for record in run.mutation_records if record.kind == "aot_metadata" and _follows(record, graph, run)]
    aot, why, merged = _aot(records, inputs)
    if aot is not None and len(aot.inputs) > len(inputs):
        inputs = _with_attributes(inputs, probe, len(aot.inputs) - len(inputs))
    return GraphView(graph=graph, frame=frame, inputs=inputs, aot=aot, why_no_aot=why, probe=probe, merged_inputs=merged)


def _probe(graph: Graph) -> ProbedGraph | None:
    try:
        return trace.probe_result(graph.probe) if graph.probe is not None else None
    except UnreadableInputError:
        return None


def _follows(record: MutationRecord, graph: Graph, run: Run) -> bool:
    """Whether a record of AOTAutograd was written for this graph: between it and the next Dynamo graph of the same frame."""
    if (record.frame, record.attempt) != (graph.frame, graph.attempt) or graph.record is None or record.record < graph.record:
        return False
    later = (one for one in run.graphs if one.kind == "dynamo" and one.frame == graph.frame and one.attempt == graph.attempt)
    return not any(one.record is not None and graph.record < one.record <= record.record for one in later)


def _aot(records: list[MutationRecord], inputs: tuple[KnownInput, ...]) -> tuple[AotMetadata | None, str | None, bool]:
    """The metadata, why there is none, and whether AOTAutograd merged overlapping inputs into one (a synthetic base)."""
    if not records:
        return None, "AOTAutograd left no metadata: the back end does not use it, or it refused the graph", False
    if len(records) > 1:
        return None, f"the graph was split: AOTAutograd left {len(records)} metadata records, whose inputs are not named", False
    try:
        found = trace.aot_metadata(records[0].payload)
    except UnreadableInputError:
        found = None
    if found is None:
        return None, "AOTAutograd's metadata cannot be read", False
    if inputs and len(found.inputs) < len(inputs):
        return None, "AOTAutograd merged inputs that overlap (synthetic base), so its metadata does not name them one by one", True
    return found, None, False


def _inputs(graph: Graph, frame: Frame, run: Run) -> tuple[KnownInput, ...]:
    details = _details(graph)
    entries = [*_objects(details.get("attributes")), *_objects(details.get("inputs"))]
    if entries:
        return tuple(_recorded(index, entry) for index, entry in enumerate(entries))
    by_name = {_NOT_IN_NAMES.sub("_", one.source).lower(): one for one in run.traced_inputs if one.frame == frame.id}
    placeholders = [node for node in read_nodes(graph) if node.op == "placeholder"]
    return tuple(_described(index, node, by_name.get(node.name.lower())) for index, node in enumerate(placeholders))


def _details(graph: Graph) -> Mapping[str, Any]:
    try:
        return trace.graph_details(graph.details) if graph.details is not None else {}
    except UnreadableInputError:
        return {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _recorded(index: int, entry: Mapping[str, Any]) -> KnownInput:
    """An input as `dynadiag_graph` describes it."""
    source, storage, shape = entry.get("source"), entry.get("storage"), entry.get("shape")
    source = source if isinstance(source, str) else None
    marked = isinstance(entry.get("static"), str) or (source is not None and _STATIC_SOURCE.search(source) is not None)
    return KnownInput(
        index=index,
        name=str(entry.get("name")),
        source=source,
        size=byte_size(shape if isinstance(shape, list) else None, entry.get("dtype")),
        storage=storage if isinstance(storage, int) else None,
        static=marked if marked or "static" in entry else None,
        requires_grad=_flag(entry.get("requires_grad")),
        is_leaf=_flag(entry.get("is_leaf")),
    )


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _described(index: int, node: Node, traced: TracedInput | None) -> KnownInput:
    """A placeholder of a log without our records, joined with torch's description of the tensor by its name."""
    if traced is None:
        return KnownInput(index=index, name=node.name, source=None)
    return KnownInput(
        index=index,
        name=node.name,
        source=traced.source,
        size=byte_size(traced.shape, traced.dtype),
        storage=traced.storage,
        static=True if traced.is_parameter or _STATIC_SOURCE.search(traced.source) else None,
        requires_grad=traced.requires_grad,
        is_leaf=traced.is_leaf,
    )


def byte_size(shape: Any, dtype: object) -> int | None:
    """The bytes of a dense tensor, or None when a size is symbolic or the type is not known."""
    item = _DTYPE_BYTES.get(str(dtype).removeprefix("torch."))
    if shape is None or item is None or not all(type(size) is int for size in shape):
        return None
    for size in shape:
        item *= size
    return item


def _with_attributes(inputs: tuple[KnownInput, ...], probe: ProbedGraph | None, count: int) -> tuple[KnownInput, ...]:
    """Inputs with the attributes of the graph put before them, which only the probe can name here."""
    names = {one.index: one for one in (probe.mutations or () if probe else ()) if one.static == "attribute"}
    found = []
    for index in range(count):
        known = names.get(index)
        found.append(
            KnownInput(index=index, name=known.name if known else f"attribute {index}", source=known.source if known else None, static=True)
        )
    return (*found, *(KnownInput(**{**_fields(one), "index": one.index + count}) for one in inputs))


def _fields(one: KnownInput) -> dict[str, Any]:
    return {name: getattr(one, name) for name in KnownInput.__slots__}
