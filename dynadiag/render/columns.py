"""The layout of our own: rows from top to bottom in one or two columns, with lines at their left for what skips rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dynadiag.render.layout import (
    BELOW,
    BOLD,
    HEAD,
    LINE,
    MARGIN,
    MONO,
    PAD,
    TWO_HEADS,
    Layout,
    Place,
    Stroke,
    below,
    refer,
    text_width,
)
from dynadiag.render.layout import number_text as _n
from dynadiag.render.palette import WIDTH
from dynadiag.render.picture import Link, Picture, Row

_LANE = 6.0
_LANES = 4
_GUTTER = _LANE * _LANES + 8
ONE_COLUMN = 560.0
"""A picture that is not higher stays in one column."""

_ONE_WIDTH = 560.0


@dataclass(slots=True)
class _Routes:
    """How links go: to the next line, around a corner, or along trunks at the left (tail, lane, heads). `column` is that of each row."""

    column: dict[int, int]
    straight: list[Link] = field(default_factory=list)
    turning: list[Link] = field(default_factory=list)
    trunks: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)


def lay_out_in_columns(picture: Picture, top: float) -> Layout:
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
        return self.width - _GUTTER - 2 * PAD - 8

    def row_height(self, number: int) -> float:
        """Name, the lines under it, and the note where it does not fit beside the name."""
        row = self.picture.rows[number]
        width = (self.room - 12) / 2 if row.half else self.room
        return LINE + BELOW * len(below(row, width, self.texts.get(number, ())))

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
        x = left + _GUTTER + 8  # where the boxes begin: at their left there are lines
        room = left + self.width - x - (6 if inner else 0) - 10
        two = bool(title and tag) and text_width(title, MONO) + text_width(tag, BOLD) + 16 > room
        layout.heads.append((title, tag, Place(x, y, room, TWO_HEADS if two else HEAD)))
        return y + (TWO_HEADS if two else HEAD)

    def _close(self, layout: Layout, left: float, top: float, y: float, inner: bool) -> float:
        x = left + (_GUTTER if inner else 0)
        width = self.width - (_GUTTER + 6 if inner else 0)
        layout.panels.append((Place(x, top, width, y + PAD - top), inner))
        return y + PAD

    def _line(self, layout: Layout, left: float, y: float, at: int) -> float:
        line = self.lines[at]
        height = self.heights[at]
        x = left + _GUTTER + 6
        half = self.picture.rows[line[0]].half
        width = (self.room - 12) / 2 if half else self.room
        for step, number in enumerate(line):
            layout.rows[number] = Place(x + step * (width + 12), y, width, height)
        return y + height


def _finished(picture: Picture, lines: Sequence[Sequence[int]], parts: Sequence[tuple[int, int]], width: float, top: float) -> Layout:
    layout = Layout(2 * MARGIN + width if len(parts) == 1 else float(WIDTH))
    line_of = {number: at for at, line in enumerate(lines) for number in line}
    column = {number: part for part, (start, end) in enumerate(parts) for line in lines[start:end] for number in line}
    routes = _Routes(column)
    refer(layout, _route(picture.links, routes, line_of))
    marked = tuple(replace(row, note=row.note, name=f"{layout.marks[at]} {row.name}") if at in layout.marks else row
                   for at, row in enumerate(picture.rows))  # fmt: skip
    flow = _Flow(replace(picture, rows=marked), lines, width, layout.texts)
    ends = [flow.place(start, end, layout, MARGIN + at * (width + MARGIN), top) for at, (start, end) in enumerate(parts)]
    layout.height = max(ends)
    layout.strokes = [
        *(stroke for trunk in routes.trunks for stroke in _trunk(layout, routes, *trunk)),
        *(_straight(link, layout) for link in routes.straight),
        *(_turning(link, layout, routes) for link in routes.turning),
    ]
    return layout


def _route(links: Sequence[Link], routes: _Routes, line_of: dict[int, int]) -> list[Link]:
    """Sorts links into straight ones, one from the first column to the second, and trunks at the left; gives those without a place."""
    skipping: dict[int, list[Link]] = {}
    left_out: list[Link] = []
    for link in links:
        step = line_of[link.head] - line_of[link.tail]
        if step == 1 and routes.column[link.tail] == routes.column[link.head]:
            routes.straight.append(link)
        elif step == 1 or link.strong:
            routes.turning.append(link)
        elif routes.column[link.tail] == routes.column[link.head]:
            skipping.setdefault(link.tail, []).append(link)
        else:
            left_out.append(link)
    taken: list[list[tuple[int, int]]] = [[] for _ in range(_LANES)]
    spans = {tail: (line_of[tail], max(line_of[link.head] for link in found)) for tail, found in skipping.items()}
    for tail in sorted(spans, key=lambda number: (spans[number][1] - spans[number][0], number)):
        first, last = spans[tail]
        free = next((lane for lane, spots in enumerate(taken) if all(last < a or b < first for a, b in spots)), None)
        if free is None:
            left_out += skipping[tail]
            continue
        taken[free].append((first, last))
        routes.trunks.append((tail, free, tuple(link.head for link in skipping[tail])))
    return left_out


def _trunk(layout: Layout, routes: _Routes, tail: int, lane: int, heads: tuple[int, ...]) -> Iterator[Stroke]:
    """One line at the left of the boxes, with a branch to each box that uses the value."""
    start = layout.rows[tail]
    x = _left(layout, routes, tail) - 4 - _LANE * lane
    ends = [layout.rows[head].y + 9 for head in heads]
    yield Stroke(
        f"M{_n(start.x)} {_n(start.y + 17)}H{_n(x + 3)}Q{_n(x)} {_n(start.y + 17)} {_n(x)} {_n(start.y + 20)}V{_n(max(ends) - 3)}", ()
    )
    for head, y in zip(heads, ends, strict=True):
        end = layout.rows[head].x
        tip = f"{_n(end)},{_n(y)} {_n(end - 6)},{_n(y - 3)} {_n(end - 6)},{_n(y + 3)}"
        yield Stroke(f"M{_n(x)} {_n(y - 3)}Q{_n(x)} {_n(y)} {_n(x + 3)} {_n(y)}H{_n(end - 4)}", (tip,))


def _left(layout: Layout, routes: _Routes, number: int) -> float:
    """Where the boxes of this row's column begin."""
    return min(layout.rows[other].x for other, column in routes.column.items() if column == routes.column[number]) - 6


def _straight(link: Link, layout: Layout) -> Stroke:
    start, end = layout.rows[link.tail], layout.rows[link.head]
    x = _free_x(start, end, layout)
    y1, y2 = start.y + start.height, end.y
    tip = f"{_n(x)},{_n(y2)} {_n(x - 3.5)},{_n(y2 - 7)} {_n(x + 3.5)},{_n(y2 - 7)}"
    label = link.label if y2 - y1 >= 15 else ""
    return Stroke(f"M{_n(x)} {_n(y1)}V{_n(y2 - 4)}", (tip,), link.strong, label, (x + 8, y1 + 13))


def _free_x(start: Place, end: Place, layout: Layout) -> float:
    """The middle of the upper box, or where no head of a panel between the boxes is in the way."""
    low, high = max(start.x, end.x) + 8, min(start.x + start.width, end.x + end.width) - 8
    x = (max(start.x, end.x) + min(start.x + start.width, end.x + end.width)) / 2
    for title, tag, place in layout.heads:
        if start.y < place.y < end.y and place.x < high and low < place.x + place.width:
            two = place.height > HEAD
            low = max(low, place.x + max(text_width(title, MONO), text_width(tag, BOLD) if two else 0) + 6)
            if not two:
                high = min(high, place.x + place.width - text_width(tag, BOLD) - 6)
    if low <= x <= high:
        return x
    return (low + high) / 2 if low <= high else x


def _turning(link: Link, layout: Layout, routes: _Routes) -> Stroke:
    """From the right of a box through the gap between the columns to the left of a box."""
    start, end = layout.rows[link.tail], layout.rows[link.head]
    y1, y2 = start.y + 12, end.y + 12
    if routes.column[link.tail] == routes.column[link.head]:
        x, side, sign = start.x + start.width + 8, end.x + end.width, 1
    else:
        x, side, sign = layout.width / 2, end.x, -1
    path = f"M{_n(start.x + start.width)} {_n(y1)}H{_n(x)}V{_n(y2)}H{_n(side + 4 * sign)}"
    tip = f"{_n(side)},{_n(y2)} {_n(side + 7 * sign)},{_n(y2 - 3.5)} {_n(side + 7 * sign)},{_n(y2 + 3.5)}"
    return Stroke(path, (tip,), link.strong)
