"""A picture as SVG: our own shapes with classes of the palette, sealed by `svg.sealed`."""

from __future__ import annotations

import textwrap
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dynadiag.render.palette import WIDTH
from dynadiag.render.picture import Link, Picture, Row
from dynadiag.render.sanitise import xml_text
from dynadiag.render.svg import sealed

# Lays a picture out in one or two columns that fit a bug report: where each row, panel and arrow goes, in CSS pixels.
MONO = 7.3
SANS = 6.2
BOLD = 7.1
WARN = 7.2
"""How wide a character is at most, in the fonts of names (12 px), of notes (11 px), of bold tags (12 px) and of bold notes (11 px)."""

MARGIN = 16.0
PAD = 8.0
LANE = 6.0
LANES = 4
GUTTER = LANE * LANES + 8
LINE = 24.0
BELOW = 15.0
ONE_COLUMN = 560.0
"""A picture that is not higher stays in one column."""

_ONE_WIDTH = 560.0
_HEAD = 26.0
_REFERENCES = 6


class Place(NamedTuple):
    """The upper left corner and the size of a box."""

    x: float
    y: float
    width: float
    height: float


@dataclass(slots=True)
class Layout:
    """Where everything is. `heads` are titles and tags of panels with their corner and room; `lanes` are by tail the x of its trunk."""

    width: float
    height: float = 0.0
    rows: dict[int, Place] = field(default_factory=dict)
    panels: list[tuple[Place, bool]] = field(default_factory=list)
    heads: list[tuple[str, str, Place]] = field(default_factory=list)
    column: dict[int, int] = field(default_factory=dict)
    straight: list[Link] = field(default_factory=list)
    turning: list[Link] = field(default_factory=list)
    trunks: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    marks: dict[int, int] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)


def text_width(text: str, character: float) -> float:
    """How wide a text is at most; East Asian characters are twice as wide."""
    return character * (len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(name) in "WF" else 1 for name in text))


def fit(text: str, room: float, character: float) -> str:
    """The text cut to this room."""
    if text_width(text, character) <= room:
        return text
    while text and text_width(text, character) > room - character:
        text = text[: -max(1, int((text_width(text, character) - room) / (2 * character)))]
    return text.rstrip() + "…"


def lay_out(picture: Picture, top: float) -> Layout:
    """The layout below `top`: one column when it is low enough, else two of about the same height."""
    lines = _lines(picture.rows)
    alone = _Flow(picture, lines, _ONE_WIDTH, {})
    if alone.height(0, len(lines)) <= ONE_COLUMN:
        return _finished(picture, lines, [(0, len(lines))], _ONE_WIDTH, top)
    width = (WIDTH - 3 * MARGIN) / 2
    layout = _cut_in_two(picture, lines, width, top, {})
    return _cut_in_two(picture, lines, width, top, layout.texts)  # once more, with the lines of text that the first cut made


def _cut_in_two(picture: Picture, lines: Sequence[Sequence[int]], width: float, top: float, texts: dict[int, list[str]]) -> Layout:
    flow = _Flow(picture, lines, width, texts)
    cut = min(range(1, len(lines)), key=lambda at: (_cost(picture, lines, flow, at), at)) if len(lines) > 1 else len(lines)
    return _finished(picture, lines, [(0, cut), (cut, len(lines))], width, top)


def _lines(rows: Sequence[Row]) -> list[list[int]]:
    """Row numbers line by line: two half rows may share one."""
    lines: list[list[int]] = []
    for number, row in enumerate(rows):
        last = lines[-1] if lines else []
        if row.half and len(last) == 1 and rows[last[0]].half and rows[last[0]].outer == row.outer:
            last.append(number)
        else:
            lines.append([number])
    return lines


def _cost(picture: Picture, lines: Sequence[Sequence[int]], flow: _Flow, at: int) -> float:
    """How bad it is to begin the second column here: the height, and more where a panel is cut in two."""
    before, after = picture.rows[lines[at - 1][-1]], picture.rows[lines[at][0]]
    torn = 60.0 * (after.outer is not None and before.outer == after.outer) + 90.0 * (
        after.inner is not None and before.inner == after.inner
    )
    return max(flow.height(0, at), flow.height(at, len(lines))) + torn


@dataclass(slots=True)
class _Flow:
    """Lines from top to bottom in a column of this width; `texts` are further lines of text by row."""

    picture: Picture
    lines: Sequence[Sequence[int]]
    width: float
    texts: dict[int, list[str]]
    wanted: dict[tuple[int, int], bool] = field(default_factory=dict)
    heights: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.heights = [max(map(self.row_height, line)) for line in self.lines]
        line_of = {number: at for at, line in enumerate(self.lines) for number in line}
        for link in self.picture.links:
            if line_of[link.head] == line_of[link.tail] + 1:
                key = (line_of[link.tail], line_of[link.head])
                self.wanted[key] = self.wanted.get(key, False) or bool(link.label)

    @property
    def room(self) -> float:
        """The width of a row."""
        return self.width - GUTTER - 2 * PAD - 8

    def row_height(self, number: int) -> float:
        """Name, the lines under it, and the note where it does not fit beside the name."""
        row = self.picture.rows[number]
        return LINE + BELOW * len(below(row, self.room, self.texts.get(number, ())))

    def height(self, start: int, end: int) -> float:
        """The height of these lines."""
        return self.place(start, end, Layout(0), 0, 0)

    def place(self, start: int, end: int, layout: Layout, left: float, y: float) -> float:
        """Put lines into the layout from `y` on; gives where they end."""
        shown: list[tuple[int, float] | None] = [None, None]
        rows = self.picture.rows
        for at in range(start, end):
            row = rows[self.lines[at][0]]
            for level in (1, 0):
                open_panel = shown[level]
                if open_panel is not None and open_panel[0] != (row.inner if level else row.outer):
                    y = self._close(layout, left, open_panel[1], y, bool(level))
                    shown[level] = None
            gap = 18.0 if self.wanted.get((at - 1, at)) else 12.0
            y += gap if at > start else 0.0
            for level, panel in enumerate((row.outer, row.inner)):
                if panel is not None and shown[level] is None:
                    shown[level] = (panel, y)
                    y = self._open(layout, left, y, panel, bool(level), self._goes_on(start, panel))
            y = self._line(layout, left, y, at)
        for level in (1, 0):
            open_panel = shown[level]
            if open_panel is not None:
                y = self._close(layout, left, open_panel[1], y, bool(level))
        return y

    def _goes_on(self, start: int, panel: int) -> bool:
        row = self.picture.rows[self.lines[start - 1][-1]] if start else None
        return row is not None and panel in (row.outer, row.inner)

    def _open(self, layout: Layout, left: float, y: float, number: int, inner: bool, again: bool) -> float:
        panel = self.picture.panels[number]
        title = f"{panel.title} (continued)" if again else panel.title
        tag = "" if again else panel.tag
        x = left + GUTTER + 8  # where the boxes begin: at their left there are lines
        room = left + self.width - x - (6 if inner else 0) - 10
        two = bool(title and tag) and text_width(title, MONO) + text_width(tag, BOLD) + 16 > room
        layout.heads.append((title, tag, Place(x, y, room, 42.0 if two else _HEAD)))
        return y + (42.0 if two else _HEAD)

    def _close(self, layout: Layout, left: float, top: float, y: float, inner: bool) -> float:
        x = left + (GUTTER if inner else 0)
        width = self.width - (GUTTER + 6 if inner else 0)
        layout.panels.append((Place(x, top, width, y + PAD - top), inner))
        return y + PAD

    def _line(self, layout: Layout, left: float, y: float, at: int) -> float:
        line = self.lines[at]
        height = self.heights[at]
        x = left + GUTTER + 6
        half = self.picture.rows[line[0]].half
        width = (self.room - 12) / 2 if half else self.room
        for step, number in enumerate(line):
            layout.rows[number] = Place(x + step * (width + 12), y, width, height)
        return y + height


def below(row: Row, room: float, more: Sequence[str]) -> list[str]:
    """The lines under a row's name, wrapped."""
    width = (room - 12) / 2 if row.half else room
    note = [] if note_fits(row, width) else [fit(row.note, width - 16, SANS)]
    characters = max(12, int((width - 16) / (WARN if row.alarm else SANS)))
    wrapped = [part for line in row.below for part in textwrap.wrap(line, characters)[:3]]
    return [*note, *wrapped, *more]


def note_fits(row: Row, width: float) -> bool:
    """Whether the note stands beside the name."""
    return not row.note or text_width(row.name, MONO) + text_width(row.note, SANS) + 28 <= width


def _finished(picture: Picture, lines: Sequence[Sequence[int]], parts: Sequence[tuple[int, int]], width: float, top: float) -> Layout:
    layout = Layout(2 * MARGIN + width if len(parts) == 1 else float(WIDTH))
    line_of = {number: at for at, line in enumerate(lines) for number in line}
    column = {number: part for part, (start, end) in enumerate(parts) for line in lines[start:end] for number in line}
    left_out = _route(picture.links, layout, line_of, column, parts)
    layout.column = column
    layout.marks = {number: order + 1 for order, number in enumerate(sorted({link.tail for link in left_out}))}
    for number in sorted({link.head for link in left_out}):
        tails = sorted(layout.marks[link.tail] for link in left_out if link.head == number)
        more = f" and {len(tails) - _REFERENCES} more" if len(tails) > _REFERENCES else ""
        layout.texts[number] = [f"from {', '.join(map(str, tails[:_REFERENCES]))}{more}"]
    marked = tuple(replace(row, note=row.note, name=f"{layout.marks[at]} {row.name}") if at in layout.marks else row
                   for at, row in enumerate(picture.rows))  # fmt: skip
    flow = _Flow(replace(picture, rows=marked), lines, width, layout.texts)
    ends = [flow.place(start, end, layout, MARGIN + at * (width + MARGIN), top) for at, (start, end) in enumerate(parts)]
    layout.height = max(ends)
    return layout


def _route(
    links: Sequence[Link], layout: Layout, line_of: dict[int, int], column: dict[int, int], parts: Sequence[tuple[int, int]]
) -> list[Link]:
    """Sorts links into straight ones, one from the first column to the second, and trunks at the left; gives those without a place."""
    skipping: dict[int, list[Link]] = {}
    left_out: list[Link] = []
    for link in links:
        step = line_of[link.head] - line_of[link.tail]
        if step == 1 and column[link.tail] == column[link.head]:
            layout.straight.append(link)
        elif step == 1 or link.strong:
            layout.turning.append(link)
        elif column[link.tail] == column[link.head]:
            skipping.setdefault(link.tail, []).append(link)
        else:
            left_out.append(link)
    taken: list[list[tuple[int, int]]] = [[] for _ in range(LANES)]
    spans = {tail: (line_of[tail], max(line_of[link.head] for link in found)) for tail, found in skipping.items()}
    for tail in sorted(spans, key=lambda number: (spans[number][1] - spans[number][0], number)):
        first, last = spans[tail]
        free = next((lane for lane, spots in enumerate(taken) if all(last < a or b < first for a, b in spots)), None)
        if free is None:
            left_out += skipping[tail]
            continue
        taken[free].append((first, last))
        layout.trunks.append((tail, free, tuple(link.head for link in skipping[tail])))
    return left_out


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
            _text(root, "dd-tag", fit(tag, place.width, BOLD), place.x + (0 if two else place.width), place.y + (35 if two else 18),
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
        x += text_width(mark, BOLD) + 6
    beside = note_fits(row, place.width - (x - place.x - 8))
    room = place.x + place.width - 8 - x
    _text(group, "dd-faint" if row.kind == "gone" else "dd-o", fit(row.name, room, MONO), x, place.y + 16)
    if row.note and beside:
        _text(group, "dd-s", row.note, place.x + place.width - 8, place.y + 16, "end")
    plain = len(layout.texts.get(number, ()))
    lines = below(row, place.width if not row.half else 2 * place.width + 12, layout.texts.get(number, ()))
    for step, line in enumerate(lines):
        alarm = row.alarm and (beside or step > 0) and step < len(lines) - plain
        font = ("dd-warn", WARN) if alarm else ("dd-s", SANS)
        _text(group, font[0], fit(line, place.width - 16, font[1]), place.x + 8, place.y + 31 + BELOW * step)


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
    x = MARGIN if not layout.rows else _left(layout, tail) - 4 - LANE * lane
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
            low = max(low, place.x + max(text_width(title, MONO), text_width(tag, BOLD) if two else 0) + 6)
            if not two:
                high = min(high, place.x + place.width - text_width(tag, BOLD) - 6)
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
