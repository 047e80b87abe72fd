"""The mutations of one graph as a sketch: mutated inputs, the ops that write them and what is copied back, with a window around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.facts.graph_writes import text_writes
from dynadiag.model.graph import Node
from dynadiag.model.report import Mutation, Report
from dynadiag.render import mutation_words as words
from dynadiag.render import wording
from dynadiag.render.sanitise import clean, clean_code
from dynadiag.render.sketch import Arrow, Box, Sketch
from dynadiag.trace import argument_names

INPUTS_AT_MOST = 12
NODES_AT_MOST = 60
_STEPS = 2
_LABEL = 40
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9]+")


def drawn_graphs(report: Report) -> dict[str, tuple[Mutation, ...]]:
    """By graph: the mutations of its inputs that cost something."""
    found: dict[str, tuple[Mutation, ...]] = {}
    for mutation in report.mutations:
        if mutation.graph is not None and mutation.worst not in (None, "free") and not words.is_folded(mutation):
            found[mutation.graph] = (*found.get(mutation.graph, ()), mutation)
    return found


@dataclass(frozen=True, slots=True)
class _Window:
    """The nodes that are drawn, by position in the graph, and which of them write."""

    nodes: tuple[Node, ...]
    writers: frozenset[str]
    left_out: int


def mutation_sketch(nodes: Sequence[Node], mutations: Sequence[Mutation], *, title: Sequence[str]) -> Sketch:
    """Inputs on top, the ops around each write, and at the end who writes back; what is left out is said in the title."""
    inputs = tuple({item.input: item for item in mutations}.values())
    shown = inputs[:INPUTS_AT_MOST]
    window = _window(nodes, shown)
    boxes = [*(_input_box(element) for element in shown), *(_node_box(node, node.name in window.writers) for node in window.nodes)]
    arrows = list(_arrows(shown, window))
    for number, mutation in enumerate(shown):
        tail = _last_write(mutation, number, shown, window)
        arrows.append(Arrow(tail=tail, head=len(boxes), strong=True))
        boxes.append(Box(lines=_back(mutation), look="writeback", tip=words.effects(mutation)))
    left = [wording.plural(window.left_out, "node") + " not near a write left out"] if window.left_out else []
    more = [wording.plural(len(inputs) - len(shown), "more mutated input") + " left out"] if len(inputs) > len(shown) else []
    return Sketch(title=(*title, *left, *more), boxes=tuple(boxes), arrows=tuple(arrows))


def _window(nodes: Sequence[Node], mutations: Sequence[Mutation]) -> _Window:
    """The writing nodes and what lies within two steps of one, before and behind it."""
    body = [node for node in nodes if node.is_call]
    writers = frozenset(node.name for node in nodes if _writes(node, nodes, mutations))
    neighbours: dict[str, set[str]] = {}
    known = {node.name for node in body}
    for node in body:
        for used in _uses(node) & known:
            neighbours.setdefault(node.name, set()).add(used)
            neighbours.setdefault(used, set()).add(node.name)
    near = set(writers)
    for _ in range(_STEPS):
        near |= {other for name in near for other in neighbours.get(name, ())}
    chosen = [node for node in body if node.name in near]
    chosen = sorted(chosen, key=lambda node: node.name not in writers)[:NODES_AT_MOST]
    kept = {node.name for node in chosen}
    return _Window(tuple(node for node in body if node.name in kept), writers, len(body) - len(kept))


def _uses(node: Node) -> set[str]:
    return set(argument_names(node.args))


def _writes(node: Node, nodes: Sequence[Node], mutations: Sequence[Mutation]) -> bool:
    """Whether the node stands on the line of a write and is the op that wrote, by its name."""
    if node.location is None:
        return False
    for mutation in mutations:
        for site in mutation.sites:
            here = (site.get("file"), site.get("line")) == (node.location.file, node.location.line)
            library = site.get("library") == f"{node.location.file}:{node.location.line}"
            if (here or library) and _op(str(site.get("op"))) == _op(node.target):
                return True
    return False


def _op(target: str) -> str:
    """`add` for `aten.add_.Tensor`, `add_`, `torch.ops.aten.add_.Tensor`, `operator.iadd`; `copy` for an assignment to a slice."""
    parts = target.removeprefix("torch.ops.").split(".")
    name = parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-2] if parts[-1] == "default" and len(parts) > 1 else parts[-1]
    name = name.rstrip("_")
    short = name.removeprefix("i") if target.startswith("operator.i") else name
    return {"setitem": "copy", "fill": "copy", "index_put": "copy"}.get(name, short)


def _input_box(mutation: Mutation) -> Box:
    kind = "values" if mutation.kind == "data" else mutation.kind
    static = "keeps its address" if mutation.static else "no fixed address" if mutation.static is False else "address not known"
    return Box(lines=(words.source(mutation, limit=_LABEL), f"{kind}, {static}"), look="mutated", tip=words.effects(mutation))


def _node_box(node: Node, writes: bool) -> Box:
    target = clean(node.target, limit=400).rpartition("torch.ops.")[2]
    code = clean_code(node.location.code, limit=_LABEL) if node.location is not None and node.location.code else ""
    lines = (clean(target, limit=_LABEL), *((code,) if writes and code else ()))
    where = "" if node.location is None else wording.place(node.location, None)
    return Box(lines=lines, look="inplace" if writes else "plain", tip=where)


def _back(mutation: Mutation) -> tuple[str, ...]:
    """Who writes the input back, and how much."""
    said: Mapping[str | None, str] = {
        "in_graph": "written in the graph",
        "epilogue": "copied back after the graph",
        "rejected": "refused by AOTAutograd",
    }
    size = "" if not mutation.bytes_written_back else f"{mutation.bytes_written_back:,} bytes per call"
    return tuple(line for line in (said.get(mutation.where, "not known what writes it back"), size) if line)


def _arrows(mutations: Sequence[Mutation], window: _Window) -> Iterator[Arrow]:
    positions = {node.name: len(mutations) + number for number, node in enumerate(window.nodes)}
    inputs = {_NOT_IN_NAMES.sub("_", mutation.input).strip("_").lower(): number for number, mutation in enumerate(mutations)}
    for node in window.nodes:
        for name in sorted(_uses(node)):
            tail = positions.get(name, inputs.get(name.strip("_").lower()))
            if tail is not None and tail < positions[node.name]:
                yield Arrow(tail=tail, head=positions[node.name])


def _last_write(mutation: Mutation, number: int, mutations: Sequence[Mutation], window: _Window) -> int:
    """The box of the last op that writes this input, else the input's own."""
    name = _NOT_IN_NAMES.sub("_", mutation.input).strip("_").lower()
    reached = text_writes([Node(name=key, op="placeholder", target=key) for key in (name, f"{name}_")] + list(window.nodes)).inputs
    written = {node.name for key in (name, f"{name}_") for node in reached.get(key, ())}
    last = [position for position, node in enumerate(window.nodes) if node.name in written]
    return len(mutations) + last[-1] if last else number
