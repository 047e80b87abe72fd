"""Markdown that stays text: nothing from a log becomes HTML, a link, an image, a mention or a cross-reference on GitHub."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.render.sanitise import LINE_LIMIT, clean, clean_block
from dynadiag.render.sections import Part, Section, joined, without_empty

_BREAK = "\N{ZERO WIDTH SPACE}"
_PUNCTUATION = re.compile(r"([\\`*\[\]<|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_BLOCK_START = re.compile(r"^(?:[-=+>#:]|\d+(?=[.)](?:\s|$)))")
_TICKS = re.compile(r"`+")
_PARAGRAPH = 2000


def prose(text: str, *, limit: int = LINE_LIMIT) -> str:
    """One line of prose with every Markdown character escaped; a pair of backticks still makes a code span.

    GitHub looks for mentions, issue numbers and bare addresses in the rendered text, so escaping does not stop them: a zero-width space
    does (GitHub Flavored Markdown spec, "Autolinks (extension)").
    """
    parts = clean(text, limit=limit).split("`")
    if len(parts) % 2 == 0:
        parts[-2:] = ["`".join(parts[-2:])]
    return "".join(code(part) if number % 2 and part.strip() else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    start = _BLOCK_START.match(text)
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


def fenced(text: str, *, language: str = "", lines: int = 40) -> str:
    """A fenced block; its fence is longer than any run of backticks inside."""
    body = clean_block(text, lines=lines)
    fence = "`" * max(3, max((len(run) for run in _TICKS.findall(body)), default=0) + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are finished Markdown, and a `|` in them (also inside code spans) is escaped as GitHub's tables need it."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def section(told: Section, *, rows: int) -> str:
    """The section folded away, its first `rows` rows as a table; without columns a paragraph."""
    if not told.columns:
        return prose(". ".join([f"{told.title}: {told.said}", *told.lines]), limit=_PARAGRAPH)
    lines = [prose(line, limit=_PARAGRAPH) for line in ((told.said, *told.lines) if told.as_entries else told.lines)]
    shown = [[joined(cell, _marked) for cell in told.row(item)] for item in told.items[:rows]]
    columns, cells = without_empty(told.columns, shown)
    grid = table([column.heading for column in columns], cells)
    more = len(told.items) - len(shown)
    left = [f"{more:,} more {told.unit}{'s' if more > 1 else ''} in `report.json`."] if more > 0 else []
    closing = [prose(told.closing, limit=_PARAGRAPH)] if told.closing else []
    body = [*lines, *([grid] if shown else []), *left, *closing]
    return details(f"{told.title} ({len(told.items):,})", "\n\n".join(body))


def _marked(part: Part) -> str:
    return (code if part.code else prose)(part.text, limit=part.limit)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text.replace("\n", " ")) if text.strip("-") or not text else text


def details(summary: str, body: str) -> str:
    """A folded section; `summary` is our own text."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"
