"""Curves of Graphviz as lines of a picture, and the labels for which there is room beside them."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.graphs.graphviz_layout import Curve
from dynadiag.render.layout import SANS, Layout, Place, Stroke, text_width
from dynadiag.render.layout import number_text as _n
from dynadiag.render.picture import Link

_TIP = 7.0


def drop_of(curve: Curve) -> float:
    """How far down a curve goes."""
    return curve.points[-1][1] - curve.points[0][1]


def curve_path(curve: Curve, x: float, y: float) -> str:
    """The curve as SVG has it, moved by `x` and `y`."""
    (x0, y0), *rest = curve.points
    pieces = " ".join(f"{_n(px + x)} {_n(py + y)}" for px, py in rest)
    return f"M{_n(x0 + x)} {_n(y0 + y)}C{pieces}"


def stroke_of(curve: Curve, x: float, y: float, link: Link) -> Stroke:
    """The curve with its arrow: a triangle from where the curve ends to the tip."""
    (ex, ey), (tx, ty) = curve.points[-1], curve.tip
    length = ((tx - ex) ** 2 + (ty - ey) ** 2) ** 0.5 or 1.0
    dx, dy = (tx - ex) / length, (ty - ey) / length
    bx, by = tx - _TIP * dx, ty - _TIP * dy
    corners = ((tx, ty), (bx - 3.5 * dy, by + 3.5 * dx), (bx + 3.5 * dy, by - 3.5 * dx))
    tip = " ".join(f"{_n(px + x)},{_n(py + y)}" for px, py in corners)
    path = f"{curve_path(curve, x, y)}L{_n(bx + x)} {_n(by + y)}" if length > _TIP else curve_path(curve, x, y)
    return Stroke(path, (tip,), link.strong, link.label, _middle(curve, x, y))


def _middle(curve: Curve, x: float, y: float) -> tuple[float, float]:
    """A point of the curve halfway."""
    points = curve.points
    at = (len(points) - 1) // 3 // 2 * 3
    p0, p1, p2, p3 = points[at : at + 4]
    return (p0[0] + 3 * p1[0] + 3 * p2[0] + p3[0]) / 8 + x, (p0[1] + 3 * p1[1] + 3 * p2[1] + p3[1]) / 8 + y


def keep_labels(made: Layout) -> None:
    """Leave out the labels for which there is no room beside their line."""
    taken = [Place(place.x, place.y - 2, place.width, place.height + 4) for place in made.rows.values()]
    taken += [Place(place.x, place.y, place.width, place.height) for _, _, place in made.heads]
    middles = [stroke.label_at for stroke in made.strokes]
    for at, stroke in enumerate(made.strokes):
        if not stroke.label:
            continue
        x, y = stroke.label_at
        spot = Place(x + 6, y - 7, text_width(stroke.label, SANS), 13)
        crossed = any(spot.x < mx < spot.x + spot.width and spot.y < my < spot.y + 13 for mx, my in middles[:at] + middles[at + 1 :])
        free = not crossed and spot.x + spot.width < made.width - 4 and not any(_overlap(spot, other) for other in taken)
        taken += [spot] if free else []
        made.strokes[at] = replace(stroke, label=stroke.label if free else "", label_at=(x + 6, y + 3))


def _overlap(place: Place, other: Place) -> bool:
    return (
        place.x < other.x + other.width
        and other.x < place.x + place.width
        and place.y < other.y + other.height
        and other.y < place.y + place.height
    )
