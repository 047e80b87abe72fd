"""Lines and tables on a rich console that never get wider than it, but for lines to copy; they carry no markup and no trailing blanks."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from dynadiag.render.document import Article, Cell, Column, Document, Paragraph, Section, Tone, without_empty
from dynadiag.render.sanitise import REPLACEMENT, clean, clean_block, clean_code, without_unseen

_NARROWEST_BODY = 12
_LINES_LIMIT = 2000
_FILE_WIDTH = 100
_LABEL_WIDTH = 6
SEVERITY_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_STYLES: Mapping[Tone, str] = {"plain": "", "good": "green", "bad": "red", "unclear": "yellow"}


@dataclass(frozen=True, slots=True)
class Page:
    """Writes to `console`, whose encoding decides what it can show: other characters become "?".

    `links`: codes are links to their pages, for a terminal (OSC 8). `counts_only`: lines are counted and not printed.
    """

    console: Console
    links: bool = False
    counts_only: bool = False
    _width: int = field(init=False)
    _written: list[int] = field(init=False, default_factory=lambda: [0])

    def __post_init__(self) -> None:
        object.__setattr__(self, "_width", max(1, self.console.width))

    @property
    def width(self) -> int:
        """Columns of the console."""
        return self._width

    @property
    def unicode(self) -> bool:
        """Whether the console can show all characters."""
        return self.console.encoding.startswith("utf")

    @property
    def lines(self) -> int:
        """How many lines were written."""
        return self._written[0]

    def blank(self) -> None:
        """An empty line."""
        self._emit(Text())

    def line(self, text: str | Text, *, style: str = "", prefix: str | Text = "", hang: str | Text | None = None) -> None:
        """One paragraph: `prefix` opens its first line and `hang` (blanks by default) the lines that it is folded into."""
        body = text if isinstance(text, Text) else Text(text, style=style)
        first = prefix if isinstance(prefix, Text) else Text(prefix)
        rest = Text(" " * first.cell_len) if hang is None else hang if isinstance(hang, Text) else Text(hang)
        room = self.width - max(first.cell_len, rest.cell_len)
        if room < _NARROWEST_BODY:
            first, rest, room = Text(), Text(), self.width
        for number, row in enumerate(body.wrap(self.console, room, overflow="fold")):
            self._emit(Text.assemble(rest if number else first, row))

    def parts(self, texts: Iterable[str], between: str, *, style: str = "", prefix: str | Text = "", hang: str = "") -> None:
        """One paragraph of parts that are folded only where two of them meet, but for one that is too long for a line of its own."""
        row = prefix.copy() if isinstance(prefix, Text) else Text(prefix)
        room, opened, every = self.width - len(hang), False, list(texts)
        for number, text in enumerate(every, 1):
            part, after = Text(text, style=style), len(between.rstrip()) if number < len(every) else 0
            fits = row.cell_len + len(between) * opened + part.cell_len + after <= self.width
            if not fits and row.plain.strip() and part.cell_len + after <= room:
                self._emit(row.append(between.rstrip(), style) if opened else row)
                row, opened = Text(hang), False
            row = Text.assemble(row, *([(between, style)] if opened else []), part)
            opened = True
            if row.cell_len + after > self.width:
                first, *others = row.wrap(self.console, max(1, room - after), overflow="fold")
                for item in others:
                    self._emit(first)
                    first = Text.assemble(hang, item)
                row = first
        self._emit(row)

    def measured(self, write: Callable[[Page], None]) -> int:
        """How many lines it would write on a page as wide."""
        scratch = Page(Console(file=io.StringIO(), width=self.width), counts_only=True)
        write(scratch)
        return scratch.lines

    def whole(self, text: str, *, style: str = "", prefix: str | Text = "") -> None:
        """A line to copy, which is never folded: a terminal that is too narrow folds it itself and still copies one line."""
        self._emit(Text.assemble(prefix, (text, style)), whole=True)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], *, indent: int = 2) -> None:
        """A table without borders; cells fold inside their column."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
        for column in columns:
            table.add_column(
                Text(column.heading),
                justify="right" if column.numeric else "left",
                overflow="fold",
                no_wrap=not column.fold or column.numeric,
            )
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        margin = indent if self.width > 4 * indent else 0
        options = self.console.options.update(width=max(1, self.width - margin))
        for segments in self.console.render_lines(table, options, pad=False):
            self._emit(Text.assemble(" " * margin, *((segment.text, segment.style or "") for segment in segments)))

    def document(self, told: Document) -> None:
        """Title, facts and headlines, then what of the sections is brief."""
        self.line(clean(told.title), style="bold")
        for fact in told.facts:
            self.line(clean(fact))
        self.blank()
        self.headlines(told)
        for section in told.sections:
            if section.brief and section.has_text:
                self.section(section, limit=None)

    def headlines(self, told: Document) -> None:
        """What came of it, a line each."""
        for headline in told.headlines:
            self.line(clean(headline.text, limit=_LINES_LIMIT), style=f"bold {_STYLES[headline.tone]}")

    def section(self, section: Section, *, limit: int | None) -> None:
        """Its title, lines and first `limit` rows, None for all; what is left out is counted."""
        self.blank()
        self.line(f"{section.title}: {clean(section.said)}" if section.said else section.title, style="bold")
        for line in section.lines:
            self.line(clean(line, limit=_LINES_LIMIT), prefix="  ", style="dim")
        shown = [[_shown(cell) for cell in section.row(item)] for item in section.items[:limit]]
        if section.as_entries:
            for cells in shown:
                self._entry(section.columns, cells)
        elif shown:
            self.table(*without_empty(section.columns, shown))
        if len(section.items) > len(shown):
            more = len(section.items) - len(shown)
            self.line(f"{more:,} more {section.unit}{'s' if more > 1 else ''} not shown (--limit 0 for all)", prefix="  ")
        for point in section.points:
            self.line(clean(point, limit=_LINES_LIMIT), prefix="  - ")
        for row in clean_block(section.block.text).split("\n") if section.block else ():
            self.whole(row, prefix="  ")
        if section.closing:
            self.line(clean(section.closing), prefix="  ")

    def article(self, told: Article) -> None:
        """Title, place and source line, then the paragraphs with their labels at the left."""
        style = SEVERITY_STYLES.get(told.severity, "bold")
        code = Text(clean(told.code, limit=40), style=Style.parse(style) + Style(link=told.address if self.links else None))
        title = Text.assemble((f"{clean(told.severity, limit=20)} ", style), code, "  ", (clean(told.title), "bold"))
        self.line(title, hang="    ")
        if told.place:
            self.line(Text(told.place, style="cyan"), prefix=Text("  --> ", style="dim"))
        if told.source:
            number = "" if told.line is None else str(told.line)
            prefix = Text(f"{number:>{_LABEL_WIDTH}} | ", style="dim")
            self.line(clean_code(told.source), prefix=prefix, hang=" " * _LABEL_WIDTH + " | ")
        for paragraph in told.paragraphs:
            self._paragraph(paragraph)

    def _paragraph(self, told: Paragraph) -> None:
        names = ", ".join(clean(name, limit=20) for name in told.ids)
        text = " ".join(filter(None, (names, clean_block(told.text, lines=told.lines))))
        prefix = Text(f"{told.label:>{_LABEL_WIDTH}}   ", style="bold")
        for number, row in enumerate(text.split("\n")) if text else ():
            self.line(row, prefix=" " * prefix.cell_len if number else prefix)
        if told.code:
            self.line(clean_code(told.code), prefix=" " * (_LABEL_WIDTH + 6), style="dim")
        for statement in told.imports:
            self.whole(clean(statement), style="green", prefix=Text.assemble((f"{'needs':>{_LABEL_WIDTH}}", "bold"), ("   + ", "green")))
        for sign, code, style in (("- ", told.before, "red"), ("+ ", told.after, "green")):
            for row in clean_block(code, lines=20).split("\n") if code else ():
                self.whole(row, style=style, prefix=Text(" " * (_LABEL_WIDTH + 3) + sign, style=style))

    def _entry(self, columns: Sequence[Column], cells: Sequence[Text]) -> None:
        name, heading, *rest = cells
        self.line(heading, prefix=f"  {name.plain:<4} ")
        for column, text in zip(columns[2:], rest, strict=True):
            if text:
                text.stylize("dim")
                self.line(text, prefix=f"       {column.label}")

    def _emit(self, row: Text, *, whole: bool = False) -> None:
        self._written[0] += 1
        if self.counts_only:
            return
        row.rstrip()
        if row.cell_len > self.width and not whole:
            row.truncate(self.width, overflow="crop")
        self.console.print(self._encodable(row), soft_wrap=True, highlight=False, markup=False, emoji=False)

    def _encodable(self, row: Text) -> Text:
        """The row with characters that the console's encoding lacks as "?": a script under LANG=C must not end in a UnicodeEncodeError."""
        encoding = self.console.encoding
        plain = row.plain
        if plain.isascii() and plain.isprintable():
            return row
        text = without_unseen(plain, REPLACEMENT)
        if text == plain and encoding.startswith("utf"):
            return row
        shown = Text(text if encoding.startswith("utf") else text.encode(encoding, "replace").decode(encoding, "replace"), end=row.end)
        shown.spans = list(row.spans)
        return shown


def _shown(cell: Cell) -> Text:
    made = Text()
    for number, part in enumerate(cell):
        made.append((part.before if number else "") + clean(part.text, limit=part.limit), style=_STYLES[part.tone])
    return made


def text_of(told: Document, *, headlines_only: bool = False) -> str:
    """The document as plain text, for a file."""
    out = io.StringIO()
    page = Page(Console(file=out, width=_FILE_WIDTH, highlight=False, no_color=True))
    (page.headlines if headlines_only else page.document)(told)
    return out.getvalue()
