"""The layout that Graphviz makes of a picture: boxes in ranks, modules as clusters, edges as curves; long ones cut into columns.

Graphviz is asked with sizes by our own table and gives coordinates. What it cannot know is done here: room for the heads of panels, wide
ranks folded into several, and where a column ends.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynadiag.errors import DynadiagError
from dynadiag.graphs.graphviz_layout import Coordinates, Curve, Rectangle
from dynadiag.render.crossings import crossing_pairs
from dynadiag.render.dot_text import Question, layout_text
from dynadiag.render.layout import (
    BELOW,
    BOLD,
    HEAD,
    LINE,
    MARGIN,
    MONO,
    SANS,
    TWO_HEADS,
    Layout,
    Place,
    Stroke,
    below,
    number_text,
    refer,
    text_width,
)
from dynadiag.render.palette import WIDTH
from dynadiag.render.picture import Link, Picture, Row

Ask = Callable[[str], Coordinates]
SMALLEST_SCALE = 9 / 11
"""The smallest text has 11 px, and 9 px in the widest picture."""


class TooWideError(DynadiagError):
    """Too much stands side by side for a picture in ranks."""

    slug = "too-wide"


_WIDEST = WIDTH / SMALLEST_SCALE - 1
_NARROWEST = 592.0
_ENOUGH = 560.0
"""A layout that is not higher stays in one column."""

_MOST_COLUMNS = 4
_BOX, _NARROW_BOXES = 300.0, (230.0, 170.0)
_LEAST_BOX = 64.0
_BOX_WITH_TEXT = 190.0
_GAP = 30.0
_PORT = 16.0
_DRAWN_AT_A_CUT = 2
_TIP = 7.0
_UNTANGLED, _MOST_UNTANGLED = 3, 10
_LONG = 300.0
_HOPELESS = 4
"""How many times too wide a column is not even folded."""

_SHARES = (0.8, 0.55, 0.35)
"""How much of the room the boxes of a folded rank take: the lines that pass it need some, too."""

# What is as bad as how many pixels more: a link told in words, a crossing, a panel cut in two.
_IN_WORDS = 40.0
_CROSSED = 30.0
_TORN = 30.0


def lay_out_in_ranks(picture: Picture, top: float, ask: Ask) -> Layout:
    """The layout below `top`; `ask` lays a DOT text out. Raises TooWideError where none is narrow enough.

    Links that cross many others are told in words, where that makes the picture better.
    """
    best = _best_attempt(picture, ask, frozenset())
    for _ in range(_UNTANGLED):
        tangled = best.tangled_links()
        if not tangled:
            break
        other = _best_attempt(picture, ask, best.words | tangled)
        if best.is_narrow and other.cost() >= best.cost():
            break
        best = other
    if not best.is_narrow:
        raise TooWideError(f"in ranks it is wider than {WIDTH} px")
    return best.layout(top)


def _best_attempt(picture: Picture, ask: Ask, words: frozenset[tuple[int, int]]) -> _Attempt:
    """The best of several numbers of columns; the one column where all are too wide."""
    alone = _Attempt(picture, [range(len(picture.rows))], ask, words)
    if alone.is_narrow and alone.height <= _ENOUGH:
        return alone
    attempts = [alone]
    for lines in (_ranks(alone.columns[0]), [[number] for number in range(len(picture.rows))]):
        for count in range(2, _MOST_COLUMNS + 1):
            cuts = _cuts(picture, lines, count)
            attempt = _Attempt(picture, cuts, ask, words) if cuts else None
            if attempt is None or not attempt.is_narrow:
                break
            attempts.append(attempt)
    return min((attempt for attempt in attempts if attempt.is_narrow), key=_Attempt.cost, default=alone)


@dataclass(slots=True)
class _Column:
    """Rows that Graphviz laid out; y grows downwards, from 0."""

    rows: dict[int, Place]
    panels: dict[int, Place]
    curves: list[Curve]
    ports: dict[str, tuple[float, float]]
    width: float
    height: float
    heads: dict[int, float] = field(default_factory=dict)
    """The height of each panel's head."""


class _Attempt:
    """The picture in these columns, with the links `words` told in words; one from column to column is drawn where few are."""

    def __init__(self, picture: Picture, columns: Sequence[Sequence[int]], ask: Ask, words: frozenset[tuple[int, int]]) -> None:
        self.picture, self._ask, self.words = picture, ask, words
        self._column = {number: at for at, numbers in enumerate(columns) for number in numbers}
        self._links = [link for link in picture.links if (link.tail, link.head) not in words]
        self._across = self._drawn_across()
        self.left_out = [
            link
            for link in picture.links
            if (link.tail, link.head) in words
            or (
                self._column[link.tail] != self._column[link.head]
                and link.tail not in self._across.get((self._column[link.tail], self._column[link.head]), ())
            )
        ]
        self._words = Layout(0)
        refer(self._words, self.left_out)
        self.columns = [self._narrow(at, numbers) for at, numbers in enumerate(columns)]
        self.width = max(_NARROWEST, 2 * MARGIN + sum(column.width for column in self.columns) + _GAP * (len(columns) - 1))
        self.height = max(column.height for column in self.columns)
        self.scale = min(1.0, WIDTH / self.width)
        self.is_narrow = self.width <= _WIDEST
        self._crossings = [pair for column in self.columns for pair in crossing_pairs(column.curves)]

    def tangled_links(self) -> frozenset[tuple[int, int]]:
        """The links that are in the way: those that cross most others, and the longest where the picture is too wide."""
        names = {(f"n{link.tail}", f"n{link.head}"): (link.tail, link.head) for link in self._links if not link.strong}
        found: dict[tuple[int, int], None] = {}
        left = list(self._crossings)
        while left and len(found) < _MOST_UNTANGLED:
            counted = Counter(curve for pair in left for curve in pair if (curve.tail, curve.head) in names)
            worst, _ = max(counted.items(), key=lambda item: (item[1], _drop(item[0]), item[0].tail, item[0].head), default=(None, 0))
            if worst is None:
                break
            found[names[worst.tail, worst.head]] = None
            left = [pair for pair in left if worst not in pair]
        if not self.is_narrow:
            curves = [curve for column in self.columns for curve in column.curves if (curve.tail, curve.head) in names]
            curves.sort(key=lambda curve: (-_drop(curve), curve.tail, curve.head))
            found |= dict.fromkeys(names[curve.tail, curve.head] for curve in curves[:_MOST_UNTANGLED] if _drop(curve) > _LONG)
        return frozenset(found)

    def cost(self) -> float:
        """How bad it is, in pixels of height."""
        shown: dict[int, set[int]] = {}
        for number, row in enumerate(self.picture.rows):
            for panel in (row.outer, row.inner):
                if panel is not None:
                    shown.setdefault(panel, set()).add(self._column[number])
        torn = sum(len(columns) - 1 for columns in shown.values())
        crossed = _CROSSED * len(self._crossings)
        return self.height * self.scale + crossed + _IN_WORDS * len(self.left_out) + _TORN * torn + 200 * (1 - self.scale)

    def _drawn_across(self) -> dict[tuple[int, int], list[int]]:
        """By pair of neighbouring columns, the rows whose links from one to the other are drawn."""
        found: dict[tuple[int, int], dict[int, bool]] = {}
        for link in self._links:
            pair = self._column[link.tail], self._column[link.head]
            if pair[0] + 1 == pair[1]:
                tails = found.setdefault(pair, {})
                tails[link.tail] = tails.get(link.tail, False) or link.strong
        return {pair: sorted(sorted(tails, key=lambda tail: (not tails[tail], -tail))[:_DRAWN_AT_A_CUT]) for pair, tails in found.items()}

    def _narrow(self, at: int, numbers: Sequence[int]) -> _Column:
        """A column, its wide ranks folded until it fits."""
        count = len(set(self._column.values()))
        most = (_WIDEST - 2 * MARGIN - _GAP * (count - 1)) / count
        column = self._laid(at, numbers, (), _BOX)
        for widest in _NARROW_BOXES:
            if column.width <= most * (SMALLEST_SCALE if count == 1 else 1.0):
                return column
            column = min(column, self._laid(at, numbers, (), widest), key=lambda laid: laid.width)
        if column.width > _HOPELESS * _WIDEST:
            raise TooWideError(f"in ranks it is wider than {WIDTH} px")
        wide = column
        for share in _SHARES:
            if column.width <= most:
                break
            column = self._laid(at, numbers, list(_folds(wide, most * share)), _NARROW_BOXES[-1])
        return column

    def _row(self, number: int) -> Row:
        """The row with its number to refer to."""
        row = self.picture.rows[number]
        return replace(row, name=f"{self._words.marks[number]} {row.name}") if number in self._words.marks else row

    def _sizes(self, numbers: Sequence[int], widest: float) -> dict[int, tuple[float, float]]:
        sizes: dict[int, tuple[float, float]] = {}
        titled: set[int] = set()
        for number in numbers:
            row, more = self._row(number), self._words.texts.get(number, ())
            name, note = text_width(row.name, MONO) + 20, text_width(row.note, SANS) + 18 if row.note else 0.0
            width = name + note + 12 if note and widest == _BOX and name + note + 12 <= _BOX else max(name, note)
            texts = (*row.below, *more)
            if texts:
                longest = max(text_width(text, SANS) * 1.15 + 18 for text in texts)
                width = max(width, min(_BOX if widest == _BOX else _BOX_WITH_TEXT, longest))
            for level, panel in enumerate((row.inner, row.outer)):
                if panel is not None and panel not in titled:
                    titled.add(panel)
                    title = self.picture.panels[panel]
                    width = max(width, text_width(title.title, MONO) + 12 - 16 * level, text_width(title.tag, BOLD) + 12 - 16 * level)
            width = float(round(min(max(width, _LEAST_BOX), widest)))
            sizes[number] = width, LINE + BELOW * len(below(row, width, more))
        return sizes

    def _laid(self, at: int, numbers: Sequence[int], folded: Sequence[tuple[int, int]], widest: float) -> _Column:
        inside = set(numbers)
        sizes = self._sizes(numbers, widest)
        links = {(link.tail, link.head) for link in self._links if link.tail in inside and link.head in inside}
        entries = {
            tail: sorted({link.head for link in self._links if link.tail == tail and link.head in inside})
            for tail in self._across.get((at - 1, at), ())
        }
        labelled = any(link.label for link in self.picture.links)
        question = Question(sizes, links, entries, self._across.get((at, at + 1), ()), folded, 18.0 if labelled else 16.0)
        return self._with_heads(self._ask(layout_text(self.picture, question)), sizes)

    def _with_heads(self, found: Coordinates, sizes: Mapping[int, tuple[float, float]]) -> _Column:
        """The coordinates with room for the heads: everything below the top of a panel moves down."""
        panels = {int(name.removeprefix("cluster_")): place for name, place in found.clusters.items() if name.startswith("cluster_")}
        heads = {number: self._head(number, place.width) for number, place in panels.items()}
        moves = _moves(panels, heads, list(found.boxes.values()))

        def moved(y: float) -> float:
            return y + sum(by for at, by in moves if at <= y + 0.5)

        rows, ports = {}, {}
        for name, box in found.boxes.items():
            centre_x, centre_y = box.x + box.width / 2, box.y + box.height / 2
            if name.startswith("n"):
                number = int(name[1:])
                width, height = sizes[number]
                upper, lower = moved(centre_y - height / 2), moved(centre_y + height / 2)
                rows[number] = Place(
                    float(round(centre_x - width / 2)), float(round(upper)), width, max(height, float(round(lower - upper)))
                )
            else:
                ports[name] = centre_x, moved(centre_y)
        curves = [
            Curve(curve.tail, curve.head, tuple((x, moved(y)) for x, y in curve.points), (curve.tip[0], moved(curve.tip[1])))
            for curve in found.curves
        ]
        # The top of a panel moves as what is above its own head.
        places = {
            number: Place(
                place.x, moved(place.y) - heads[number], place.width, moved(place.y + place.height) - moved(place.y) + heads[number]
            )
            for number, place in panels.items()
        }
        return _Column(rows, places, curves, ports, found.width, moved(found.height), heads)

    def _head(self, number: int, width: float) -> float:
        panel = self.picture.panels[number]
        two = panel.title and panel.tag and text_width(panel.title, MONO) + text_width(panel.tag, BOLD) + 32 > width
        return TWO_HEADS if two else HEAD

    def layout(self, top: float) -> Layout:
        """The whole layout below `top`."""
        made = Layout(self.width, marks=self._words.marks, texts=self._words.texts, scale=self.scale)
        used = sum(column.width for column in self.columns) + _GAP * (len(self.columns) - 1)
        x = (self.width - used) / 2
        shown: set[int] = set()
        room = _PORT if self._across else 0.0
        bottom = top + max(column.height for column in self.columns) + 2 * room
        ends: dict[str, tuple[float, float]] = {}
        for at, column in enumerate(self.columns):
            y = top + room
            for number, place in column.rows.items():
                made.rows[number] = Place(round(place.x + x), round(place.y + y), place.width, place.height)
            for number, place in sorted(column.panels.items()):
                self._add_panel(made, column, number, Place(place.x + x, place.y + y, place.width, place.height), number in shown)
            shown |= column.panels.keys()
            ends = self._add_strokes(made, column, (x, y), (at, bottom, top), ends)
            x += column.width + _GAP
        made.height = bottom
        _label(made, self.picture)
        return made

    def _add_panel(self, made: Layout, column: _Column, number: int, place: Place, again: bool) -> None:
        panel = self.picture.panels[number]
        inner = any(row.inner == number for row in self.picture.rows)
        made.panels.append((place, inner))
        title = f"{panel.title} (continued)" if again else panel.title
        made.heads.append((title, "" if again else panel.tag, Place(place.x + 8, place.y, place.width - 16, column.heads[number])))

    def _add_strokes(
        self,
        made: Layout,
        column: _Column,
        origin: tuple[float, float],
        place: tuple[int, float, float],
        ends: Mapping[str, tuple[float, float]],
    ) -> dict[str, tuple[float, float]]:
        """The lines of a column, those that come from the column before (at `ends`), and where those to the next one leave it."""
        x, y = origin
        at, bottom, top = place
        links = {(link.tail, link.head): link for link in self._links}
        for curve in column.curves:
            if curve.head.startswith("n"):
                link = links.get((int(curve.tail.lstrip("in")), int(curve.head[1:])))
                if link is not None:
                    made.strokes.append(_stroke(curve, x, y, link))
            elif curve.head.startswith("out"):
                tail = int(curve.head.removeprefix("out"))
                strong = any(link.strong for link in self.picture.links if link.tail == tail)
                made.strokes.append(Stroke(_curve_path(curve, x, y), (), strong))
        entries = self._across.get((at - 1, at), ())
        for lane, tail in enumerate(entries):
            start, end = ends[f"out{tail}"], column.ports[f"in{tail}"]
            middle = x - _GAP / 2 + 5 * lane
            strong = any(link.strong for link in self.picture.links if link.tail == tail)
            down, up = bottom - 4 - 5 * lane, top + 4 + 5 * lane
            path = f"M{_n(start[0])} {_n(start[1])}V{_n(down)}H{_n(middle)}V{_n(up)}H{_n(end[0] + x)}V{_n(end[1] + y)}"
            made.strokes.append(Stroke(path, (), strong))
        return {name: (port[0] + x, port[1] + y) for name, port in column.ports.items()}


_n = number_text


def _drop(curve: Curve) -> float:
    """How far down a curve goes."""
    return curve.points[-1][1] - curve.points[0][1]


def _curve_path(curve: Curve, x: float, y: float) -> str:
    (x0, y0), *rest = curve.points
    pieces = " ".join(f"{_n(px + x)} {_n(py + y)}" for px, py in rest)
    return f"M{_n(x0 + x)} {_n(y0 + y)}C{pieces}"


def _stroke(curve: Curve, x: float, y: float, link: Link) -> Stroke:
    """The curve with its arrow: a triangle from where the curve ends to the tip."""
    (ex, ey), (tx, ty) = curve.points[-1], curve.tip
    length = ((tx - ex) ** 2 + (ty - ey) ** 2) ** 0.5 or 1.0
    dx, dy = (tx - ex) / length, (ty - ey) / length
    bx, by = tx - _TIP * dx, ty - _TIP * dy
    corners = ((tx, ty), (bx - 3.5 * dy, by + 3.5 * dx), (bx + 3.5 * dy, by - 3.5 * dx))
    tip = " ".join(f"{_n(px + x)},{_n(py + y)}" for px, py in corners)
    path = f"{_curve_path(curve, x, y)}L{_n(bx + x)} {_n(by + y)}" if length > _TIP else _curve_path(curve, x, y)
    return Stroke(path, (tip,), link.strong, link.label, _middle(curve, x, y))


def _middle(curve: Curve, x: float, y: float) -> tuple[float, float]:
    """A point of the curve halfway."""
    points = curve.points
    at = (len(points) - 1) // 3 // 2 * 3
    p0, p1, p2, p3 = points[at : at + 4]
    return (p0[0] + 3 * p1[0] + 3 * p2[0] + p3[0]) / 8 + x, (p0[1] + 3 * p1[1] + 3 * p2[1] + p3[1]) / 8 + y


def _label(made: Layout, picture: Picture) -> None:
    """Keep the labels for which there is room beside their line."""
    taken = [Place(place.x, place.y - 2, place.width, place.height + 4) for place in made.rows.values()]
    taken += [Place(place.x, place.y, place.width, place.height) for _, _, place in made.heads]
    middles = [stroke.label_at for stroke in made.strokes]
    for at, stroke in enumerate(made.strokes):
        if not stroke.label:
            continue
        x, y = stroke.label_at
        spot = Place(x + 6, y - 7, text_width(stroke.label, SANS), 13)
        crossed = any(spot.x < mx < spot.x + spot.width and spot.y < my < spot.y + 13 for mx, my in middles[:at] + middles[at + 1 :])
        free = not crossed and spot.x + spot.width < made.width - 4 and not any(_overlap(spot, other) for other in taken)
        taken += [spot] if free else []
        made.strokes[at] = replace(stroke, label=stroke.label if free else "", label_at=(x + 6, y + 3))


def _overlap(place: Place, other: Place) -> bool:
    return (
        place.x < other.x + other.width
        and other.x < place.x + place.width
        and place.y < other.y + other.height
        and other.y < place.y + place.height
    )


def _moves(panels: Mapping[int, Rectangle], heads: Mapping[int, float], boxes: Sequence[Rectangle]) -> list[tuple[float, float]]:
    """Where room is made and how much: once for panels side by side that begin at about the same height, again for one inside another."""
    made: list[tuple[list[Rectangle], float, float]] = []
    for number, place in sorted(panels.items(), key=lambda item: (item[1].y, item[1].x)):
        for at, (others, y, by) in enumerate(made):
            if abs(y - place.y) <= 6 and not any(_contains(other, place) for other in others):
                made[at] = ([*others, place], min(y, place.y), max(by, heads[number]))
                break
        else:
            around = [other.y + 1 for other in panels.values() if other is not place and _contains(other, place)]
            made.append(([place], max(_between_boxes(place, boxes), *around, 0.0), heads[number]))
    return [(y, by) for _, y, by in made]


def _between_boxes(panel: Rectangle, boxes: Sequence[Rectangle]) -> float:
    """The top of a panel, or a height above it that cuts no box, where nothing stands between."""
    y = panel.y
    while cut := [box.y for box in boxes if box.y < y - 0.5 and y + 0.5 < box.y + box.height]:
        y = min(cut)
    between = any(
        panel.x < box.x + box.width and box.x < panel.x + panel.width and y - 1 < box.y + box.height / 2 < panel.y for box in boxes
    )
    return panel.y if between else y


def _contains(outer: Rectangle, inner: Rectangle) -> bool:
    return outer.x <= inner.x and outer.x + outer.width >= inner.x + inner.width and outer.y <= inner.y


def _folds(column: _Column, most: float) -> Iterator[tuple[int, int]]:
    """Pairs of rows that shall stand one below the other: ranks that are too wide are cut into parts that fit."""
    for rank in _ranks(column):
        parts: list[list[int]] = [[]]
        used = 0.0
        for number in rank:
            width = column.rows[number].width + 30
            if parts[-1] and used + width > most:
                parts.append([])
                used = 0.0
            parts[-1].append(number)
            used += width
        for upper, lower in itertools.pairwise(parts):
            yield from ((upper[0], number) for number in lower)


def _ranks(column: _Column) -> list[list[int]]:
    """Rows that stand side by side, from the top, each from the left."""
    found: dict[float, list[int]] = {}
    for number, place in column.rows.items():
        found.setdefault(round(place.y + place.height / 2), []).append(number)
    return [sorted(found[y], key=lambda number: column.rows[number].x) for y in sorted(found)]


def _cuts(picture: Picture, ranks: Sequence[Sequence[int]], count: int) -> list[list[int]] | None:
    """The rows in so many columns of about the same height, cut where few links cross and no panel is torn."""
    if len(ranks) < 2 * count:
        return None
    rank_of = {number: at for at, rank in enumerate(ranks) for number in rank}
    heights = [max(LINE + BELOW * (len(picture.rows[number].below) + 0.3) + 18 for number in rank) for rank in ranks]
    sums = [0.0]
    for height in heights:
        sums.append(sums[-1] + height)
    price = [0.0] * (len(ranks) + 1)
    for at in range(1, len(ranks)):
        crossing = {link.tail for link in picture.links if rank_of[link.tail] < at <= rank_of[link.head]}
        before, after = ({panel for r in part for n in r for panel in _panels_of(picture, n)} for part in (ranks[:at], ranks[at:]))
        price[at] = _IN_WORDS * max(0, len(crossing) - _DRAWN_AT_A_CUT) + _TORN * len(before & after)
    best: dict[tuple[int, int], tuple[float, float, tuple[int, ...]]] = {(0, 0): (0.0, 0.0, ())}
    for part in range(1, count + 1):
        for end in range(part, len(ranks) + 1):
            choices = [
                (
                    max(best[part - 1, start][0], sums[end] - sums[start]),
                    best[part - 1, start][1] + price[end],
                    (*best[part - 1, start][2], end),
                )
                for start in range(part - 1, end)
                if (part - 1, start) in best
            ]
            best[part, end] = min(choices, key=lambda choice: (choice[0] + choice[1], choice[2]))
    ends = best[count, len(ranks)][2]
    return [[number for rank in ranks[start:end] for number in rank] for start, end in zip((0, *ends), ends, strict=False)]


def _panels_of(picture: Picture, number: int) -> tuple[int, ...]:
    row = picture.rows[number]
    return tuple(panel for panel in (row.outer, row.inner) if panel is not None)
