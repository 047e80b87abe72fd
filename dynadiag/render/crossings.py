"""Which lines of a layout cross."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

from dynadiag.graphs.graphviz_layout import Curve

_STEPS = 6
_MEETING = 3.0
_Point = tuple[float, float]


def crossing_pairs(curves: Sequence[Curve]) -> list[tuple[Curve, Curve]]:
    """The pairs of curves that cross, but for those that only meet at an end."""
    lines = [_straight_pieces(curve) for curve in curves]
    boxes = [(min(x), max(x), min(y), max(y)) for x, y in (zip(*line, strict=True) for line in lines)]
    return [
        (curves[one], curves[other])
        for one, other in combinations(range(len(curves)), 2)
        if _overlap(boxes[one], boxes[other]) and _cross(lines[one], lines[other])
    ]


def _straight_pieces(curve: Curve) -> list[_Point]:
    points = [curve.points[0]]
    for start in range(0, len(curve.points) - 3, 3):
        (x0, y0), (x1, y1), (x2, y2), (x3, y3) = curve.points[start : start + 4]
        for step in range(1, _STEPS + 1):
            t = step / _STEPS
            a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            points.append((a * x0 + b * x1 + c * x2 + d * x3, a * y0 + b * y1 + c * y2 + d * y3))
    return points


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1] and one[2] <= other[3] and other[2] <= one[3]


def _cross(one: Sequence[_Point], other: Sequence[_Point]) -> bool:
    ends = (one[0], one[-1], other[0], other[-1])
    for a, b in pairwise(one):
        low, high = min(a[1], b[1]), max(a[1], b[1])
        for c, d in pairwise(other):
            if max(c[1], d[1]) < low or min(c[1], d[1]) > high:
                continue
            place = _meeting_point(a, b, c, d)
            if place is not None and all(abs(place[0] - x) + abs(place[1] - y) > _MEETING for x, y in ends):
                return True
    return False


def _meeting_point(a: _Point, b: _Point, c: _Point, d: _Point) -> _Point | None:
    """Where two straight pieces cross."""
    area = (b[0] - a[0]) * (d[1] - c[1]) - (b[1] - a[1]) * (d[0] - c[0])
    if abs(area) < 1e-9:
        return None
    t = ((c[0] - a[0]) * (d[1] - c[1]) - (c[1] - a[1]) * (d[0] - c[0])) / area
    u = ((c[0] - a[0]) * (b[1] - a[1]) - (c[1] - a[1]) * (b[0] - a[0])) / area
    return (a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])) if 0 <= t <= 1 and 0 <= u <= 1 else None
