"""What a verb says, once, for every renderer: a document of headlines, key figures and sections. Texts are as recorded until shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from dynadiag.render.sanitise import LINE_LIMIT

Tone = Literal["plain", "good", "bad", "unclear"]
"""What a text means for the reader: the renderer chooses the colour."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a cell as it was recorded: the renderer cleans it and cuts it at `limit`; `code` marks names and source text.

    `before` separates it from the part before it. `tone` colours a verdict.
    """

    text: str
    limit: int = LINE_LIMIT
    code: bool = False
    before: str = " "
    tone: Tone = "plain"


Cell = tuple[Part, ...]
_Shown = TypeVar("_Shown")


def joined(cell: Cell, shown: Callable[[Part], str]) -> str:
    """The cell with each part as the renderer shows it."""
    return "".join((part.before if number else "") + shown(part) for number, part in enumerate(cell))


def cells(*texts: str | Part | None) -> tuple[Cell, ...]:
    """A row of cells with one part each, none where there is no text."""
    parts = (text if isinstance(text, Part) else Part(text or "") for text in texts)
    return tuple((part,) if part.text else () for part in parts)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, whether it holds numbers (right-aligned), and whether it may be folded.

    Where a section is shown as entries, `label` opens the line of this column.
    """

    heading: str
    numeric: bool = False
    fold: bool = True
    label: str = ""


def without_empty(columns: Sequence[Column], rows: Sequence[Sequence[_Shown]]) -> tuple[list[Column], list[list[_Shown]]]:
    """The columns and cells of a table without the columns that are empty in every row."""
    used = [at for at in range(len(columns)) if any(cells[at] for cells in rows)]
    return [columns[at] for at in used], [[cells[at] for at in used] for cells in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Text to be shown as it is, with its line breaks: a program, a log. `language` is that of a fenced block ("python", "text")."""

    text: str
    language: str = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled list: `said` sums it up, `lines` come before the rows and `closing` after them. `row` makes the cells of an item.

    `as_entries`: its cells are sentences, so where there is no room for them side by side an item is an entry of several lines: the first
    cell is its id, the second its heading. `points` are sentences of equal rank, one below the other. A page shows `pictures` too (sealed
    SVG by what it shows), and a terminal leaves out what is not `brief`.
    """

    title: str
    said: str = ""
    lines: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    items: Sequence[Any] = ()
    row: Callable[[Any], tuple[Cell, ...]] = lambda item: item
    unit: str = "row"
    closing: str = ""
    as_entries: bool = False
    points: Sequence[str] = ()
    block: Block | None = None
    pictures: tuple[tuple[str, str], ...] = ()
    brief: bool = True
    depth: int = 2

    @property
    def has_text(self) -> bool:
        """Whether there is anything to show besides its pictures."""
        return bool(self.said or self.lines or self.items or self.points or self.block or self.closing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """What an article says under one label.

    A `reason` is the text that an article is about, a `note` what else there is to know, a `change` what to do, with its code, and a
    `fact` a few words that close the article. `lines` is how many lines of it a terminal shows. `code` is the line of source that the text
    names, and `ids` are the entries of the report that it names first.
    """

    label: str
    text: str = ""
    kind: Literal["reason", "note", "change", "fact"] = "note"
    lines: int = 12
    code: str = ""
    imports: tuple[str, ...] = ()
    before: str | None = None
    after: str | None = None
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """One finding: how bad, its code with the `address` of the code's page, title, line of source, and paragraphs in their order."""

    id: str
    severity: str
    code: str
    title: str
    address: str | None = None
    place: str = ""
    line: int | None = None
    source: str = ""
    paragraphs: tuple[Paragraph, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One line of what came of it: the verdict in a `word`, what it is about, and what it rests on."""

    word: str
    what: str = ""
    said: str = ""
    tone: Tone = "plain"

    @property
    def text(self) -> str:
        """The whole line."""
        return ": ".join(filter(None, (self.word, self.what, self.said)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """All that one run of a verb says. `title` names verb and target; `facts` are what else stands at the head, a line each.

    `command` repeats it, where it is known. `figures` are the few numbers to see first on a page, by name. `name` is that of its JSON.
    """

    title: str
    facts: tuple[str, ...] = ()
    command: str = ""
    headlines: tuple[Headline, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()
    name: str = "report.json"
