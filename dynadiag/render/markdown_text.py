"""Markdown that stays text: nothing from a log becomes HTML, a link, an image, a mention or a cross-reference on GitHub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from dynadiag.render.document import Article, Document, Paragraph, Part, Section, joined, without_empty
from dynadiag.render.sanitise import BLOCK_LIMIT, LINE_LIMIT, clean, clean_block

_BREAK = "\N{ZERO WIDTH SPACE}"
_PUNCTUATION = re.compile(r"([\\`*\[\]<|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_BLOCK_START = re.compile(r"^(?:[-=+>#:]|\d+(?=[.)](?:\s|$)))")
_TICKS = re.compile(r"`+")
_PARAGRAPH = 2000
_TEXT = 1200
_BLOCK_CHARACTERS, _BLOCK_LINES = 30_000, 2000
_ROW_LIMITS = (60, 25, 10, 4, 1)
MAX_CHARACTERS = 60_000
"""GitHub refuses an issue body over 65,536 characters."""


def prose(text: str, *, limit: int = LINE_LIMIT) -> str:
    """One line of prose with every Markdown character escaped; a pair of backticks still makes a code span.

    GitHub looks for mentions, issue numbers and bare addresses in the rendered text, so escaping does not stop them: a zero-width space
    does (GitHub Flavored Markdown spec, "Autolinks (extension)").
    """
    parts = clean(text, limit=limit).split("`")
    if len(parts) % 2 == 0:
        parts[-2:] = ["`".join(parts[-2:])]
    shown = ""
    for number, part in enumerate(parts):
        shown += code(part) if number % 2 and part.strip() else _escaped(part, begins=not shown)
    return shown


def _escaped(text: str, *, begins: bool = True) -> str:
    """`begins`: it stands at the beginning of the line, where some characters begin a list, a heading or a rule."""
    start = _BLOCK_START.match(text) if begins else None
    text = _PUNCTUATION.sub(r"\\\1", text)
    if start is not None:
        text = re.sub(r"^(\d+)", r"\1\\", text) if start[0].isdigit() else "\\" + text
    text = re.sub(r"@(?=\S)", "@" + _BREAK, text)
    text = re.sub(r"#(?=\d)", "#" + _BREAK, text)
    text = re.sub(r"(?i)\b(GH)-(?=\d)", rf"\1-{_BREAK}", text)
    text = re.sub(r"(?i)(https?|ftp|mailto|xmpp):", rf"\1{_BREAK}:", text)
    return re.sub(r"(?i)\bwww\.", f"www{_BREAK}.", text)


def code(text: str, *, limit: int = LINE_LIMIT) -> str:
    """A code span of one line; its fence is longer than any run of backticks inside."""
    body = clean(text, limit=limit)
    if "|" in body and "\\" in body:
        return _escaped(body)  # in a table a backslash before a pipe would end the cell inside the code span
    if not body:
        return ""
    fence = "`" * (max((len(run) for run in _TICKS.findall(body)), default=0) + 1)
    pad = " " if body.startswith("`") or body.endswith("`") else ""
    return f"{fence}{pad}{body}{pad}{fence}"


def fenced(text: str, *, language: str = "", lines: int = 40, limit: int = BLOCK_LIMIT) -> str:
    """A fenced block; its fence is longer than any run of backticks inside."""
    body = clean_block(text, lines=lines, limit=limit).strip("\n")
    fence = "`" * max(3, max((len(run) for run in _TICKS.findall(body)), default=0) + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are finished Markdown, and a `|` in them (also inside code spans) is escaped as GitHub's tables need it."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def fitting(blocks: Callable[[int], Iterable[str]]) -> str:
    """The blocks that are made for so many rows a list: as many as fit into a GitHub issue."""
    text = ""
    for rows in _ROW_LIMITS:
        text = "\n\n".join(blocks(rows)) + "\n"
        if len(text) <= MAX_CHARACTERS:
            break
    return text


def document(told: Document) -> str:
    """All of the document, ending in a line break; long lists are cut (and said to be) until it fits into a GitHub issue."""
    return fitting(lambda rows: _blocks(told, rows))


def _blocks(told: Document, rows: int) -> Iterator[str]:
    yield f"# {prose(told.title)}"
    yield from map(prose, told.facts)
    if told.command:
        yield f"Command: {code(told.command, limit=_PARAGRAPH)}"
    for headline in told.headlines:
        word, rest = prose(headline.word), prose(": ".join(filter(None, (headline.what, headline.said))), limit=_PARAGRAPH)
        yield ": ".join(filter(None, (word and f"**{word}**", rest)))
    for part in (section for section in told.sections if section.has_text):
        yield f"{'#' * part.depth} {prose(part.title)}"
        if part.said:
            yield prose(part.said, limit=_PARAGRAPH)
        yield from _body(part, rows, told.name, lines=part.lines, entries=part.as_entries)


def section(told: Section, *, rows: int) -> str:
    """The section folded away, its first `rows` rows as a table; without columns a paragraph."""
    if not told.columns:
        return prose(". ".join([f"{told.title}: {told.said}", *told.lines]), limit=_PARAGRAPH)
    lines = (told.said, *told.lines) if told.as_entries else told.lines
    return details(f"{told.title} ({len(told.items):,})", "\n\n".join(_body(told, rows, "report.json", lines=lines)))


def article(told: Article, *, number: int) -> Iterator[str]:
    """The blocks of an article under a heading with its number: facts close it in one line."""
    yield f"### {number}. {prose(told.severity)} {prose(told.code, limit=40)}: {prose(told.title)}"
    if told.place:
        yield f"at {code(told.place)}"
    if told.source:
        yield fenced(told.source, language="python", lines=3)
    for paragraph in told.paragraphs:
        if paragraph.kind != "fact":
            yield from _paragraph(paragraph)
    facts = [
        f"{one.label.capitalize()}: {' '.join(filter(None, (_ids(one), prose(one.text))))}."
        for one in told.paragraphs
        if one.kind == "fact"
    ]
    if facts:
        yield " ".join(facts)


def _paragraph(told: Paragraph) -> Iterator[str]:
    text = prose(told.text, limit=_TEXT)
    label = f"**{told.label.capitalize()}:** " if told.label and told.kind != "reason" else ""
    if told.text:
        yield f"{label}{text}{f': {code(told.code)}' if told.code else ''}"
    if told.imports:
        yield f"Needs {', '.join(map(code, told.imports))}."
    change = [f"{sign} {line}" for sign, rows in (("-", told.before), ("+", told.after)) for line in (rows or "").splitlines()]
    if change:
        yield fenced("\n".join(change), language="diff")


def _ids(told: Paragraph) -> str:
    return ", ".join(map(code, told.ids))


def _body(told: Section, rows: int, name: str, *, lines: Sequence[str], entries: bool = False) -> Iterator[str]:
    """What is below the title: `lines`, then the first `rows` rows, and what of the others is in the file `name`."""
    yield from (prose(line, limit=_PARAGRAPH) for line in lines)
    shown = [[joined(cell, _marked) for cell in told.row(item)] for item in told.items[:rows]]
    if entries:
        yield from (_entry(told, cells) for cells in shown)
    elif shown:
        columns, grid = without_empty(told.columns, shown)
        yield table([column.heading for column in columns], grid)
    if more := len(told.items) - len(shown):
        yield f"{more:,} more {told.unit}{'s' if more > 1 else ''} in `{name}`."
    if told.points:
        yield "\n".join(f"- {prose(point, limit=_PARAGRAPH)}" for point in told.points)
    if told.block is not None:
        yield fenced(told.block.text, language=told.block.language, lines=_BLOCK_LINES, limit=_BLOCK_CHARACTERS)
    if told.closing:
        yield prose(told.closing, limit=_PARAGRAPH)


def _entry(told: Section, cells: Sequence[str]) -> str:
    name, heading, *rest = cells
    lines = (f"  - {prose(column.label)} {text}".replace("-  ", "- ") for column, text in zip(told.columns[2:], rest, strict=True) if text)
    return "\n".join([f"- {name} {heading}", *lines])


def _marked(part: Part) -> str:
    return (code if part.code else prose)(part.text, limit=part.limit)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text.replace("\n", " ")) if text.strip("-") or not text else text


def details(summary: str, body: str) -> str:
    """A folded section; `summary` is our own text."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"
