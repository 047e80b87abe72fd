"""`bench.svg`: a bar an arm with its interval, from zero, nothing clipped, light and dark; for shapes a point each, and the line at 1."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping

from dynadiag.bench.outcome import ArmResult, BenchResult, Comparison, ShapeResult, ShapeStudy
from dynadiag.bench.verdict import Decision, SpeedVerdict
from dynadiag.render.sanitise import clean, xml_text
from dynadiag.render.svg import sealed

_HEAD, _LABEL, _SHAPE_ROW = 56, 24, 20
_DOT = 4

Text = Callable[..., None]


def height_of(study: ShapeStudy | None) -> int:
    """Pixels that the shapes take."""
    return (
        0
        if study is None or not study.shapes
        else _HEAD + sum(_LABEL + _SHAPE_ROW * len(_beside_baseline(shape)) for shape in study.shapes)
    )


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
            if item.decision is not None and item.verdict not in (SpeedVerdict.WRONG, SpeedVerdict.VACUOUS):
                _mark(root, item.decision, y + 1, left=left, scale=room / longest, name=classes.get(item.verdict, plain))
                note = f"{item.decision.speedup.estimate:.3f} {note}"
            text(root, left + room + 10, y + 5, note, "dd-s")
            y += _SHAPE_ROW


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


_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 760, 170, 190, 34, 60
_LONGEST_TITLE = 72
_CLASSES: Mapping[str, str] = {
    SpeedVerdict.FASTER: "dd-compiled",
    **dict.fromkeys((SpeedVerdict.SLOWER, SpeedVerdict.WRONG, SpeedVerdict.VACUOUS), "dd-broken"),
}
_PLAIN = "dd-inner"


def draw(result: BenchResult) -> str:
    """The picture as SVG text."""
    rows = [row for row in (*result.arms, result.same_again) if row is not None]
    above = _TOP + _ROW * len(rows) + 30
    height = above + height_of(result.shapes)
    root = ElementTree.Element("svg", width=str(_WIDTH), height=str(height), viewBox=f"0 0 {_WIDTH} {height}")
    ElementTree.SubElement(root, "rect", {"class": "dd-bg", "width": str(_WIDTH), "height": str(height)})
    timed = rows[0].timed
    _text(root, 12, 24, _ending(clean(result.target)), "dd-h")
    device = clean(str(result.environment.get("device") or "CPU"), limit=40)
    _text(root, 12, 44, f"milliseconds per {timed} on {device}; lines are 95 % intervals; A/A is the baseline again", "dd-s")
    longest = max((row.ci95_ms[1] for row in rows if row.ci95_ms), default=0.0)
    # An arm after a change is compared with itself before it as well; the bars stand beside the baseline.
    verdicts = {comparison.arm: comparison.verdict for comparison in result.comparisons if comparison.baseline == rows[0].name}
    for number, row in enumerate(rows):
        verdict = verdicts.get(row.name)
        _bar(root, row, _TOP + _ROW * number, longest, _CLASSES.get(verdict or "", _PLAIN), verdict or "")
    if result.shapes is not None and result.shapes.shapes:
        room = _WIDTH - _LEFT - _RIGHT
        draw_shapes(root, result.shapes, above - 10, left=_LEFT, room=room, classes=_CLASSES, plain=_PLAIN, text=_text)
    title = f"{result.target}: milliseconds per {timed} on {result.environment.get('device') or 'CPU'}"
    said = "; ".join(f"{row.name} {row.median_ms:.3f} ms" for row in rows if row.median_ms is not None)
    return sealed(root, clean(title), clean(said, limit=600) or "nothing was timed")


def _ending(target: str) -> str:
    """The end of a long target: that is where the file and the function are."""
    return target if len(target) <= _LONGEST_TITLE else f"...{target[3 - _LONGEST_TITLE :]}"


def _bar(root: ElementTree.Element, row: ArmResult, top: int, longest: float, name: str, label: str) -> None:
    _text(root, _LEFT - 8, top + 18, clean(row.name, limit=24), anchor="end")
    if row.median_ms is None or row.ci95_ms is None or not longest:
        _text(root, _LEFT, top + 18, f"{row.status}: {clean(row.reason, limit=70)}", "dd-s")
        return
    room = _WIDTH - _LEFT - _RIGHT
    length, low, high = (value / longest * room for value in (row.median_ms, *row.ci95_ms))
    ElementTree.SubElement(root, "rect", {"class": name, "x": str(_LEFT), "y": str(top + 5), "width": f"{length:.1f}", "height": "18"})
    middle = str(top + 14)
    ends = {"class": "dd-ends", "x1": f"{_LEFT + low:.1f}", "x2": f"{_LEFT + high:.1f}", "y1": middle, "y2": middle}
    ElementTree.SubElement(root, "line", ends)
    _text(root, _WIDTH - _RIGHT + 10, top + 18, f"{row.median_ms:.3f} ms {label}".strip())


def _text(root: ElementTree.Element, x: int, y: int, text: str, name: str = "dd-o", *, anchor: str = "start") -> None:
    ElementTree.SubElement(root, "text", {"class": name, "x": str(x), "y": str(y), "text-anchor": anchor}).text = xml_text(clean(text))
