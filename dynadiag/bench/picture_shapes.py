"""The part of `bench.svg` for shapes: how many times as fast each arm is at each shape, beside the line at 1."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping

from dynadiag.bench.outcome import Comparison, ShapeResult, ShapeStudy
from dynadiag.bench.verdict import Decision, Verdict
from dynadiag.render.sanitise import clean

_HEAD, _LABEL, _ROW = 56, 24, 20
_DOT = 4

Text = Callable[..., None]


def height_of(study: ShapeStudy | None) -> int:
    """Pixels that the shapes take."""
    return 0 if study is None or not study.shapes else _HEAD + sum(_LABEL + _ROW * len(_beside_baseline(shape)) for shape in study.shapes)


def _beside_baseline(shape_result: ShapeResult) -> list[Comparison]:
    return [item for item in shape_result.timing.comparisons if item.baseline == shape_result.timing.arms[0].name]


def draw_shapes(
    root: ElementTree.Element, study: ShapeStudy, top: int, *, left: int, room: int, classes: Mapping[str, str], plain: str, text: Text
) -> None:
    """Draw the shapes from `top` on; `left` and `room` are where values go, the axis reaches from 0 to the highest interval."""
    decisions = [item.decision for shape_result in study.shapes for item in _beside_baseline(shape_result) if item.decision is not None]
    longest = max([1.1, *(decision.speedup.high for decision in decisions)])
    text(root, 12, top + 22, "times as fast as the baseline, by shape and how many of the watched calls had it", "dd-s")
    at_one = left + room / longest
    bottom = top + height_of(study) - 8
    line = {"class": "dd-edge", "x1": f"{at_one:.1f}", "x2": f"{at_one:.1f}", "y1": str(top + _HEAD - 16), "y2": str(bottom)}
    ElementTree.SubElement(root, "line", line)
    text(root, int(at_one), top + _HEAD - 19, "1", "dd-s", anchor="middle")
    y = top + _HEAD
    for shape in study.shapes:
        text(root, 12, y + 9, clean(f"{shape.label} ({shape.calls} call{'s' if shape.calls > 1 else ''})", limit=110), "dd-tag")
        y += _LABEL
        for item in _beside_baseline(shape):
            text(root, left - 8, y + 5, clean(item.arm, limit=27), "dd-s", anchor="end")
            note = str(item.verdict)
            if item.decision is not None and item.verdict not in (Verdict.WRONG, Verdict.VACUOUS):
                _mark(root, item.decision, y + 1, left=left, scale=room / longest, name=classes.get(item.verdict, plain))
                note = f"{item.decision.speedup.estimate:.3f} {note}"
            text(root, left + room + 10, y + 5, note, "dd-s")
            y += _ROW


def _mark(root: ElementTree.Element, decision: Decision, y: int, *, left: int, scale: float, name: str) -> None:
    speed = decision.speedup
    ends = {
        "class": "dd-ends",
        "x1": f"{left + speed.low * scale:.1f}",
        "x2": f"{left + speed.high * scale:.1f}",
        "y1": str(y),
        "y2": str(y),
    }
    ElementTree.SubElement(root, "line", ends)
    middle = left + speed.estimate * scale
    corners = ((middle - _DOT, y), (middle, y - _DOT), (middle + _DOT, y), (middle, y + _DOT))
    points = " ".join(f"{x:.1f},{at}" for x, at in corners)
    ElementTree.SubElement(root, "polygon", {"class": name, "points": points})
