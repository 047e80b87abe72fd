"""Whether two graphs do the same: the same operators with the same arguments, wired in the same way, whatever their nodes are called."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dynadiag.model.graph import Node

MOST_NODES = 20_000
_MOST_ALIKE = 200
"""How many nodes may share their colours with others for VF2++ to be asked: it may try all ways to pair them."""

_ROUNDS = 3
_NAME = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*")
_SYMBOL = re.compile(r"\b[su]\d+\b")
# Named after where they come from, which is not what they do.
_NAMELESS = frozenset({"placeholder", "get_attr", "output"})


@dataclass(frozen=True)
class Structure:
    """A graph without names: for each node what it is (`labels`) and the nodes that it reads, in the order of its arguments (`reads`)."""

    labels: tuple[str, ...]
    reads: tuple[tuple[int, ...], ...]
    colours: tuple[str, ...]
    digest: str


def structure_of(nodes: Sequence[Node]) -> Structure | None:
    """The structure of a graph's nodes; None for one with more than `MOST_NODES`, which is compared by its operators alone."""
    if len(nodes) > MOST_NODES:
        return None
    number: dict[str, int] = {}
    labels, reads = [], []
    for at, node in enumerate(nodes):
        read: list[int] = []

        def reference(match: re.Match[str], read: list[int] = read) -> str:
            known = number.get(match[0])
            if known is None:
                return match[0]
            read.append(known)
            return "%"

        arguments = [_SYMBOL.sub("s", _NAME.sub(reference, argument)) for argument in node.args]
        what = node.op if node.op in _NAMELESS else f"{node.op} {node.target}"
        labels.append(f"{what}({', '.join(arguments)})")
        reads.append(tuple(read))
        number[node.name] = at
    colours = _colours(labels, reads)
    return Structure(tuple(labels), tuple(reads), tuple(colours), _digest(sorted(colours)))


def _colours(labels: Sequence[str], reads: Sequence[Sequence[int]]) -> list[str]:
    """Weisfeiler and Lehman's colours: each node by its label and, a step further each round, by what it reads and what reads it."""
    users: list[list[tuple[int, int]]] = [[] for _ in labels]
    for at, read in enumerate(reads):
        for position, of in enumerate(read):
            users[of].append((at, position))
    colours = [_digest([label]) for label in labels]
    for _ in range(_ROUNDS):
        colours = [
            _digest(
                [colours[at], *(colours[of] for of in reads[at]), "|", *sorted(f"{colours[by]}{position}" for by, position in users[at])]
            )
            for at in range(len(labels))
        ]
    return colours


def _digest(parts: Iterable[str]) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


def is_same(structure: Structure, other: Structure) -> bool:
    """Whether two structures are isomorphic: arguments have an order, so both are walked from the output and their nodes paired.

    Nodes that the output does not depend on (writes) are paired in the order of the texts. Where that order differs VF2++ tells, but for
    graphs with more than `_MOST_ALIKE` nodes that look alike: for these the answer may be no.
    """
    if structure.digest != other.digest or Counter(structure.labels) != Counter(other.labels):
        return False
    if _is_walked_alike(structure, other):
        return True
    counts = Counter(structure.colours)
    return sum(count for count in counts.values() if count > 1) <= _MOST_ALIKE and _is_isomorphic(structure, other)


def _is_isomorphic(structure: Structure, other: Structure) -> bool:
    import networkx

    def view(of: Structure) -> networkx.DiGraph[object]:
        """Each argument is a node of its own, between what is read and what reads it, since VF2++ knows no labels of edges."""
        graph: networkx.DiGraph[object] = networkx.DiGraph()
        for at, colour in enumerate(of.colours):
            graph.add_node(at, label=colour)
        for at, read in enumerate(of.reads):
            for position, value in enumerate(read):
                graph.add_node((at, position), label=str(position))
                graph.add_edge(value, (at, position))
                graph.add_edge((at, position), at)
        return graph

    return bool(networkx.vf2pp_is_isomorphic(view(structure), view(other), node_label="label"))


def _is_walked_alike(structure: Structure, other: Structure) -> bool:
    pairs: dict[int, int] = {}
    back: dict[int, int] = {}
    for start in _starts(structure, other, pairs, back):
        pending = [start]
        while pending:
            left, right = pending.pop()
            if pairs.get(left) == right and back.get(right) == left:
                continue
            alike = structure.labels[left] == other.labels[right] and len(structure.reads[left]) == len(other.reads[right])
            if left in pairs or right in back or not alike:
                return False
            pairs[left], back[right] = right, left
            pending.extend(zip(structure.reads[left], other.reads[right], strict=True))
    return len(pairs) == len(structure.labels)


def _starts(structure: Structure, other: Structure, pairs: dict[int, int], back: dict[int, int]) -> Iterable[tuple[int, int]]:
    """The outputs, then what is not yet paired, the last nodes first, each with the last one of its label."""
    yield len(structure.labels) - 1, len(other.labels) - 1
    by_label: dict[str, list[int]] = {}
    for right, label in enumerate(other.labels):
        by_label.setdefault(label, []).append(right)
    for left in range(len(structure.labels) - 1, -1, -1):
        if left not in pairs:
            alike = by_label[structure.labels[left]]
            while alike and alike[-1] in back:
                alike.pop()
            if not alike:
                return
            yield left, alike[-1]
