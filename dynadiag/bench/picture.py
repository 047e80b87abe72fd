"""`bench.svg`: a bar an arm with its interval, from zero, nothing clipped."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from dynadiag.bench.outcome import ArmResult, BenchResult
from dynadiag.bench.picture_shapes import draw_shapes, height_of
from dynadiag.bench.verdict import Verdict
from dynadiag.render.sanitise import clean, xml_text
from dynadiag.render.svg import FONTS, NAMESPACE

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 760, 170, 190, 34, 60
_LONGEST_TITLE = 72
_COLOURS = {Verdict.FASTER: "#2a7f3f", Verdict.SLOWER: "#b3261e", Verdict.WRONG: "#b3261e", Verdict.VACUOUS: "#b3261e"}
_PLAIN = "#5b6b7b"


def draw(result: BenchResult) -> str:
    """The picture as SVG text."""
    rows = [row for row in (*result.arms, result.same_again) if row is not None]
    above = _TOP + _ROW * len(rows) + 30
    height = above + height_of(result.shapes)
    root = ElementTree.Element("svg", xmlns=NAMESPACE, width=str(_WIDTH), height=str(height), viewBox=f"0 0 {_WIDTH} {height}", role="img")
    timed = rows[0].timed
    title = f"{result.target}: milliseconds per {timed} on {result.environment.get('device') or 'CPU'}"
    ElementTree.SubElement(root, "title").text = xml_text(clean(title))
    ElementTree.SubElement(root, "rect", width="100%", height="100%", fill="white")
    _text(root, 12, 24, _ending(clean(result.target)), size=15, weight="bold")
    device = clean(str(result.environment.get("device") or "CPU"), limit=40)
    _text(root, 12, 44, f"milliseconds per {timed} on {device}; lines are 95 % intervals; A/A is the baseline again", size=11)
    longest = max((row.ci95_ms[1] for row in rows if row.ci95_ms), default=0.0)
    # An arm after a change is compared with itself before it as well; the bars stand beside the baseline.
    verdicts = {comparison.arm: comparison for comparison in result.comparisons if comparison.baseline == rows[0].name}
    for number, row in enumerate(rows):
        comparison = verdicts.get(row.name)
        colour = _COLOURS.get(comparison.verdict, _PLAIN) if comparison is not None else _PLAIN
        label = f"{comparison.verdict}" if comparison is not None else ""
        _bar(root, row, _TOP + _ROW * number, longest, colour, label)
    if result.shapes is not None and result.shapes.shapes:
        room = _WIDTH - _LEFT - _RIGHT
        draw_shapes(root, result.shapes, above - 10, left=_LEFT, room=room, colours=_COLOURS, plain=_PLAIN, text=_text)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _ending(target: str) -> str:
    """The end of a long target: that is where the file and the function are."""
    return target if len(target) <= _LONGEST_TITLE else f"...{target[3 - _LONGEST_TITLE :]}"


def _bar(root: ElementTree.Element, row: ArmResult, top: int, longest: float, colour: str, label: str) -> None:
    _text(root, _LEFT - 8, top + 18, clean(row.name, limit=24), anchor="end")
    if row.median_ms is None or row.ci95_ms is None or not longest:
        _text(root, _LEFT, top + 18, f"{row.status}: {clean(row.reason, limit=70)}", size=11)
        return
    room = _WIDTH - _LEFT - _RIGHT
    length, low, high = (value / longest * room for value in (row.median_ms, *row.ci95_ms))
    ElementTree.SubElement(root, "rect", x=str(_LEFT), y=str(top + 5), width=f"{length:.1f}", height="18", fill=colour)
    middle = str(top + 14)
    line = {"x1": f"{_LEFT + low:.1f}", "x2": f"{_LEFT + high:.1f}", "y1": middle, "y2": middle, "stroke": "black", "stroke-width": "2"}
    ElementTree.SubElement(root, "line", line)
    _text(root, _WIDTH - _RIGHT + 10, top + 18, f"{row.median_ms:.3f} ms {label}".strip())


def _text(root: ElementTree.Element, x: int, y: int, text: str, *, size: int = 13, weight: str = "normal", anchor: str = "start") -> None:
    style = {"x": str(x), "y": str(y), "font-family": FONTS, "font-size": str(size), "font-weight": weight, "text-anchor": anchor}
    ElementTree.SubElement(root, "text", style).text = xml_text(clean(text))
