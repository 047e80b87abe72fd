"""All that is recorded of one Dynamo graph, joined: inputs with their sources, AOTAutograd's metadata, the probe's findings, its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dynadiag import trace
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.graph_writes import INPLACE_SYMBOLS, PRIVATE_OPERATOR, TextWrites, is_write, names_write, text_writes
from dynadiag.model.graph import Graph, MutationRecord, Node, TracedInput
from dynadiag.model.location import Location
from dynadiag.model.mutations import AotMetadata, ProbedGraph
from dynadiag.model.run import Frame, Run

_DTYPE_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int16": 2, "uint16": 2, "float16": 2, "half": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "float": 4, "int64": 8, "uint64": 8, "float64": 8, "double": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9]+")
_NAMES = re.compile(r"\w+")
_ASSIGNED = re.compile(r'\s*(\w+)(?: ?: ?"[^"\n]*")? = ')
_STATIC_SOURCE = re.compile(r"\._(?:buffers|parameters)\[|\.param_groups\[|\.state\[")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownInput:
    """One flat input of a graph: attributes of the graph first, then its placeholders, as AOTAutograd counts them.

    `marked`: Dynamo itself says that its address is static.
    """

    index: int
    name: str
    source: str | None
    size: int | None = None
    storage: int | None = None
    static: bool | None = None
    requires_grad: bool | None = None
    is_leaf: bool | None = None
    known_as: str | None = None
    marked: bool = False


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
    post_grad: tuple[Graph, ...] = ()
    details: Mapping[str, Any] | None = None
    aot_ran: bool = True

    @property
    def why_not_probed(self) -> str | None:
        """Why the probe says nothing of this graph, or None."""
        if self.probe is None:
            return self.graph.why_not or "the probe did not run on this recording"
        return self.probe.error if self.probe.mutations is None else None

    @cached_property
    def text(self) -> TextWrites:
        """The writes that the graph's text shows; parsed only when one of its ops may write."""
        may_write = any(names_write(op) or PRIVATE_OPERATOR.match(op) for op in self.graph.ops)
        return text_writes(trace.graph_nodes(text_of(self.graph))) if may_write else TextWrites()

    @property
    def inner_writes(self) -> Sequence[Node]:
        """In-place writes on tensors that the graph makes.

        Where the probe or AOTAutograd tells which writes reach inputs, only the lines that look like writes are parsed: texts are long.
        """
        reach = {site.node for mutation in (self.probe.mutations or () if self.probe else ()) for site in mutation.sites}
        told = self.probe is not None and self.probe.mutations is not None and None not in reach
        none = self.aot is not None and not any(input_.is_mutated for input_ in self.aot.inputs)
        if not told and not none:
            return self.text.inner
        ops = list(filter(names_write, self.graph.ops))
        nodes = trace.graph_nodes(_only_writes(text_of(self.graph), ops, reach)) if ops else ()
        inputs = set(_NAMES.findall(_head(text_of(self.graph)).lower()))
        writes = [_as_method(node) for node in nodes if node.op != "placeholder" and is_write(node) and node.name not in reach]
        return [node for node in writes if not node.args or node.args[0].lower() not in inputs]

    @cached_property
    def _stacks(self) -> trace.NodeStacks:
        return trace.NodeStacks(self.details if self.details is not None else _details(self.graph))

    @cached_property
    def by_storage(self) -> Mapping[int | None, Sequence[KnownInput]]:
        """The inputs that share their memory, by its number."""
        found: dict[int | None, list[KnownInput]] = {}
        for input_ in self.inputs:
            found.setdefault(input_.storage, []).append(input_)
        return found

    def stack_of(self, node: Node) -> tuple[Location, ...]:
        """The user code of a node: its whole stack when we recorded it, else the one line that the text shows."""
        return self._stacks.get(node.name) or (() if node.location is None else (node.location,))

    def input_named(self, name: str) -> KnownInput | None:
        """The input with this name in the graph's text, or None."""
        return next((input_ for input_ in self.inputs if input_.name.lower() == name.lower()), None)


def _as_method(node: Node) -> Node:
    """`y.add_(1)` as a call of the method: alone on its line, a text does not tell `y` from a module."""
    owner, _, name = node.target.rpartition(".")
    if node.op != "call_function" or not owner.isidentifier() or owner in ("torch", "operator"):
        return node
    return replace(node, op="call_method", target=name, args=(owner, *node.args))


def _only_writes(text: str, ops: Sequence[str], known: Set[str | None]) -> str:
    """The text of a graph without inputs and, of its body, only the lines that call one of the ops and the user lines above them.

    Lines that assign one of the `known` names are left out.
    """
    found = trace.signature(text)
    if found is None:
        return ""
    body = found[-1]
    kept = ["    def forward(self):"]
    for start, end in _lines_with(map(_written_op, ops), text, body):
        assigned = _ASSIGNED.match(text, start)
        if assigned is None or assigned[1] not in known:
            comment = text.rfind("# File:", body, start)
            kept += [f"        {text[comment : text.find(chr(10), comment)]}"] if comment >= 0 else []
            kept.append(text[start:end])
    return "\n".join(kept) + "\n"


def _head(text: str) -> str:
    """`def forward(self, ...):` of a graph's text: the body is not parsed for its inputs alone."""
    found = trace.signature(text)
    return "" if found is None else f"    def forward({text[found[0] : found[2] + 1]}"


def _written_op(op: str) -> str:
    """How a line shows one of `Graph.ops` that writes."""
    return "] = " if op == "operator.setitem" else INPLACE_SYMBOLS.get(op) or f"{op}("


def _lines_with(words: Iterable[str], text: str, begin: int) -> list[tuple[int, int]]:
    """Begin and end of each line behind `begin` that holds one of the words, in order; comments are left out."""
    lines: set[tuple[int, int]] = set()
    for word in words:
        at = text.find(word, begin)
        while at >= 0:
            start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            lines.add((start, end := len(text) if end < 0 else end))
            at = text.find(word, end)
    return sorted((start, end) for start, end in lines if not text[start:end].lstrip().startswith("#"))


def read_nodes(graph: Graph, *needed: Callable[[str], object]) -> tuple[Node, ...]:
    """The nodes of a graph's text; empty when there is none, it cannot be read any more, or one of the `needed` tests fits none of its ops.

    The ops were counted while the log was read, so most texts need no parsing, which takes longer than everything else.
    """
    return trace.graph_nodes(text_of(graph)) if all(any(map(fits, graph.ops)) for fits in needed) else ()


def text_of(graph: Graph) -> str:
    """The text of a graph; empty when there is none, or it cannot be read any more."""
    try:
        return trace.read_payload(graph.text) if graph.text is not None else ""
    except UnreadableInputError:
        return ""


def last_graphs(run: Run) -> Iterator[tuple[Graph, Frame]]:
    """Each Dynamo graph of the last attempt of its frame, also of frames that failed in the back end, with its frame."""
    for graph in run.graphs:
        frame = run.frame(graph.frame) if graph.kind == "dynamo" else None
        if frame is not None and graph.attempt >= frame.attempts - 1:
            yield graph, frame


def graph_views(run: Run, graphs: Iterable[tuple[Graph, Frame]]) -> Iterator[GraphView]:
    """What is known of each of these graphs of a run (`last_graphs`)."""
    index = _Index.of(run)
    for graph, frame in graphs:
        yield _view(graph, frame, index)


Compilation = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Index:
    """Graphs and records by frame and attempt, in the order of the log."""

    dynamo: Mapping[Compilation, list[Graph]]
    post_grad: Mapping[Compilation, list[Graph]]
    metadata: Mapping[Compilation, list[MutationRecord]]
    traced: Mapping[str, list[TracedInput]]
    lowered: frozenset[Compilation]

    @staticmethod
    def of(run: Run) -> _Index:
        graphs: dict[str, dict[Compilation, list[Graph]]] = {"dynamo": {}, "post_grad": {}}
        for graph in run.graphs:
            if graph.kind in graphs:
                graphs[graph.kind].setdefault((graph.frame, graph.attempt), []).append(graph)
        metadata: dict[Compilation, list[MutationRecord]] = {}
        for record in run.mutation_records:
            if record.kind == "aot_metadata":
                metadata.setdefault((record.frame, record.attempt), []).append(record)
        traced: dict[str, list[TracedInput]] = {}
        for tensor in run.traced_inputs:
            traced.setdefault(tensor.frame, []).append(tensor)
        lowered = frozenset((graph.frame, graph.attempt) for graph in run.graphs if graph.kind != "dynamo")
        return _Index(graphs["dynamo"], graphs["post_grad"], metadata, traced, lowered)

    def behind(self, graph: Graph, record: int | None) -> bool:
        """Whether a record lies between this Dynamo graph and the next one of the same compilation."""
        if record is None or graph.record is None or record < graph.record:
            return False
        later = self.dynamo.get((graph.frame, graph.attempt), ())
        return not any(item.record is not None and graph.record < item.record <= record for item in later)


def _view(graph: Graph, frame: Frame, index: _Index) -> GraphView:
    probe = _probe(graph)
    key = (graph.frame, graph.attempt)
    records = [record for record in index.metadata.get(key, ()) if index.behind(graph, record.record)]
    made = tuple(item for item in index.post_grad.get(key, ()) if index.behind(graph, item.record))
    found, why = _metadata(records)
    if found is not None and not any(input_.is_mutated for input_ in found.inputs) and not (probe is not None and probe.mutations):
        return GraphView(graph, frame, (), found, None, probe, False, made)  # most graphs: nobody asks for their inputs
    details = _details(graph)
    inputs = _inputs(graph, details, index.traced.get(frame.id, ()), len(found.inputs) if found is not None else 0)
    merged = found is not None and bool(inputs) and len(found.inputs) < len(inputs)
    aot, why = (None, _MERGED) if merged else (found, why)
    if aot is not None and len(aot.inputs) > len(inputs):
        inputs = _with_attributes(inputs, probe, len(aot.inputs) - len(inputs))
    ran = bool(records) or frame.outcome != "compiled" or key in index.lowered
    return GraphView(graph, frame, inputs, aot, why, probe, merged, made, details, ran)


def _probe(graph: Graph) -> ProbedGraph | None:
    try:
        return trace.probe_result(graph.probe) if graph.probe is not None else None
    except UnreadableInputError:
        return None


_MERGED = "AOTAutograd merged inputs that overlap (synthetic base), so its metadata does not name them one by one"


def _metadata(records: list[MutationRecord]) -> tuple[AotMetadata | None, str | None]:
    """AOTAutograd's metadata of a graph, or why there is none."""
    if not records:
        return None, "AOTAutograd left no metadata: the back end does not use it, or it refused the graph"
    if len(records) > 1:
        return None, f"the graph was split: AOTAutograd left {len(records)} metadata records, whose inputs are not named"
    try:
        found = trace.aot_metadata(records[0].payload)
    except UnreadableInputError:
        found = None
    return found, None if found is not None else "AOTAutograd's metadata cannot be read"


def _inputs(graph: Graph, details: Mapping[str, Any], traced: Sequence[TracedInput], count: int) -> tuple[KnownInput, ...]:
    entries = [*_objects(details.get("attributes")), *flat_inputs(_objects(details.get("inputs")), count)]
    if entries:
        return tuple(_recorded(index, entry) for index, entry in enumerate(entries))
    by_name = {_NOT_IN_NAMES.sub("_", traced_input.source).lower(): traced_input for traced_input in traced}
    placeholders = [node for node in trace.graph_nodes(_head(text_of(graph))) if node.op == "placeholder"]
    return tuple(_described(index, node, by_name.get(node.name.lower())) for index, node in enumerate(placeholders))


def flat_inputs(entries: list[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    """The inputs as AOTAutograd counts them: a list (of a backward graph of compiled autograd) is replaced by its items.

    Where a record has no items, `count` says how many inputs there are in all.
    """
    found: list[Mapping[str, Any]] = []
    for entry in entries:
        items = _objects(entry.get("items"))
        if not items and entry.get("type") == "list" and count >= len(entries):
            items = [{"name": f"{entry.get('name')}{i}", "source": f"{entry.get('source')}[{i}]"} for i in range(count - len(entries) + 1)]
        for item in items or [entry]:
            holder = item.get("grad_of")
            if isinstance(holder, int) and 0 <= holder < len(items):
                item = {**item, "grad_of": items[holder].get("known_as") or items[holder].get("source")}
            found.append(item)
    return found


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
        known_as=_called(entry),
        marked=isinstance(entry.get("static"), str),
    )


def _called(entry: Mapping[str, Any]) -> str | None:
    """What an item of a backward graph's list is elsewhere: the `.grad` of another item, or what an earlier graph called it."""
    holder, known = entry.get("grad_of"), entry.get("known_as")
    if isinstance(holder, str):
        return f"{holder}.grad"
    return known if isinstance(known, str) else None


def list_names(run: Run) -> Mapping[tuple[str, str], str]:
    """By frame and source (`L['inputs'][2]`), what items of a backward graph's list are elsewhere."""
    found: dict[tuple[str, str], str] = {}
    for graph in run.graphs:
        entries = _objects(_details(graph).get("inputs")) if graph.kind == "dynamo" and "compiled_autograd" in " ".join(graph.ops) else []
        for item in flat_inputs(entries, 0):
            called = _called(item)
            if called is not None:
                found[graph.frame, str(item.get("source"))] = called
    return found


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
    names = {mutation.index: mutation for mutation in (probe.mutations or () if probe else ()) if mutation.static == "attribute"}
    found = []
    for index in range(count):
        known = names.get(index)
        found.append(
            KnownInput(index=index, name=known.name if known else f"attribute {index}", source=known.source if known else None, static=True)
        )
    return (*found, *(replace(input_, index=input_.index + count) for input_ in inputs))
