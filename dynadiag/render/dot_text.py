"""A picture as DOT text: for people, with every word (`.gv` beside an SVG), and for the layout, with sizes and not one word of a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynadiag.render.palette import COLOURS
from dynadiag.render.picture import Picture
from dynadiag.render.sanitise import without_unseen

if TYPE_CHECKING:
    from graphviz import Digraph

_FILLS = {"eager": "eager_fill", "broken": "broken_fill", "compiled": "compiled_fill", "partly": "partly_fill", "kept": "partly_fill",
          "folded": "folded_fill", "gone": "panel", "break": "ground"}  # fmt: skip
_POINTS = 72
_LONGEST_LINE = 400
CLUSTER_MARGIN = 8


def dot_text(picture: Picture) -> str:
    """The picture as a text that every Graphviz draws: boxes with their lines, modules as clusters, edges with what flows."""
    import graphviz

    graph = graphviz.Digraph(
        "picture",
        graph_attr={"label": _label([picture.title, *picture.summary]), "labelloc": "t", "fontname": "Helvetica", "compound": "true"},
        node_attr={"shape": "box", "style": "rounded,filled", "fillcolor": "white", "fontname": "Courier", "fontsize": "12"},
        edge_attr={"fontname": "Helvetica", "fontsize": "11"},
    )
    boxes = {}
    for number, row in enumerate(picture.rows):
        fill = COLOURS[_FILLS.get(row.kind, row.kind)][0]
        boxes[number] = {"label": _label([row.name, row.note, *row.below]), "fillcolor": fill, **({"penwidth": "2"} if row.ends else {})}
    titles = {number: {"label": _label([panel.title, panel.tag])} for number, panel in enumerate(picture.panels)}
    _add_boxes(graph, picture, boxes, titles)
    for link in picture.links:
        words = _label([link.label])
        strong = {"color": COLOURS["broken"][0], "penwidth": "2"} if link.strong else {}
        graph.edge(f"n{link.tail}", f"n{link.head}", **({"label": words} if words else {}), **strong)
    return str(graph.source)


def _label(lines: Iterable[str]) -> str:
    """Lines of text that Graphviz takes as they are: no escape, no HTML, no line without a word (Graphviz 14.1 may crash on those).

    They are cut, since it reads no label of more than 16 KiB.
    """
    import graphviz

    seen = [without_unseen(line[:_LONGEST_LINE].replace("\n", " ")).strip() for line in lines]
    label: str = graphviz.nohtml("\\n".join(graphviz.escape(line) for line in seen if line))
    return label


@dataclass(frozen=True, slots=True)
class Question:
    """What Graphviz is asked: rows with their sizes in pixels, links between them, and what else holds.

    `entries` and `exits` are, by the row that a value comes from, the rows below a point at the top, and the point at the bottom that it
    leads to. Of `folded` pairs the second row comes below the first, straight below it where they are `in_file`.
    """

    sizes: Mapping[int, tuple[float, float]]
    links: Set[tuple[int, int]]
    entries: Mapping[int, Sequence[int]]
    exits: Sequence[int]
    folded: Sequence[tuple[int, int]]
    gap: float
    in_file: bool = False


def layout_text(picture: Picture, question: Question) -> str:
    """The text for the layout: nodes `n3`, points `in3` and `out3`, clusters `cluster_2`."""
    import graphviz

    graph = graphviz.Digraph(
        graph_attr={"nodesep": _inches(10), "ranksep": _inches(question.gap), "margin": "0", "nslimit": "2"},
        node_attr={"shape": "box", "fixedsize": "true", "label": ""},
        edge_attr={"arrowsize": "0.7"},
    )
    boxes = {number: {"width": _inches(width), "height": _inches(height)} for number, (width, height) in question.sizes.items()}
    margin = {"margin": str(CLUSTER_MARGIN)}
    _add_boxes(graph, picture, boxes, dict.fromkeys(range(len(picture.panels)), margin))
    for rank, names in (("source", [f"in{at}" for at in question.entries]), ("sink", [f"out{at}" for at in question.exits])):
        if names:
            with graph.subgraph() as same:
                same.attr(rank=rank)
                for name in names:
                    same.node(name, width="0.01", height="0.01")
    for tail, heads in question.entries.items():
        for head in heads:
            graph.edge(f"in{tail}", f"n{head}")
    straight = {"weight": "3"} if question.in_file else {}
    for tail, head in sorted(question.links):
        graph.edge(f"n{tail}", f"n{head}", **(straight if (tail, head) in question.folded else {}))
    for tail in question.exits:
        graph.edge(f"n{tail}", f"out{tail}", arrowhead="none")
    for upper, lower in question.folded:
        if (upper, lower) not in question.links:
            graph.edge(f"n{upper}", f"n{lower}", style="invis", **(straight or {"weight": "0"}))
    return str(graph.source)


def _inches(pixels: float) -> str:
    return f"{pixels / _POINTS:.4f}"


def _add_boxes(graph: Digraph, picture: Picture, boxes: Mapping[int, Mapping[str, str]], panels: Mapping[int, Mapping[str, str]]) -> None:
    """Boxes in their clusters, two deep."""
    inside: dict[int | None, dict[int | None, list[int]]] = {}
    for number in boxes:
        row = picture.rows[number]
        inside.setdefault(row.outer, {}).setdefault(row.inner, []).append(number)
    for outer, parts in inside.items():
        with _cluster(graph, outer, panels) as around:
            for inner, numbers in parts.items():
                with _cluster(around, inner, panels) as within:
                    for number in numbers:
                        within.node(f"n{number}", **boxes[number])


@contextmanager
def _cluster(graph: Digraph, number: int | None, panels: Mapping[int, Mapping[str, str]]) -> Iterator[Digraph]:
    """A cluster of this panel, or the graph itself."""
    if number is None:
        yield graph
        return
    with graph.subgraph(name=f"cluster_{number}") as cluster:
        cluster.attr(**panels[number])
        yield cluster
