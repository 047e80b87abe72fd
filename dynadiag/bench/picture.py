"""`bench.svg`: a bar an arm with its interval, from zero, nothing clipped."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from dynadiag.bench.outcome import ArmResult, BenchResult
from dynadiag.bench.verdict import Verdict
from dynadiag.render.sanitise import clean, xml_text
from dynadiag.render.svg import FONTS, NAMESPACE

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 760, 170, 190, 34, 60
_COLOURS = {Verdict.FASTER: "#2a7f3f", Verdict.SLOWER: "#b3261e", Verdict.WRONG: "#b3261e", Verdict.VACUOUS: "#b3261e"}
_PLAIN = "#5b6b7b"


def draw(result: BenchResult) -> str:
    """The picture as SVG text."""
    rows = [row for row in (*result.arms, result.same_again) if row is not None]
    height = _TOP + _ROW * len(rows) + 30
    root = ElementTree.Element("svg", xmlns=NAMESPACE, width=str(_WIDTH), height=str(height), viewBox=f"0 0 {_WIDTH} {height}", role="img")
    title = f"{result.target}: milliseconds per call on {result.environment.get('device') or 'CPU'}"
    ElementTree.SubElement(root, "title").text = xml_text(clean(title))
    ElementTree.SubElement(root, "rect", width="100%", height="100%", fill="white")
    _text(root, 12, 24, title, size=15, weight="bold")
    _text(root, 12, 44, "lines are 95 % intervals; A/A is the baseline again", size=11)
    longest = max((row.ci95_ms[1] for row in rows if row.ci95_ms), default=0.0)
    verdicts = {comparison.arm: comparison for comparison in result.comparisons}
    for number, row in enumerate(rows):
        comparison = verdicts.get(row.name)
        colour = _COLOURS.get(comparison.verdict, _PLAIN) if comparison is not None else _PLAIN
        label = f"{comparison.verdict}" if comparison is not None else ""
        _bar(root, row, _TOP + _ROW * number, longest, colour, label)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


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
