"""Source text for a page: coloured by Pygments at build time, a line at a time, so that nothing in it is live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pygments
from markupsafe import Markup
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from dynadiag.render.sanitise import clean_block

_LONGEST = 60_000


def coloured(lines: Sequence[str]) -> list[Markup]:
    """The lines as markup, as many as came in. They are sanitised first, and escaped by Pygments."""
    cleaned = [clean_block(line.expandtabs(4), limit=300, lines=1).replace("\n", " ") for line in lines]
    text = "\n".join(cleaned)
    if len(text) <= _LONGEST:
        html = pygments.highlight(text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True))
        rows = html.removesuffix("\n").split("\n") if html else []
        if len(rows) == len(lines):
            return [Markup(row) for row in rows]
    return [Markup.escape(line) for line in cleaned]


def graph_text(text: str, at: Mapping[tuple[str, int], str], limit: int) -> Iterator[tuple[str | None, str]]:
    """The text of a graph cut where its comments name another source line: (the line's row in the ladder, the text)."""
    row: str | None = None
    part: list[str] = []
    for line in clean_block(text, limit=limit, lines=20_000).split("\n"):
        stripped = line.strip()
        if stripped.startswith("# File: "):
            place = stripped.removeprefix("# File: ").split(" in ")[0].split(", code:")[0]
            file, _, number = place.rpartition(":")
            if part:
                yield row, "\n".join(part) + "\n"
            row, part = at.get((file, int(number))) if number.isdecimal() and len(number) < 10 else None, []
        part.append(line)
    yield row, "\n".join(part)
