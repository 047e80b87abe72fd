"""Where everything in a picture goes, in CSS pixels, and how wide texts are by our own table, so that no machine's fonts decide."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dynadiag.render.picture import Link, Row

MONO = 7.3
SANS = 6.2
BOLD = 7.1
WARN = 7.2
"""How wide a character is at most, in the fonts of names (12 px), of notes (11 px), of bold tags (12 px) and of bold notes (11 px)."""

MARGIN = 16.0
PAD = 8.0
LINE = 24.0
BELOW = 15.0
HEAD = 26.0
TWO_HEADS = 42.0
"""The height of a panel's head, where title and tag share a line and where they do not."""


class Place(NamedTuple):
    """The upper left corner and the size of a box."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line with an arrow: `path` as SVG has it, none or some `tips` of three points, and a label where there is room for it."""

    path: str
    tips: tuple[str, ...]
    strong: bool = False
    label: str = ""
    label_at: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True)
class Layout:
    """Where everything is. `heads` are titles and tags of panels with their corner and room; `texts` are further lines under a row's name.

    A link without a stroke is told in words: its tail has a number (`marks`), which the text of its head names.
    """

    width: float
    height: float = 0.0
    rows: dict[int, Place] = field(default_factory=dict)
    panels: list[tuple[Place, bool]] = field(default_factory=list)
    heads: list[tuple[str, str, Place]] = field(default_factory=list)
    strokes: list[Stroke] = field(default_factory=list)
    marks: dict[int, int] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    scale: float = 1.0
    """How many pixels one of these is in the picture: a wide layout is drawn a little smaller."""


_REFERENCES = 6


def refer(layout: Layout, left_out: Sequence[Link]) -> None:
    """Number the tails of links that are not drawn, and name these numbers at their heads."""
    layout.marks = {number: order + 1 for order, number in enumerate(sorted({link.tail for link in left_out}))}
    for number in sorted({link.head for link in left_out}):
        tails = sorted(layout.marks[link.tail] for link in left_out if link.head == number)
        more = f" and {len(tails) - _REFERENCES} more" if len(tails) > _REFERENCES else ""
        layout.texts[number] = [f"from {', '.join(map(str, tails[:_REFERENCES]))}{more}"]


def number_text(value: float) -> str:
    """A coordinate as SVG text: one decimal, none where it is whole."""
    return f"{value:.1f}".removesuffix(".0")


# How wide characters of a proportional font are, in parts of its constant above; all others take one at most.
_WIDE = {**dict.fromkeys("ABCDEFGHKNOPQRSTUVXYZ&", 1.3), **dict.fromkeys("mw", 1.4), **dict.fromkeys("MW@%", 1.65)}
_SLIM = dict.fromkeys("ijlftrI.,:;'|!()[]/ -", 0.6)


def text_width(text: str, character: float) -> float:
    """How wide a text is at most; East Asian characters are twice as wide, and many capitals wider than what is usual."""
    if text.isascii():
        parts = len(text) if character == MONO else max(len(text), sum(_WIDE.get(letter) or _SLIM.get(letter, 0.95) for letter in text))
    else:
        parts = sum(2 if unicodedata.east_asian_width(name) in "WF" else _WIDE.get(name, 1.0) for name in text)
    return character * parts


def fit(text: str, room: float, character: float) -> str:
    """The text cut to this room."""
    if text_width(text, character) <= room:
        return text
    while text and text_width(text, character) > room - character:
        text = text[: -max(1, int((text_width(text, character) - room) / (2 * character)))]
    return text.rstrip() + "…"


def below(row: Row, width: float, more: Sequence[str]) -> list[str]:
    """The lines under the name of a row of this width, wrapped."""
    note = [] if note_fits(row, width) else [fit(row.note, width - 16, SANS)]
    character = WARN if row.alarm else SANS
    wrapped = [part for line in row.below for part in _wrapped(line, width - 16, character)[:3]]
    return [*note, *wrapped, *more]


def note_fits(row: Row, width: float) -> bool:
    """Whether the note stands beside the name."""
    return not row.note or text_width(row.name, MONO) + text_width(row.note, SANS) + 28 <= width


def _wrapped(line: str, room: float, character: float) -> list[str]:
    """The line in as many as it needs, by the average width of its characters."""
    return textwrap.wrap(line, max(12, int(room * len(line) / text_width(line, character)))) if line else []
