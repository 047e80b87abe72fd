"""A picture before anybody has laid it out: boxes and arrows, drawn by Graphviz, by our own layouter, or as text."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

_TITLE_WIDTH = 90

Look = Literal[
    "plain", "input", "output", "inplace", "folded", "compiled", "broke", "eager", "failed", "graph", "break", "mutated", "writeback"
]


@dataclass(frozen=True, slots=True)
class Style:
    """Colours of one look; all are readable on the white ground that every picture brings along."""

    fill: str
    line: str
    dashed: bool = False
    bold: bool = False
    meaning: str = ""


STYLES: dict[Look, Style] = {
    "plain": Style("#f6f8fa", "#57606a"),
    "input": Style("#ddf4ff", "#0969da", meaning="uses a graph input"),
    "output": Style("#f6f8fa", "#1f2328", bold=True, meaning="graph output"),
    "inplace": Style("#ffeff7", "#bf3989", meaning="writes in place, judging by its name"),
    "folded": Style("#fbefff", "#8250df", meaning="several nodes folded"),
    "compiled": Style("#dafbe1", "#1a7f37", meaning="compiled"),
    "broke": Style("#fff8c5", "#9a6700", meaning="compiled up to a graph break"),
    "eager": Style("#ffe3d3", "#bc4c00", dashed=True, meaning="ran eagerly"),
    "failed": Style("#ffebe9", "#cf222e", bold=True, meaning="failed to compile"),
    "graph": Style("#ddf4ff", "#0969da", meaning="FX graph"),
    "break": Style("#ffffff", "#bc4c00", meaning="graph break: why, where"),
    "mutated": Style("#ffd8eb", "#bf3989", bold=True, meaning="mutated input"),
    "writeback": Style("#fff1e5", "#bc4c00", dashed=True, meaning="what happens to the written value"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One box; `lines` are sanitised label lines, `tip` is what a pointer over it shows."""

    lines: tuple[str, ...]
    look: Look = "plain"
    tip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """An arrow from box number `tail` to box number `head`; `strong` ones are graph breaks."""

    tail: int
    head: int
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A whole picture: boxes are numbered by their position; `title` lines stand above it and say what was left out."""

    title: tuple[str, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    @property
    def legend(self) -> tuple[str, ...]:
        """What the colours in this picture mean, in lines of at most about 90 characters."""
        used = dict.fromkeys(box.look for box in self.boxes)
        parts = [f"{COLOUR_NAMES[look]}: {STYLES[look].meaning}" for look in STYLES if look in used and STYLES[look].meaning]
        words = "; ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
        return tuple(line.replace("\N{NO-BREAK SPACE}", " ") for line in textwrap.wrap(words, _TITLE_WIDTH))


COLOUR_NAMES: dict[Look, str] = {
    "plain": "grey",
    "input": "blue",
    "output": "thick border",
    "inplace": "pink",
    "folded": "violet",
    "compiled": "green",
    "broke": "yellow",
    "eager": "orange, dashed",
    "failed": "red",
    "graph": "blue",
    "break": "white",
    "mutated": "pink, thick border",
    "writeback": "cream, dashed",
}


def depth(count: int, arrows: tuple[tuple[int, int], ...]) -> int:
    """Boxes on the longest path, counting only arrows that go forward (tail before head)."""
    levels = [1] * count
    for tail, head in sorted(arrows, key=lambda arrow: arrow[1]):
        if tail < head:
            levels[head] = max(levels[head], levels[tail] + 1)
    return max(levels, default=0)
