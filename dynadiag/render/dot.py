"""A sketch as DOT text, built with the `graphviz` package.

Node ids are `n0`...`nN` and nothing else. Tool tips are not in the DOT text, since Graphviz expands its node and graph escapes in them even
when they are escaped: `svg.finish` puts them in afterwards.
"""

from __future__ import annotations

import graphviz

from dynadiag.render.sanitise import REPLACEMENT, xml_text
from dynadiag.render.sketch import STYLES, Arrow, Box, Sketch

FONT = "Arial"
"""Graphviz knows the widths of Arial; text in another font is measured wrongly and overflows its box."""

BREAK_COLOUR = "#bc4c00"
EDGE_COLOUR = "#6e7781"


def source(sketch: Sketch) -> str:
    """The DOT text; the same sketch always gives the same text."""
    graph = graphviz.Digraph("dynadiag", graph_attr=_graph_attributes(sketch), node_attr=_NODE, edge_attr=_EDGE)
    for number, box in enumerate(sketch.boxes):
        graph.node(f"n{number}", **_box_attributes(box))
    for arrow in sketch.arrows:
        graph.edge(f"n{arrow.tail}", f"n{arrow.head}", **_arrow_attributes(arrow))
    return str(graph.source)


_NODE = {"fontname": FONT, "fontsize": "10", "shape": "box", "style": "filled,rounded", "margin": "0.1,0.05", "height": "0.3"}
_EDGE = {"arrowsize": "0.6", "color": EDGE_COLOUR}


def _graph_attributes(sketch: Sketch) -> dict[str, str]:
    return {
        "fontname": FONT,
        "fontsize": "11",
        "label": label((*sketch.title, *sketch.legend), left=True),
        "labelloc": "t",
        "labeljust": "l",
        "bgcolor": "white",
        "rankdir": "TB",
        "nodesep": "0.15",
        "ranksep": "0.25",
        "pack": "12",
        "packmode": "array_t3",
    }


def _box_attributes(box: Box) -> dict[str, str]:
    style = STYLES[box.look]
    shape = "filled,rounded" + (",dashed" if style.dashed else "") + (",bold" if style.bold else "")
    return {"label": label(box.lines), "fillcolor": style.fill, "color": style.line, "style": shape}


def _arrow_attributes(arrow: Arrow) -> dict[str, str]:
    return {"color": BREAK_COLOUR, "penwidth": "1.6"} if arrow.strong else {}


def label(lines: tuple[str, ...], *, left: bool = False) -> str:
    """Label text that shows exactly these lines: no entity, no escape sequence and no HTML label can come out of them."""
    end = "\\l" if left else "\\n"
    parts = [_escaped(line) for line in lines]
    text = end.join(parts) + (end if left else "")
    return str(graphviz.nohtml(text or " "))


def _escaped(line: str) -> str:
    """The line without what starts an entity (&) or an escape (a backslash), and without what XML forbids."""
    safe = xml_text(line).replace("\n", " ").replace("\r", REPLACEMENT).replace("&", "&amp;")
    return str(graphviz.escape(safe))
