"""A picture as SVG: our own shapes with classes of the palette, sealed by `svg.sealed`."""

from __future__ import annotations

import textwrap
import xml.etree.ElementTree as ElementTree

from dynadiag.render import columns
from dynadiag.render.columns import MARGIN, MONO, SANS, Layout, Place, fit, lay_out, text_width
from dynadiag.render.picture import Link, Picture, Row
from dynadiag.render.sanitise import xml_text
from dynadiag.render.svg import sealed

_TITLE = 8.4
_CHIP = 14.0


def draw_picture(picture: Picture) -> str:
    """The picture as SVG text, at most 860 pixels wide; the same picture always gives the same text."""
    summary = [line for text in picture.summary for line in textwrap.wrap(text, 84)]
    top = 34.0 + 16.0 * len(summary) + (8 if summary else 0)
    layout = lay_out(picture, top)
    height = layout.height + MARGIN + _legend_height(picture, layout.width)
    root = ElementTree.Element("svg", width=_n(layout.width), height=_n(height), viewBox=f"0 0 {_n(layout.width)} {_n(height)}")
    _add(root, "rect", "dd-bg", x="0", y="0", width=_n(layout.width), height=_n(height))
    _text(root, "dd-h", fit(picture.title, layout.width - 2 * MARGIN, _TITLE), MARGIN, 26)
    for number, line in enumerate(summary):
        _text(root, "dd-s", fit(line, layout.width - 2 * MARGIN, SANS), MARGIN, 44 + 16 * number)
    for place, inner in sorted(layout.panels, key=lambda item: item[1]):
        _rect(root, "dd-inner" if inner else "dd-panel", place, "8")
    _links(root, layout)
    _heads(root, layout)
    for number, row in enumerate(picture.rows):
        _row(root, row, number, layout)
    _legend(root, picture, layout.height + MARGIN, layout.width)
    return sealed(root, picture.title, picture.description)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _add(parent: ElementTree.Element, name: str, css: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, name, {"class": css, **attributes})


def _text(parent: ElementTree.Element, css: str, text: str, x: float, y: float, anchor: str = "start") -> None:
    place = {"x": _n(x), "y": _n(y)} | ({} if anchor == "start" else {"text-anchor": anchor})
    _add(parent, "text", css, **place).text = xml_text(text)


def _rect(parent: ElementTree.Element, css: str, place: Place, radius: str) -> None:
    _add(parent, "rect", css, x=_n(place.x), y=_n(place.y), width=_n(place.width), height=_n(place.height), rx=radius)


def _heads(root: ElementTree.Element, layout: Layout) -> None:
    for title, tag, place in layout.heads:
        _text(root, "dd-m", fit(title, place.width, MONO), place.x, place.y + 18)
        if tag:
            two = place.height > 30
            _text(root, "dd-tag", fit(tag, place.width, columns.BOLD), place.x + (0 if two else place.width), place.y + (35 if two else 18),
                  "start" if two else "end")  # fmt: skip


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
        x += text_width(mark, columns.BOLD) + 6
    beside = columns.note_fits(row, place.width - (x - place.x - 8))
    room = place.x + place.width - 8 - x
    _text(group, "dd-faint" if row.kind == "gone" else "dd-o", fit(row.name, room, MONO), x, place.y + 16)
    if row.note and beside:
        _text(group, "dd-s", row.note, place.x + place.width - 8, place.y + 16, "end")
    plain = len(layout.texts.get(number, ()))
    lines = columns.below(row, place.width if not row.half else 2 * place.width + 12, layout.texts.get(number, ()))
    for step, line in enumerate(lines):
        alarm = row.alarm and (beside or step > 0) and step < len(lines) - plain
        font = ("dd-warn", columns.WARN) if alarm else ("dd-s", SANS)
        _text(group, font[0], fit(line, place.width - 16, font[1]), place.x + 8, place.y + 31 + columns.BELOW * step)


def _links(root: ElementTree.Element, layout: Layout) -> None:
    for tail, lane, heads in layout.trunks:
        _trunk(root, layout, tail, lane, heads)
    for link in layout.straight:
        _straight(root, link, layout)
    for link in layout.turning:
        _turning(root, link, layout)


def _trunk(root: ElementTree.Element, layout: Layout, tail: int, lane: int, heads: tuple[int, ...]) -> None:
    """One line at the left of the boxes, with a branch to each box that uses the value."""
    start = layout.rows[tail]
    x = columns.MARGIN if not layout.rows else _left(layout, tail) - 4 - columns.LANE * lane
    ends = [layout.rows[head].y + 9 for head in heads]
    path = f"M{_n(start.x)} {_n(start.y + 17)}H{_n(x + 3)}Q{_n(x)} {_n(start.y + 17)} {_n(x)} {_n(start.y + 20)}V{_n(max(ends) - 3)}"
    _add(root, "path", "dd-edge", d=path)
    for head, y in zip(heads, ends, strict=True):
        end = layout.rows[head].x
        _add(root, "path", "dd-edge", d=f"M{_n(x)} {_n(y - 3)}Q{_n(x)} {_n(y)} {_n(x + 3)} {_n(y)}H{_n(end - 4)}")
        _add(root, "polygon", "dd-tip", points=f"{_n(end)},{_n(y)} {_n(end - 6)},{_n(y - 3)} {_n(end - 6)},{_n(y + 3)}")


def _left(layout: Layout, number: int) -> float:
    """Where the boxes of this row's column begin."""
    return min(layout.rows[other].x for other, column in layout.column.items() if column == layout.column[number]) - 6


def _straight(root: ElementTree.Element, link: Link, layout: Layout) -> None:
    start, end = layout.rows[link.tail], layout.rows[link.head]
    x = _free_x(start, end, layout)
    y1, y2 = start.y + start.height, end.y
    strong = "dd-strong" if link.strong else "dd-edge"
    _add(root, "path", strong, d=f"M{_n(x)} {_n(y1)}V{_n(y2 - 4)}")
    _add(
        root,
        "polygon",
        "dd-strong-tip" if link.strong else "dd-tip",
        points=f"{_n(x)},{_n(y2)} {_n(x - 3.5)},{_n(y2 - 7)} {_n(x + 3.5)},{_n(y2 - 7)}",
    )
    if link.label and y2 - y1 >= 15:
        _text(root, "dd-s", link.label, x + 8, y1 + 13)


def _free_x(start: Place, end: Place, layout: Layout) -> float:
    """The middle of the upper box, or where no head of a panel between the boxes is in the way."""
    low, high = max(start.x, end.x) + 8, min(start.x + start.width, end.x + end.width) - 8
    x = (max(start.x, end.x) + min(start.x + start.width, end.x + end.width)) / 2
    for title, tag, place in layout.heads:
        if start.y < place.y < end.y and place.x < high and low < place.x + place.width:
            two = place.height > 30
            low = max(low, place.x + max(text_width(title, MONO), text_width(tag, columns.BOLD) if two else 0) + 6)
            if not two:
                high = min(high, place.x + place.width - text_width(tag, columns.BOLD) - 6)
    if low <= x <= high:
        return x
    return (low + high) / 2 if low <= high else x


def _turning(root: ElementTree.Element, link: Link, layout: Layout) -> None:
    """From the right of a box through the gap between the columns to the left of a box."""
    start, end = layout.rows[link.tail], layout.rows[link.head]
    y1, y2 = start.y + 12, end.y + 12
    strong = "dd-strong" if link.strong else "dd-edge"
    if layout.column[link.tail] == layout.column[link.head]:
        x = start.x + start.width + 8
        side, path = end.x + end.width, f"M{_n(start.x + start.width)} {_n(y1)}H{_n(x)}V{_n(y2)}H{_n(end.x + end.width + 4)}"
        points = f"{_n(side)},{_n(y2)} {_n(side + 7)},{_n(y2 - 3.5)} {_n(side + 7)},{_n(y2 + 3.5)}"
    else:
        x = layout.width / 2
        path = f"M{_n(start.x + start.width)} {_n(y1)}H{_n(x)}V{_n(y2)}H{_n(end.x - 4)}"
        points = f"{_n(end.x)},{_n(y2)} {_n(end.x - 7)},{_n(y2 - 3.5)} {_n(end.x - 7)},{_n(y2 + 3.5)}"
    _add(root, "path", strong, d=path)
    _add(root, "polygon", "dd-strong-tip" if link.strong else "dd-tip", points=points)


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
