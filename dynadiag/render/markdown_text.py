"""Markdown that stays text: nothing from a log becomes HTML, a link, an image, a mention or a cross-reference on GitHub."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.render.sanitise import LINE_LIMIT, clean, clean_block

_BREAK = "\N{ZERO WIDTH SPACE}"
_PUNCTUATION = re.compile(r"([\\`*\[\]<|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_BLOCK_START = re.compile(r"^(?:[-=+>#:]|\d+(?=[.)](?:\s|$)))")
_TICKS = re.compile(r"`+")


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


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text.replace("\n", " ")) if text.strip("-") or not text else text


def details(summary: str, body: str) -> str:
    """A folded section; `summary` is our own text."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"
