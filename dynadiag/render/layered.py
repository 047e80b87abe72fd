"""Our own plain layered drawing, for machines where Graphviz does not run: boxes in rows, straight arrows, and a text form."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

from dynadiag.render.dot import BREAK_COLOUR, EDGE_COLOUR
from dynadiag.render.sanitise import xml_text
from dynadiag.render.sketch import STYLES, Arrow, Box, Sketch
from dynadiag.render.svg import FONTS, NAMESPACE

_CHARACTER = 6.0
_LINE = 13.0
_PADDING = 8.0
_GAP_X = 14.0
_GAP_Y = 34.0
_ROW_WIDTH = 1400.0


def draw(sketch: Sketch) -> bytes:
    """The sketch as SVG, laid out in rows by longest path (units: CSS pixels); wide rows are broken into several."""
    sizes = [_size(box) for box in sketch.boxes]
    title = [*sketch.title, *sketch.legend]
    top = _LINE * (len(title) + 1)
    places, width, height = _places(_rows(sketch), sizes, top)
    width = max([width, *(_CHARACTER * len(line) + 2 * _PADDING for line in title)])
    root = ElementTree.Element(
        "svg", xmlns=NAMESPACE, width=f"{width:.0f}", height=f"{height:.0f}", viewBox=f"0 0 {width:.0f} {height:.0f}"
    )
    ElementTree.SubElement(root, "rect", x="0", y="0", width=f"{width:.0f}", height=f"{height:.0f}", fill="white")
    for number, line in enumerate(title):
        _text(root, line, _PADDING, _LINE * (number + 1), anchor="start")
    for arrow in sketch.arrows:
        _draw_arrow(root, arrow, places, sizes)
    for number, box in enumerate(sketch.boxes):
        _draw_box(root, number, box, places[number], sizes[number])
    return ElementTree.tostring(root)


def _size(box: Box) -> tuple[float, float]:
    longest = max((len(line) for line in box.lines), default=1)
    return _CHARACTER * longest + 2 * _PADDING, _LINE * max(1, len(box.lines)) + _PADDING


def _rows(sketch: Sketch) -> list[list[int]]:
    """Boxes by layer; an arrow that goes back to an earlier box does not count."""
    import networkx  # 0.3 CPU seconds, which no picture of Graphviz needs

    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(sketch.boxes)))
    graph.add_edges_from((arrow.tail, arrow.head) for arrow in sketch.arrows if arrow.tail < arrow.head)
    return [_by_parents(sorted(row), graph) for row in networkx.topological_generations(graph)]


def _by_parents(row: list[int], graph: Any) -> list[int]:
    def middle(number: int) -> tuple[float, int]:
        parents = list(graph.predecessors(number))
        return (sum(parents) / len(parents) if parents else number, number)

    return sorted(row, key=middle)


def _places(rows: list[list[int]], sizes: list[tuple[float, float]], top: float) -> tuple[dict[int, tuple[float, float]], float, float]:
    """The upper left corner of each box, and the size of the page."""
    places: dict[int, tuple[float, float]] = {}
    right, y = 0.0, top
    for row in rows:
        x, tallest = _PADDING, 0.0
        for number in row:
            width, height = sizes[number]
            if x > _PADDING and x + width > _ROW_WIDTH:
                x, y, tallest = _PADDING, y + tallest + _PADDING, 0.0
            places[number] = (x, y)
            x, tallest = x + width + _GAP_X, max(tallest, height)
            right = max(right, x)
        y += tallest + _GAP_Y
    return places, right, y


def _draw_arrow(root: ElementTree.Element, arrow: Arrow, places: dict[int, tuple[float, float]], sizes: list[tuple[float, float]]) -> None:
    colour = BREAK_COLOUR if arrow.strong else EDGE_COLOUR
    (x1, y1), (x2, y2) = places[arrow.tail], places[arrow.head]
    start = (x1 + sizes[arrow.tail][0] / 2, y1 + sizes[arrow.tail][1])
    end = (x2 + sizes[arrow.head][0] / 2, y2)
    group = ElementTree.SubElement(root, "g", {"class": "edge"})
    path = f"M{start[0]:.1f},{start[1]:.1f} L{end[0]:.1f},{end[1]:.1f}"
    ElementTree.SubElement(group, "path", {"d": path, "stroke": colour, "fill": "none", "stroke-width": "2" if arrow.strong else "1"})
    tip = f"{end[0]:.1f},{end[1]:.1f} {end[0] - 3:.1f},{end[1] - 6:.1f} {end[0] + 3:.1f},{end[1] - 6:.1f}"
    ElementTree.SubElement(group, "polygon", points=tip, fill=colour)


def _draw_box(root: ElementTree.Element, number: int, box: Box, place: tuple[float, float], size: tuple[float, float]) -> None:
    style = STYLES[box.look]
    group = ElementTree.SubElement(root, "g", {"class": "node"})
    ElementTree.SubElement(group, "title").text = f"n{number}"
    shape = {"x": f"{place[0]:.1f}", "y": f"{place[1]:.1f}", "width": f"{size[0]:.1f}", "height": f"{size[1]:.1f}", "rx": "4"}
    shape |= {"fill": style.fill, "stroke": style.line, "stroke-width": "2" if style.bold else "1"}
    if style.dashed:
        shape["stroke-dasharray"] = "4 2"
    ElementTree.SubElement(group, "rect", shape)
    for row, line in enumerate(box.lines):
        _text(group, line, place[0] + size[0] / 2, place[1] + _LINE * (row + 1))


def _text(parent: ElementTree.Element, text: str, x: float, y: float, *, anchor: str = "middle", colour: str = "#1f2328") -> None:
    shape = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, "font-family": FONTS, "font-size": "10", "fill": colour}
    ElementTree.SubElement(parent, "text", shape).text = xml_text(text)


def describe(sketch: Sketch) -> str:
    """The sketch as text: one line a box, with the boxes that it leads to."""
    heads: dict[int, list[str]] = {}
    for arrow in sketch.arrows:
        heads.setdefault(arrow.tail, []).append(f"n{arrow.head}")
    lines = [f"n{number} [{box.look}] {' | '.join(box.lines)}" + _arrow_text(heads.get(number)) for number, box in enumerate(sketch.boxes)]
    return "\n".join([*sketch.title, *lines]) + "\n"


def _arrow_text(heads: list[str] | None) -> str:
    return f" -> {', '.join(heads)}" if heads else ""
