"""The source ladder as one SVG of at most 860 px: light and dark in one file, a tool tip on each row, no links and no scripts."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

from dynadiag.render import wording
from dynadiag.render.ladder import STATES, Fold, Function, Ladder, Rung, State, bars_legend, folded, that_matter
from dynadiag.render.palette import COLOURS, MONO, SANS, WIDTH
from dynadiag.render.sanitise import REPLACEMENT, clean, clean_block, without_unseen, xml_text

ROWS_AT_MOST = 400
_ROW, _HEAD, _EDGE, _RAIL, _NUMBER, _CODE = 20, 40, 16, 22, 62, 74
_MONO_WIDTH, _SANS_WIDTH = 7.25, 6.3  # of a character at 12 and 11 px, as wide as the widest of the fonts in the lists draws it
_INDENT = 18
_SHOWN: Sequence[State] = ("graph", "break", "eager", "unseen")
# By class: property, colour; and what else the class says.
_CLASSES: Mapping[str, tuple[Mapping[str, str], str]] = {
    "bg": ({"fill": "ground"}, ""),
    "c": ({"fill": "ink"}, f"font:12px {MONO};white-space:pre"),
    "n": ({"fill": "dim"}, f"font:11px {MONO}"),
    "d": ({"fill": "dim"}, f"font:12px {MONO};white-space:pre"),
    "h": ({"fill": "ink"}, f"font:600 13px {SANS}"),
    "s": ({"fill": "dim"}, f"font:11px {SANS}"),
    "t": ({"fill": "on_mark"}, f"font:600 11px {MONO}"),
    "rule": ({"stroke": "rule"}, ""),
    "graph": ({"fill": "compiled"}, ""),
    "break": ({"fill": "broken"}, ""),
    "eager": ({"stroke": "eager"}, "stroke-width:1.6;fill:none"),
    "unseen": ({"stroke": "unknown"}, "fill:none;stroke-dasharray:3 3"),
    "row": ({"fill": "broken_fill"}, ""),
}


def ladder_svg(found: Ladder, title: str, *, base: Path | None) -> str | None:
    """The picture of the functions that matter, long stretches folded; None where there is none."""
    functions = that_matter(found)
    return _Drawing(base).drawn(functions, title, bars_legend(found)) if functions else None


class _Drawing:
    def __init__(self, base: Path | None) -> None:
        self.root = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "width": str(WIDTH), "role": "img"})
        self.base = base
        self.y = 34.0

    def drawn(self, functions: Sequence[Function], title: str, bars: str | None) -> str:
        self._add("title", _text(f"Source ladder: {title}"))
        self._add("desc", "The lines of the compiled functions, each marked as compiled, as a graph break, or as run in Python.")
        self._add("style", _style())
        self._add("rect", None, {"class": "bg", "width": "100%", "height": "100%"})
        self._add("text", _text(title, 110), {"class": "h", "x": _EDGE, "y": 24})
        rows = 0
        for number, function in enumerate(functions):
            lines = list(folded(function.rungs, keep=2))
            if rows + len(lines) > ROWS_AT_MOST and rows:
                self._add("text", f"{len(functions) - number} more functions", {"class": "s", "x": _CODE, "y": self.y + 18})
                self.y += 24
                break
            rows += len(lines)
            self._head(function)
            for row in lines[:ROWS_AT_MOST]:
                self._fold(row, function.depth) if isinstance(row, Fold) else self._row(row, function.depth)
        self._legend()
        if bars:
            self.y += 18
            self._add("text", _text(bars, 130), {"class": "s", "x": _EDGE, "y": self.y})
        self.root.set("viewBox", f"0 0 {WIDTH} {self.y + 12:g}")
        self.root.set("height", f"{self.y + 12:g}")
        return without_unseen(ElementTree.tostring(self.root, encoding="unicode"), REPLACEMENT) + "\n"

    def _add(
        self, tag: str, text: str | None, attributes: Mapping[str, object] | None = None, parent: ElementTree.Element | None = None
    ) -> ElementTree.Element:
        values = {key: f"{value:g}" if isinstance(value, float | int) else str(value) for key, value in (attributes or {}).items()}
        element = ElementTree.SubElement(self.root if parent is None else parent, tag, values)
        element.text = text
        return element

    def _head(self, function: Function) -> None:
        x, y = _EDGE + function.depth * _INDENT, self.y
        self._add("path", None, {"class": "rule", "d": f"M{x:g} {y + 8:g}H{WIDTH - _EDGE:g}"})
        name = _text(function.name, 60)
        place = wording.path(function.file, self.base) + ("" if function.line is None else f":{function.line}")
        self._add("text", name, {"class": "h", "x": x, "y": y + 28})
        room = int((WIDTH - x - _EDGE - 8.2 * len(name)) / _SANS_WIDTH) - len(function.said) - 4
        self._add("text", _end(place, max(room, 8)), {"class": "s", "x": x + 8.2 * len(name) + 8, "y": y + 28})
        self._add("text", _text(function.said, 80), {"class": "s", "x": WIDTH - _EDGE, "y": y + 28, "text-anchor": "end"})
        self.y += _HEAD

    def _row(self, rung: Rung, depth: int) -> None:
        shift, y = depth * _INDENT, self.y
        group = self._add("g", None)
        self._add("title", _text(" · ".join((STATES[rung.state], *rung.graphs[:4], *rung.marks, *rung.notes)), 400), parent=group)
        if rung.broke:
            at = {"class": "row", "x": _RAIL + shift + 12, "y": y, "width": WIDTH - _RAIL - shift - 12 - _EDGE, "height": _ROW}
            self._add("rect", None, at, group)
        self._mark(rung.state, _RAIL + shift, y, _ROW, group)
        self._thin(rung.bars, _RAIL + shift, group)
        self._add("text", f"{rung.line}", {"class": "n", "x": _NUMBER + shift, "y": y + 14, "text-anchor": "end"}, group)
        code = clean_block(rung.code.expandtabs(4), limit=300, lines=1)
        whole = WIDTH - _CODE - shift - _EDGE - 6.0
        right = self._draw_words(rung, y, group, WIDTH - _EDGE - 6.0, room=max(whole - 16 - _MONO_WIDTH * len(code), 0.35 * whole))
        most = int((right - 10 - _CODE - shift) / _MONO_WIDTH)
        shown = code if len(code) <= most else code[: max(1, most - 1)] + "…"
        self._add(
            "text", xml_text(shown), {"class": "d" if rung.state in ("plain", "unseen") else "c", "x": _CODE + shift, "y": y + 14}, group
        )
        self.y += _ROW

    def _draw_words(self, rung: Rung, y: float, group: ElementTree.Element, right: float, room: float) -> float:
        """Torch's ids as chips and the words before them, from the right; where they begin."""
        left = right
        for mark in reversed([clean(word, limit=12) for word in rung.marks[:3]]):
            width = 7.0 * len(mark) + 10
            self._add("rect", None, {"class": "break", "rx": 8, "x": left - width, "y": y + 2, "width": width, "height": 16}, group)
            self._add("text", xml_text(mark), {"class": "t", "x": left - width / 2, "y": y + 14, "text-anchor": "middle"}, group)
            left -= width + 6
        words = _text(" · ".join(rung.notes), max(8, int((room - (right - left)) / _SANS_WIDTH)))
        if words:
            self._add("text", words, {"class": "s", "x": left, "y": y + 14, "text-anchor": "end"}, group)
            left -= _SANS_WIDTH * len(words)
        return left

    def _mark(self, state: State, x: float, y: float, height: float, group: ElementTree.Element | None = None) -> None:
        if state == "graph":
            self._add("rect", None, {"class": "graph", "x": x, "y": y, "width": 6, "height": height}, group)
        elif state == "break":
            middle = y + height / 2
            self._add("path", None, {"class": "break", "d": f"M{x - 5:g} {middle:g} l8 -8 l8 8 l-8 8 z"}, group)
        elif state == "eager":
            steps = range(1, int(height) - 2, 5)
            self._add("path", None, {"class": "eager", "d": "".join(f"M{x:g} {y + at + 4:g}l6 -4" for at in steps)}, group)
        elif state == "unseen":
            self._add("rect", None, {"class": "unseen", "x": x + 0.5, "y": y, "width": 5, "height": height}, group)

    def _thin(self, bars: Sequence[State], rail: float, group: ElementTree.Element | None = None) -> None:
        """The bars of the ranks that differ, left of the wide one."""
        for number, state in enumerate(bars):
            x, y = rail - 8 - 5 * (len(bars) - 1 - number), self.y
            if state in ("graph", "break"):
                at = {"class": state, "x": x, "y": y if state == "graph" else y + 6, "width": 3, "height": _ROW if state == "graph" else 8}
                self._add("rect", None, at, group)
            elif state != "plain":
                self._add("path", None, {"class": state, "d": f"M{x + 1.5:g} {y:g}v{_ROW}", "stroke-dasharray": "2 4"}, group)

    def _fold(self, fold: Fold, depth: int) -> None:
        shift = depth * _INDENT
        self._mark(fold.state, _RAIL + shift, self.y, _ROW)
        self._thin(fold.bars, _RAIL + shift)
        said = f"… lines {fold.first} to {fold.last}" + ("" if fold.state == "graph" else f": {STATES[fold.state]}")
        self._add("text", said, {"class": "s", "x": _CODE + shift, "y": self.y + 14})
        self.y += _ROW

    def _legend(self) -> None:
        self.y += 22
        x = float(_EDGE + 6)
        for state in _SHOWN:
            self._mark(state, x, self.y - 10, 12)
            self._add("text", STATES[state], {"class": "s", "x": x + 14, "y": self.y})
            x += 34 + _SANS_WIDTH * len(STATES[state])


def _style() -> str:
    def rules(ground: int, with_rest: bool) -> str:
        written = []
        for name, (colours, rest) in _CLASSES.items():
            parts = [f"{key}:{COLOURS[colour][ground]}" for key, colour in colours.items()]
            written.append(f".{name}{{{';'.join([*parts, rest] if with_rest and rest else parts)}}}")
        return "".join(written)

    return f"{rules(0, True)}@media (prefers-color-scheme:dark){{{rules(1, False)}}}"


def _text(text: str, limit: int = 200) -> str:
    text = clean(text, limit=400)
    return xml_text(text if len(text) <= limit else text[: limit - 1] + "…")


def _end(text: str, limit: int) -> str:
    return xml_text(text if len(text) <= limit else "…" + text[1 - limit :])
