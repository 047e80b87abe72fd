"""Lays a picture out in one or two columns that fit a bug report: where each row, panel and arrow goes, in CSS pixels."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dynadiag.render.palette import WIDTH
from dynadiag.render.picture import Link, Picture, Row

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
