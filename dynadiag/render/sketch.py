"""Boxes and arrows without an order: the frame map and the pictures of mutations, before `picture_of` puts them into rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dynadiag.render.picture import Link, Picture, Row

Look = Literal["plain", "inplace", "compiled", "broke", "eager", "failed", "graph", "break", "mutated", "writeback"]

# By look: the class of the palette, and what it means.
LOOKS: Mapping[Look, tuple[str, str]] = {
    "plain": ("pointwise", ""),
    "inplace": ("write", "writes in place"),
    "compiled": ("compiled", "compiled"),
    "broke": ("partly", "compiled up to a graph break"),
    "eager": ("eager", "ran eagerly"),
    "failed": ("broken", "failed to compile"),
    "graph": ("matrix", "FX graph"),
    "break": ("break", "graph break: why, where"),
    "mutated": ("input", "mutated input"),
    "writeback": ("eager", "what happens to the written value"),
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


def picture_of(sketch: Sketch) -> Picture:
    """The sketch in rows: each box after those that lead to it, and as soon after the last of them as can be."""
    order = _order(sketch)
    place = {number: at for at, number in enumerate(order)}
    rows = tuple(_row(sketch.boxes[number]) for number in order)
    found = {(place[arrow.tail], place[arrow.head]): arrow.strong for arrow in sketch.arrows if arrow.tail != arrow.head}
    links = tuple(Link(tail=tail, head=head, strong=strong) for (tail, head), strong in sorted(found.items()))
    used = {box.look for box in sketch.boxes}
    legend = tuple(LOOKS[look] for look in LOOKS if look in used and LOOKS[look][1])
    title, *summary = sketch.title or ("",)
    none = (Row(kind="pointwise", name="nothing to draw"),)
    return Picture(title=title, summary=tuple(summary), rows=rows or none, panels=(), links=links, legend=legend)


def _row(box: Box) -> Row:
    first, *rest = box.lines or ("",)
    return Row(kind=LOOKS[box.look][0], name=first, below=tuple(rest), tip=box.tip)


def _order(sketch: Sketch) -> list[int]:
    """Box numbers, depth first: what an arrow leads to follows when nothing else leads to it any more; cycles are cut."""
    heads: dict[int, list[int]] = {}
    waiting = dict.fromkeys(range(len(sketch.boxes)), 0)
    for arrow in sketch.arrows:
        if arrow.tail != arrow.head:
            heads.setdefault(arrow.tail, []).append(arrow.head)
            waiting[arrow.head] += 1
    found: dict[int, None] = {}
    for first in sorted(waiting, key=lambda number: (waiting[number] > 0, number)):
        stack = [first]
        while stack:
            number = stack.pop()
            if number in found:
                continue
            found[number] = None
            for head in reversed(heads.get(number, ())):
                waiting[head] -= 1
                if waiting[head] <= 0:
                    stack.append(head)
    return list(found)
