"""A captured graph made ready for a picture: what each node uses, its class, its tensor, and by name the buffers that it writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.facts.graph_writes import text_writes
from dynadiag.graphs.critical_path import CriticalPath, critical_path
from dynadiag.model.graph import Node
from dynadiag.render.operator_classes import operator_class
from dynadiag.trace import argument_names

_TENSOR = re.compile(r"([A-Za-z]\w*)\[([^\]]*)\]")
_BITS = re.compile(r"\D*(\d+)")
_STATE = re.compile(r"_(parameters|buffers)_|^(?:primals|tangents|arg|buf|getitem)_?\d+(?:_1)? ", re.IGNORECASE)
_UNBACKED = re.compile(r"\bu\d+")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as FX annotates it: `f32`, `f32[4,128,64]`, and its bytes where all sizes are numbers."""

    dtype: str
    text: str
    size: int | None


@dataclass(frozen=True, slots=True)
class GraphView:
    """`drawn` are the calls, in order; everything else is by position in it: `sources` are positions, `inputs` names of placeholders."""

    drawn: tuple[Node, ...]
    sources: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...]
    tensors: tuple[Tensor | None, ...]
    writes: Mapping[int, tuple[str, ...]]
    outputs: frozenset[int]
    given: Mapping[str, Node]

    @property
    def shown_inputs(self) -> tuple[str, ...]:
        """The placeholders that are neither parameters nor buffers, judging by the names that torch gives them."""
        named = ((name, f"{name} {node.target}") for name, node in self.given.items() if node.op == "placeholder")
        return tuple(name for name, spellings in named if not _STATE.search(spellings))

    @property
    def critical_path(self) -> CriticalPath:
        """The longest chain of calls, by count and by bytes."""
        return critical_path(self.sources, [None if made is None else made.size for made in self.tensors])


def graph_view(nodes: Sequence[Node], label: Callable[[str], str] = str, writes: Mapping[str, Sequence[str]] | None = None) -> GraphView:
    """The view of a graph; `label` gives a person's name of a placeholder or attribute, `writes` what nodes write, by their names.

    Without `writes` the graph's text tells.
    """
    drawn = tuple(node for node in nodes if node.is_call)
    given = {node.name: node for node in nodes if node.op in ("placeholder", "get_attr")}
    hidden = {spelling: name for name in given for spelling in (_folded(name), name)}
    positions = {node.name: number for number, node in enumerate(drawn)}
    sources, inputs = [], []
    for number, node in enumerate(drawn):
        names = argument_names(node.args)
        sources.append(tuple(positions[name] for name in names if positions.get(name, number) < number))
        uses = (hidden.get(name) or hidden.get(_folded(name)) for name in names if name not in positions)
        inputs.append(tuple(dict.fromkeys(name for name in uses if name)))
    known = ((positions[name], tuple(to)) for name, to in (writes or {}).items() if name in positions)
    written = _writes(nodes, positions, label) if writes is None else dict(known)
    ends = argument_names(text for node in nodes if node.op == "output" for text in node.args)
    tensors = tuple(tensor(node.annotation) for node in drawn)
    return GraphView(
        drawn=drawn,
        sources=tuple(sources),
        inputs=tuple(inputs),
        classes=tuple("write" if at in written else kind for at, kind in enumerate(_classes(nodes, drawn, tensors))),
        tensors=tensors,
        writes=written,
        outputs=frozenset(positions[name] for name in ends if name in positions),
        given=given,
    )


def _folded(name: str) -> str:
    """A name without what `torch.fx` changes when an argument (`L_x_`, `..._LayerNorm_`) becomes a node (`l_x_`, `..._layer_norm_`)."""
    return "~" + name.replace("_", "").lower()


def _classes(nodes: Sequence[Node], drawn: Sequence[Node], tensors: Sequence[Tensor | None]) -> Iterator[str]:
    """The class of each drawn node; the first one with an unbacked size (`u0`) in its shape made it out of values."""
    known = {size for node in nodes if node.op == "placeholder" for size in _UNBACKED.findall(node.annotation or "")}
    for node, made in zip(drawn, tensors, strict=True):
        sizes = set(_UNBACKED.findall(made.text)) if made is not None and "u" in made.text else set()
        yield "dependent" if sizes - known else operator_class(node.op, node.target)
        known |= sizes


def tensor(annotation: str | None) -> Tensor | None:
    """The tensor of an annotation (`f32[4, 128][128, 1]cpu`); None where it is none."""
    match = _TENSOR.match(annotation or "")
    if match is None:
        return None
    dtype, inside = match.groups()
    sizes = [part.strip() for part in inside.split(",")] if inside.strip() else []
    text = f"{dtype}[{','.join(sizes)}]"
    bits = 8 if dtype.startswith("b8") or dtype == "b8" else int(match[1]) if (match := _BITS.match(dtype)) and len(match[1]) < 4 else 0
    if not bits or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in sizes):
        return Tensor(dtype, text, None)
    count = bits // 8
    for part in sizes:
        count *= int(part)
    return Tensor(dtype, text, count)


def _writes(nodes: Sequence[Node], positions: Mapping[str, int], label: Callable[[str], str]) -> Mapping[int, tuple[str, ...]]:
    """By position of a writing operator: the inputs that it reaches, through views."""
    found: dict[int, tuple[str, ...]] = {}
    given = [node for node in nodes if node.op in ("placeholder", "get_attr")]
    names = {key.lower(): label(key) for key in (node.name if node.op == "placeholder" else node.target for node in given)}
    for root, writers in text_writes(nodes).inputs.items():
        for position in (positions[node.name] for node in writers if node.name in positions):
            found[position] = (*found.get(position, ()), names.get(root, root))
    return found
