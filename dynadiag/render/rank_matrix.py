"""Ranks by frames as a picture: a row for each group of equal ranks, a column for each frame, marked where a group differs."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence

from dynadiag.model.digest import RankComparison, RankGroup, rank_numbers
from dynadiag.render.palette import WIDTH
from dynadiag.render.sanitise import clean, xml_text
from dynadiag.render.svg import sealed
from dynadiag.render.wording import frame_name, plural

_MOST_ROWS, _MOST_COLUMNS, _MOST_NAMES = 40, 60, 30
_EDGE, _LABELS, _ROW, _TOP, _LINE = 16.0, 250.0, 24.0, 66.0, 18.0
_WIDEST = 36.0
_LEGEND = (("dd-compiled", "as in the largest group"), ("dd-broken", "something else"), ("dd-gone", "not compiled"))


def rank_matrix(found: RankComparison) -> str | None:
    """The picture, at most 860 pixels wide; None where all ranks are alike."""
    if len(found.groups) < 2 or not found.frames:
        return None
    columns = _columns(found)
    rows = found.groups[: min(_MOST_ROWS, len(next(iter(found.frames.values()))))]
    root = ElementTree.Element("svg")
    _add(root, "rect", {"class": "dd-bg", "width": "100%", "height": "100%"})
    title = f"{found.ranks:,} ranks in {plural(len(found.groups), 'group')}"
    _add(root, "text", {"class": "dd-h", "x": _EDGE, "y": 26}, title)
    shown = "" if len(columns) == len(found.frames) else f"; {len(columns)} of {len(found.frames)} frames, first those that differ"
    said = f"rows: equal ranks; columns: frames in the order in which they were compiled{shown}"
    _add(root, "text", {"class": "dd-s", "x": _EDGE, "y": 44}, said)
    width = min(_WIDEST, (WIDTH - _LABELS - _EDGE) / len(columns))
    names = list(found.frames)
    for place, number in enumerate(columns):
        if width >= 16 or place % 2 == 0:
            x = _LABELS + (place + 0.5) * width
            _add(root, "text", {"class": "dd-s", "x": x, "y": _TOP + 10, "text-anchor": "middle"}, f"{number + 1}")
    y = _rows(root, found, rows, columns, width)
    if len(found.groups) > len(rows):
        _add(root, "text", {"class": "dd-s", "x": _EDGE, "y": y + 14}, f"{len(found.groups) - len(rows):,} more groups")
        y += _LINE
    y = _legend(root, y + 20)
    y = _named(root, [number for number in columns if len(set(found.frames[names[number]])) > 1], names, y)
    for name, value in (("viewBox", f"0 0 {WIDTH} {y:g}"), ("width", str(WIDTH)), ("height", f"{y:g}")):
        root.set(name, value)
    return sealed(root, f"Ranks by frames: {title}", "Which group of equal ranks compiled each frame as the largest group did.")


def _rows(root: ElementTree.Element, found: RankComparison, groups: Sequence[RankGroup], columns: Sequence[int], width: float) -> float:
    """A row for each group, and where the next would begin."""
    names = list(found.frames)
    y = _TOP + _LINE
    for at, group in enumerate(groups):
        label = f"{'rank' if len(group.ranks) == 1 else f'{len(group.ranks):,} ranks:'} {rank_numbers(group.ranks)}"
        row = _add(root, "g", {})
        _add(row, "title", {}, clean(label, limit=400))
        _add(row, "text", {"class": "dd-o", "x": _EDGE, "y": y + 16}, clean(label, limit=31))
        for place, number in enumerate(columns):
            values = found.frames[names[number]]
            cell = _add(root, "g", {})
            _add(cell, "title", {}, clean(f"{label}: {_name(names[number])}: {_meaning(values[at], values[0])}", limit=400))
            box: dict[str, object] = {"class": _class(values[at], values[0]), "x": _LABELS + place * width + 1, "y": y + 2}
            _add(cell, "rect", {**box, "width": max(2.0, width - 2), "height": _ROW - 4, "rx": 2})
        y += _ROW
    return y


def _columns(found: RankComparison) -> list[int]:
    """The frames shown, in their order: all, or those that differ and as many of the others as there is room for."""
    values = list(found.frames.values())
    return sorted(sorted(range(len(values)), key=lambda number: len(set(values[number])) < 2)[:_MOST_COLUMNS])


def _class(value: int, base: int) -> str:
    return "dd-gone" if not value else "dd-compiled" if value == base else "dd-broken"


def _meaning(value: int, base: int) -> str:
    return next(text for name, text in _LEGEND if name == _class(value, base))


def _legend(root: ElementTree.Element, y: float) -> float:
    x = _EDGE
    for name, text in _LEGEND:
        _add(root, "rect", {"class": name, "x": x, "y": y - 11, "width": 14, "height": 14, "rx": 2})
        _add(root, "text", {"class": "dd-s", "x": x + 20, "y": y}, text)
        x += 44 + 6.3 * len(text)
    return y + 14


def _named(root: ElementTree.Element, numbers: Sequence[int], names: Sequence[str], y: float) -> float:
    """The names of the columns that differ."""
    for number in numbers[:_MOST_NAMES]:
        y += _LINE
        _add(root, "text", {"class": "dd-s", "x": _EDGE, "y": y}, clean(f"{number + 1}  {_name(names[number])}", limit=130))
    if len(numbers) > _MOST_NAMES:
        y += _LINE
        _add(root, "text", {"class": "dd-s", "x": _EDGE, "y": y}, f"and {len(numbers) - _MOST_NAMES} more frames that differ")
    return y + 14


def _name(text: str) -> str:
    """`forward, resumed at line 13 (train.py:13)` of a function with its place."""
    function, opened, place = text.partition(" (")
    return f"{frame_name(function)}{opened}{place}"


def _add(parent: ElementTree.Element, tag: str, attributes: Mapping[str, object], text: str | None = None) -> ElementTree.Element:
    values = {name: f"{value:g}" if isinstance(value, int | float) else str(value) for name, value in attributes.items()}
    element = ElementTree.SubElement(parent, tag, values)
    element.text = None if text is None else xml_text(text)
    return element
