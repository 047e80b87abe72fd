"""A picture before it is laid out: rows (boxes with one name), the panels that they stand in, and links between rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One box. All text is sanitised. `kind` is a class of the palette without `dd-`; `outer` and `inner` are numbers of panels.

    `note` stands at the right, `below` are lines under the name (`below` in red where `alarm`), `half` boxes stand two in a line,
    `ends` is an output of the graph, `tip` what a pointer over it shows, `mark` a number to refer to.
    """

    kind: str
    name: str
    note: str = ""
    below: tuple[str, ...] = ()
    alarm: bool = False
    tip: str = ""
    half: bool = False
    ends: bool = False
    outer: int | None = None
    inner: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A box around rows, with a title at the left and a tag at the right of its head."""

    title: str
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An arrow from row number `tail` to row number `head`, with a label; `strong` ones are graph breaks."""

    tail: int
    head: int
    label: str = ""
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A whole picture; `summary` lines stand under the title, `legend` are pairs of class and meaning."""

    title: str
    summary: tuple[str, ...]
    rows: tuple[Row, ...]
    panels: tuple[Panel, ...]
    links: tuple[Link, ...]
    legend: tuple[tuple[str, str], ...]

    @property
    def description(self) -> str:
        """The picture in words, for screen readers: the rows in order, as far as a reader would listen."""
        names = [f"{row.name}{f' ({row.below[0]})' if row.alarm and row.below else ''}" for row in self.rows[:40]]
        more = f", and {len(self.rows) - 40} more boxes" if len(self.rows) > 40 else ""
        return ". ".join([*self.summary, f"In order: {', '.join(names)}{more}"] if names else self.summary)


def describe(picture: Picture) -> str:
    """The picture as text: one line a row, with the rows that it leads to."""
    heads: dict[int, list[int]] = {}
    for link in picture.links:
        heads.setdefault(link.tail, []).append(link.head)
    lines = [picture.title, *picture.summary]
    shown: tuple[int | None, int | None] = (None, None)
    for number, row in enumerate(picture.rows):
        for level, panel in enumerate((row.outer, row.inner)):
            if panel is not None and panel != shown[level]:
                head = " | ".join(part for part in (picture.panels[panel].title, picture.panels[panel].tag) if part)
                lines.append(f"{'  ' * level}[{head}]")
        shown = (row.outer, row.inner)
        indent = "  " * ((row.outer is not None) + (row.inner is not None))
        words = " | ".join(part for part in (row.name, row.note, *row.below) if part)
        ends = f" -> {', '.join(map(str, heads[number]))}" if number in heads else ""
        lines.append(f"{indent}{number} [{row.kind}] {words}{ends}")
    return "\n".join(lines) + "\n"
