"""The part of `bench.svg` for shapes: how many times as fast each arm is at each shape, beside the line at 1."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

from dynadiag.bench.outcome import Comparison, ShapeResult, ShapeStudy
from dynadiag.bench.verdict import Decision, Verdict
from dynadiag.render.sanitise import clean

_HEAD, _LABEL, _ROW = 56, 24, 20
_DOT = 4

Text = Callable[..., None]


def height_of(study: ShapeStudy | None) -> int:
    """Pixels that the shapes take."""
    return 0 if study is None or not study.shapes else _HEAD + sum(_LABEL + _ROW * len(_beside_baseline(one)) for one in study.shapes)


def _beside_baseline(one: ShapeResult) -> list[Comparison]:
    return [item for item in one.timing.comparisons if item.baseline == one.timing.arms[0].name]


def draw_shapes(
    root: ElementTree.Element, study: ShapeStudy, top: int, *, left: int, room: int, colours: dict[Verdict, str], plain: str, text: Text
) -> None:
    """Draw the shapes from `top` on; `left` and `room` are where values go, the axis reaches from 0 to the highest interval."""
    decisions = [item.decision for one in study.shapes for item in _beside_baseline(one) if item.decision is not None]
    longest = max([1.1, *(decision.speedup.high for decision in decisions)])
    text(root, 12, top + 22, "times as fast as the baseline, by shape and how many of the watched calls had it", size=11)
    at_one = left + room / longest
    bottom = top + height_of(study) - 8
    line = {"x1": f"{at_one:.1f}", "x2": f"{at_one:.1f}", "y1": str(top + _HEAD - 16), "y2": str(bottom), "stroke": plain}
    ElementTree.SubElement(root, "line", {**line, "stroke-dasharray": "3 3"})
    text(root, int(at_one), top + _HEAD - 19, "1", size=11, anchor="middle")
    y = top + _HEAD
    for one in study.shapes:
        text(root, 12, y + 9, clean(f"{one.label} ({one.calls} call{'s' if one.calls > 1 else ''})", limit=110), size=11, weight="bold")
        y += _LABEL
        for item in _beside_baseline(one):
            text(root, left - 8, y + 5, clean(item.arm, limit=27), size=11, anchor="end")
            note = str(item.verdict)
            if item.decision is not None and item.verdict not in (Verdict.WRONG, Verdict.VACUOUS):
                _mark(root, item.decision, y + 1, left=left, scale=room / longest, colour=colours.get(item.verdict, plain))
                note = f"{item.decision.speedup.estimate:.3f} {note}"
            text(root, left + room + 10, y + 5, note, size=11)
            y += _ROW


def _mark(root: ElementTree.Element, decision: Decision, y: int, *, left: int, scale: float, colour: str) -> None:
    speed = decision.speedup
    ends = {"x1": f"{left + speed.low * scale:.1f}", "x2": f"{left + speed.high * scale:.1f}", "y1": str(y), "y2": str(y)}
    ElementTree.SubElement(root, "line", {**ends, "stroke": colour, "stroke-width": "2"})
    place = {"cx": f"{left + speed.estimate * scale:.1f}", "cy": str(y), "r": str(_DOT), "fill": colour}
    ElementTree.SubElement(root, "circle", place)
