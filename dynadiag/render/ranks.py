"""The layout that Graphviz makes of a picture: boxes in ranks, modules as clusters, edges as curves; long ones cut into columns.

Graphviz is asked with sizes by our own table and gives coordinates. What it cannot know is done here: room for the heads of panels, wide
ranks folded into several, and where a column ends.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dynadiag.errors import DynadiagError
from dynadiag.graphs.graphviz_layout import Coordinates, Curve, LayoutError
from dynadiag.render.crossings import crossing_pairs
from dynadiag.render.curves import curve_path, drop_of, keep_labels, stroke_of
from dynadiag.render.dot_text import Question, layout_text
from dynadiag.render.layout import BELOW, BOLD, LINE, MARGIN, MONO, SANS, Layout, Place, Stroke, below, number_text, refer, text_width
from dynadiag.render.palette import WIDTH
from dynadiag.render.picture import Picture, Row
from dynadiag.render.rank_column import Column, folds_of, ranks_of, with_heads
from dynadiag.render.rank_cuts import DRAWN_AT_A_CUT, IN_WORDS, TORN, cut_ranks

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
_UNTANGLED, _MOST_UNTANGLED = 3, 10
_LONG = 300.0
_HOPELESS = 4
"""How many times too wide a column is not even folded."""

_SHARES = (0.8, 0.55, 0.35)
"""How much of the room the boxes of a folded rank take: the lines that pass it need some, too."""

_CROSSED = 30.0
"""What is as bad as how many pixels more: a crossing."""


def lay_out_in_ranks(picture: Picture, top: float, ask: Ask) -> Layout:
    """The layout below `top`; `ask` lays a DOT text out. Raises TooWideError where none is narrow enough.

    Links that cross many others are told in words, where that makes the picture better.
    """
    ask = functools.cache(ask)  # attempts share columns
    best = _best_of(_attempts(picture, ask, frozenset()))
    for _ in range(_UNTANGLED):
        tangled = best.tangled_links()
        if not tangled:
            break
        other = _best_of(itertools.chain([best], _untangled(best, best.words | tangled)))
        if other is best:
            break
        best = other
    if not best.is_narrow:
        raise TooWideError(f"in ranks it is wider than {WIDTH} px")
    return best.layout(top)


def _attempts(picture: Picture, ask: Ask, words: frozenset[tuple[int, int]]) -> Iterator[_Attempt]:
    """The picture in one column, and where that is long in several."""
    alone = _Attempt(picture, [range(len(picture.rows))], ask, words)
    yield alone
    if alone.is_narrow and alone.height <= _ENOUGH:
        return
    for lines in (ranks_of(alone.columns[0]), [[number] for number in range(len(picture.rows))]):
        for count in range(2, _MOST_COLUMNS + 1):
            cuts = cut_ranks(picture, lines, count)
            attempt = _Attempt(picture, cuts, ask, words) if cuts else None
            if attempt is None or not attempt.is_narrow:
                break
            yield attempt


def _untangled(attempt: _Attempt, words: frozenset[tuple[int, int]]) -> Iterator[_Attempt]:
    """The same columns with these links in words; any columns where it is too wide."""
    if not attempt.is_narrow:
        yield from _attempts(attempt.picture, attempt.ask, words)
    elif (again := _Attempt(attempt.picture, attempt.numbers, attempt.ask, words)).is_narrow:
        yield again


def _best_of(attempts: Iterable[_Attempt]) -> _Attempt:
    """The best that is narrow enough, else the last. Where the time ends, what was found by then is taken."""
    best: _Attempt | None = None
    try:
        for attempt in attempts:
            if best is None or not best.is_narrow or attempt.cost() < best.cost():
                best = attempt
    except LayoutError:
        if best is None or not best.is_narrow:
            raise
    assert best is not None
    return best


class _Attempt:
    """The picture in these columns, with the links `words` told in words; one from column to column is drawn where few are."""

    def __init__(self, picture: Picture, columns: Sequence[Sequence[int]], ask: Ask, words: frozenset[tuple[int, int]]) -> None:
        self.picture, self.numbers, self.ask, self.words = picture, columns, ask, words
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

    @functools.cached_property
    def _crossings(self) -> list[tuple[Curve, Curve]]:
        return [pair for column in self.columns for pair in crossing_pairs(column.curves)]

    def tangled_links(self) -> frozenset[tuple[int, int]]:
        """The links that are in the way: those that cross most others, and the longest where the picture is too wide."""
        names = {(f"n{link.tail}", f"n{link.head}"): (link.tail, link.head) for link in self._links if not link.strong}
        found: dict[tuple[int, int], None] = {}
        left = list(self._crossings)
        while left and len(found) < _MOST_UNTANGLED:
            counted = Counter(curve for pair in left for curve in pair if (curve.tail, curve.head) in names)
            worst, _ = max(counted.items(), key=lambda item: (item[1], drop_of(item[0]), item[0].tail, item[0].head), default=(None, 0))
            if worst is None:
                break
            found[names[worst.tail, worst.head]] = None
            left = [pair for pair in left if worst not in pair]
        if not self.is_narrow:
            curves = [curve for column in self.columns for curve in column.curves if (curve.tail, curve.head) in names]
            curves.sort(key=lambda curve: (-drop_of(curve), curve.tail, curve.head))
            found |= dict.fromkeys(names[curve.tail, curve.head] for curve in curves[:_MOST_UNTANGLED] if drop_of(curve) > _LONG)
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
        return self.height * self.scale + crossed + IN_WORDS * len(self.left_out) + TORN * torn + 200 * (1 - self.scale)

    def _drawn_across(self) -> dict[tuple[int, int], list[int]]:
        """By pair of neighbouring columns, the rows whose links from one to the other are drawn."""
        found: dict[tuple[int, int], dict[int, bool]] = {}
        for link in self._links:
            pair = self._column[link.tail], self._column[link.head]
            if pair[0] + 1 == pair[1]:
                tails = found.setdefault(pair, {})
                tails[link.tail] = tails.get(link.tail, False) or link.strong
        return {pair: sorted(sorted(tails, key=lambda tail: (not tails[tail], -tail))[:DRAWN_AT_A_CUT]) for pair, tails in found.items()}

    def _narrow(self, at: int, numbers: Sequence[int]) -> Column:
        """A column, its wide ranks folded until it fits, else all rows in one file."""
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
                return column
            column = self._laid(at, numbers, list(folds_of(wide, most * share)), _NARROW_BOXES[-1])
        for widest in _NARROW_BOXES:
            if column.width <= most:
                break
            column = self._laid(at, numbers, tuple(itertools.pairwise(sorted(numbers))), widest, in_file=True)
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

    def _laid(self, at: int, numbers: Sequence[int], folded: Sequence[tuple[int, int]], widest: float, *, in_file: bool = False) -> Column:
        inside = set(numbers)
        sizes = self._sizes(numbers, widest)
        links = {(link.tail, link.head) for link in self._links if link.tail in inside and link.head in inside}
        entries = {
            tail: sorted({link.head for link in self._links if link.tail == tail and link.head in inside})
            for tail in self._across.get((at - 1, at), ())
        }
        labelled = any(link.label for link in self.picture.links)
        question = Question(sizes, links, entries, self._across.get((at, at + 1), ()), folded, 18.0 if labelled else 16.0, in_file)
        return with_heads(self.picture, self.ask(layout_text(self.picture, question)), sizes)

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
        keep_labels(made)
        return made

    def _add_panel(self, made: Layout, column: Column, number: int, place: Place, again: bool) -> None:
        panel = self.picture.panels[number]
        inner = any(row.inner == number for row in self.picture.rows)
        made.panels.append((place, inner))
        title = f"{panel.title} (continued)" if again else panel.title
        made.heads.append((title, "" if again else panel.tag, Place(place.x + 8, place.y, place.width - 16, column.heads[number])))

    def _add_strokes(
        self,
        made: Layout,
        column: Column,
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
                    made.strokes.append(stroke_of(curve, x, y, link))
            elif curve.head.startswith("out"):
                tail = int(curve.head.removeprefix("out"))
                strong = any(link.strong for link in self.picture.links if link.tail == tail)
                made.strokes.append(Stroke(curve_path(curve, x, y), (), strong))
        entries = self._across.get((at - 1, at), ())
        for lane, tail in enumerate(entries):
            start, end = ends[f"out{tail}"], column.ports[f"in{tail}"]
            middle = x - _GAP / 2 + 5 * lane
            strong = any(link.strong for link in self.picture.links if link.tail == tail)
            down, up = bottom - 4 - 5 * lane, top + 4 + 5 * lane
            corners = (f"V{number_text(down)}", f"H{number_text(middle)}", f"V{number_text(up)}", f"H{number_text(end[0] + x)}")
            path = f"M{number_text(start[0])} {number_text(start[1])}{''.join(corners)}V{number_text(end[1] + y)}"
            made.strokes.append(Stroke(path, (), strong))
        return {name: (port[0] + x, port[1] + y) for name, port in column.ports.items()}
