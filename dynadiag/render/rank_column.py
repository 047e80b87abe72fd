"""One column of a picture in ranks: what Graphviz answered, with room for the heads of panels, and the rows that stand side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dynadiag.graphs.graphviz_layout import Coordinates, Curve, Rectangle
from dynadiag.render.layout import BOLD, HEAD, MONO, TWO_HEADS, Place, text_width
from dynadiag.render.picture import Panel, Picture


@dataclass(slots=True)
class Column:
    """Rows that Graphviz laid out; y grows downwards, from 0."""

    rows: dict[int, Place]
    panels: dict[int, Place]
    curves: list[Curve]
    ports: dict[str, tuple[float, float]]
    width: float
    height: float
    heads: dict[int, float] = field(default_factory=dict)
    """The height of each panel's head."""


def with_heads(picture: Picture, found: Coordinates, sizes: Mapping[int, tuple[float, float]]) -> Column:
    """The coordinates with room for the heads: everything below the top of a panel moves down."""
    panels = {int(name.removeprefix("cluster_")): place for name, place in found.clusters.items() if name.startswith("cluster_")}
    heads = {number: _head_height(picture.panels[number], place.width) for number, place in panels.items()}
    moves = _moves(panels, heads, list(found.boxes.values()))

    def moved(y: float) -> float:
        return y + sum(by for at, by in moves if at <= y + 0.5)

    rows, ports = {}, {}
    for name, box in found.boxes.items():
        centre_x, centre_y = box.x + box.width / 2, box.y + box.height / 2
        if name.startswith("n"):
            number = int(name[1:])
            width, height = sizes[number]
            upper, lower = moved(centre_y - height / 2), moved(centre_y + height / 2)
            rows[number] = Place(float(round(centre_x - width / 2)), float(round(upper)), width, max(height, float(round(lower - upper))))
        else:
            ports[name] = centre_x, moved(centre_y)
    curves = [
        Curve(curve.tail, curve.head, tuple((x, moved(y)) for x, y in curve.points), (curve.tip[0], moved(curve.tip[1])))
        for curve in found.curves
    ]
    # The top of a panel moves as what is above its own head.
    places = {
        number: Place(place.x, moved(place.y) - heads[number], place.width, moved(place.y + place.height) - moved(place.y) + heads[number])
        for number, place in panels.items()
    }
    return Column(rows, places, curves, ports, found.width, moved(found.height), heads)


def _head_height(panel: Panel, width: float) -> float:
    two = panel.title and panel.tag and text_width(panel.title, MONO) + text_width(panel.tag, BOLD) + 32 > width
    return TWO_HEADS if two else HEAD


def _moves(panels: Mapping[int, Rectangle], heads: Mapping[int, float], boxes: Sequence[Rectangle]) -> list[tuple[float, float]]:
    """Where room is made and how much: once for panels side by side that begin at about the same height, again for one inside another."""
    made: list[tuple[list[Rectangle], float, float]] = []
    for number, place in sorted(panels.items(), key=lambda item: (item[1].y, item[1].x)):
        for at, (others, y, by) in enumerate(made):
            if abs(y - place.y) <= 6 and not any(_contains(other, place) for other in others):
                made[at] = ([*others, place], min(y, place.y), max(by, heads[number]))
                break
        else:
            around = [other.y + 1 for other in panels.values() if other is not place and _contains(other, place)]
            made.append(([place], max(_between_boxes(place, boxes), *around, 0.0), heads[number]))
    return [(y, by) for _, y, by in made]


def _between_boxes(panel: Rectangle, boxes: Sequence[Rectangle]) -> float:
    """The top of a panel, or a height above it that cuts no box, where nothing stands between."""
    y = panel.y
    while cut := [box.y for box in boxes if box.y < y - 0.5 and y + 0.5 < box.y + box.height]:
        y = min(cut)
    between = any(
        panel.x < box.x + box.width and box.x < panel.x + panel.width and y - 1 < box.y + box.height / 2 < panel.y for box in boxes
    )
    return panel.y if between else y


def _contains(outer: Rectangle, inner: Rectangle) -> bool:
    return outer.x <= inner.x and outer.x + outer.width >= inner.x + inner.width and outer.y <= inner.y


def folds_of(column: Column, most: float) -> Iterator[tuple[int, int]]:
    """Pairs of rows that shall stand one below the other: ranks that are too wide are cut into parts that fit."""
    for rank in ranks_of(column):
        parts: list[list[int]] = [[]]
        used = 0.0
        for number in rank:
            width = column.rows[number].width + 30
            if parts[-1] and used + width > most:
                parts.append([])
                used = 0.0
            parts[-1].append(number)
            used += width
        for upper, lower in itertools.pairwise(parts):
            yield from ((upper[0], number) for number in lower)


def ranks_of(column: Column) -> list[list[int]]:
    """Rows that stand side by side, from the top, each from the left."""
    found: dict[float, list[int]] = {}
    for number, place in column.rows.items():
        found.setdefault(round(place.y + place.height / 2), []).append(number)
    return [sorted(found[y], key=lambda number: column.rows[number].x) for y in sorted(found)]
