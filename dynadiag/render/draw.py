"""A picture as SVG: our own shapes with classes of the palette, sealed by `svg.sealed`."""

from __future__ import annotations

import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

from dynadiag.render.layout import BELOW, BOLD, HEAD, MARGIN, MONO, SANS, WARN, Layout, Place, Stroke, below, fit, note_fits, text_width
from dynadiag.render.layout import number_text as _n
from dynadiag.render.picture import Picture, Row
from dynadiag.render.sanitise import xml_text
from dynadiag.render.svg import sealed

_TITLE = 8.4
_CHIP = 14.0


def draw_picture(picture: Picture, lay_out: Callable[[Picture, float], Layout]) -> str:
    """The picture as SVG text, at most 860 pixels wide. `lay_out` gives the layout of the picture below a height."""
    summary = [line for text in picture.summary for line in textwrap.wrap(text, 84)]
    top = 34.0 + 16.0 * len(summary) + (8 if summary else 0)
    layout = lay_out(picture, top)
    height = layout.height + MARGIN + _legend_height(picture, layout.width)
    size = {"width": _n(layout.width * layout.scale), "height": _n(height * layout.scale)}
    root = ElementTree.Element("svg", size | {"viewBox": f"0 0 {_n(layout.width)} {_n(height)}"})
    _add(root, "rect", "dd-bg", x="0", y="0", width=_n(layout.width), height=_n(height))
    _text(root, "dd-h", fit(picture.title, layout.width - 2 * MARGIN, _TITLE), MARGIN, 26)
    for number, line in enumerate(summary):
        _text(root, "dd-s", fit(line, layout.width - 2 * MARGIN, SANS), MARGIN, 44 + 16 * number)
    for place, inner in sorted(layout.panels, key=lambda item: item[1]):
        _rect(root, "dd-inner" if inner else "dd-panel", place, "8")
    for stroke in layout.strokes:
        _stroke(root, stroke)
    _heads(root, layout)
    for number, row in enumerate(picture.rows):
        _row(root, row, number, layout)
    _legend(root, picture, layout.height + MARGIN, layout.width)
    return sealed(root, picture.title, picture.description)


def _add(parent: ElementTree.Element, name: str, css: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, name, {"class": css, **attributes})


def _text(parent: ElementTree.Element, css: str, text: str, x: float, y: float, anchor: str = "start") -> None:
    place = {"x": _n(x), "y": _n(y)} | ({} if anchor == "start" else {"text-anchor": anchor})
    _add(parent, "text", css, **place).text = xml_text(text)


def _rect(parent: ElementTree.Element, css: str, place: Place, radius: str) -> None:
    _add(parent, "rect", css, x=_n(place.x), y=_n(place.y), width=_n(place.width), height=_n(place.height), rx=radius)


def _heads(root: ElementTree.Element, layout: Layout) -> None:
    for title, tag, place in layout.heads:
        _text(root, "dd-m dd-halo", fit(title, place.width, MONO), place.x, place.y + 18)
        if tag:
            two = place.height > HEAD
            _text(root, "dd-tag dd-halo", fit(tag, place.width, BOLD), place.x + (0 if two else place.width), place.y + (35 if two else 18),
                  "start" if two else "end")  # fmt: skip


def _stroke(root: ElementTree.Element, stroke: Stroke) -> None:
    _add(root, "path", "dd-strong" if stroke.strong else "dd-edge", d=stroke.path)
    for tip in stroke.tips:
        _add(root, "polygon", "dd-strong-tip" if stroke.strong else "dd-tip", points=tip)
    if stroke.label:
        _text(root, "dd-s", stroke.label, *stroke.label_at)


def _row(root: ElementTree.Element, row: Row, number: int, layout: Layout) -> None:
    place = layout.rows[number]
    group = ElementTree.SubElement(root, "g")
    if row.tip:
        ElementTree.SubElement(group, "title").text = xml_text(row.tip)
    _rect(group, f"dd-box dd-{row.kind}{' dd-ends' if row.ends else ''}", place, "5")
    x = place.x + 8
    if number in layout.marks:
        mark = str(layout.marks[number])
        _text(group, "dd-tag", mark, x, place.y + 16)
        x += text_width(mark, BOLD) + 6
    beside = note_fits(row, place.width - (x - place.x - 8))
    room = place.x + place.width - 8 - x
    _text(group, "dd-faint" if row.kind == "gone" else "dd-o", fit(row.name, room, MONO), x, place.y + 16)
    if row.note and beside:
        _text(group, "dd-s", row.note, place.x + place.width - 8, place.y + 16, "end")
    plain = len(layout.texts.get(number, ()))
    lines = below(row, place.width, layout.texts.get(number, ()))
    for step, line in enumerate(lines):
        alarm = row.alarm and (beside or step > 0) and step < len(lines) - plain
        font = ("dd-warn", WARN) if alarm else ("dd-s", SANS)
        _text(group, font[0], fit(line, place.width - 16, font[1]), place.x + 8, place.y + 31 + BELOW * step)


def _legend_places(picture: Picture, width: float) -> list[tuple[float, float, str, str]]:
    x, y, found = MARGIN, 0.0, []
    for kind, meaning in picture.legend:
        room = _CHIP + 6 + text_width(meaning, SANS) + 14
        if x > MARGIN and x + room > width - MARGIN:
            x, y = MARGIN, y + 22
        found.append((x, y, kind, meaning))
        x += room
    return found


def _legend_height(picture: Picture, width: float) -> float:
    places = _legend_places(picture, width)
    return places[-1][1] + 22 + MARGIN if places else 0.0


def _legend(root: ElementTree.Element, picture: Picture, top: float, width: float) -> None:
    for x, y, kind, meaning in _legend_places(picture, width):
        _rect(root, f"dd-box {'dd-pointwise ' if kind == 'ends' else ''}dd-{kind}", Place(x, top + y, _CHIP, _CHIP), "3")
        _text(root, "dd-s", meaning, x + _CHIP + 6, top + y + 11)
