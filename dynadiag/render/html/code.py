"""Source text for a page: coloured by Pygments at build time, a line at a time, so that nothing in it is live."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from itertools import groupby

import pygments
from markupsafe import Markup
from pygments.lexers import PythonLexer
from pygments.token import Token, _TokenType

from dynadiag.render.sanitise import clean_block

_LONGEST = 60_000
_LONGEST_LINE = 2000
_CLASSES = {Token.Keyword: "k", Token.Literal.String: "s", Token.Comment: "c", Token.Name.Function: "nf", Token.Literal.Number: "mi"}
_DEFINED = re.compile(r' *(\w{1,200})(?:: "[^"]*")? = ')
_PLACE = re.compile(r"\s*# (?:Backward of forward node: )?File: (.*?)\s*\Z")
_NAMES = re.compile(r" *# Topologically Sorted Source Nodes: \[([^\]]*)\]")
_ENDS = ("'''", "return ", "return(", "async_compile.wait", "def ", "class ", "del ")


@lru_cache(maxsize=200)
def _class_of(kind: _TokenType) -> str:
    return next((name for known, name in _CLASSES.items() if kind in known), "")


def _lines(source: str) -> list[Markup]:
    """The lines of a text as markup; only what the style sheet colours has a tag."""
    rows: list[list[str]] = [[]]
    tokens = pygments.lex(source, PythonLexer(stripnl=False, ensurenl=False))
    for name, group in groupby(tokens, key=lambda token: _class_of(token[0])):
        value = "".join(value for _, value in group)
        for number, piece in enumerate(value.split("\n")):
            if number:
                rows.append([])
            text = escape(piece, quote=False)
            rows[-1].append(f'<span class="{name}">{text}</span>' if name and piece.strip() else text)
    return [Markup("".join(row)) for row in rows]


def _coloured(lines: Sequence[str], *, colour: bool = True) -> list[Markup]:
    """The sanitised lines, coloured unless they are so long that it would take a while."""
    if colour and sum(map(len, lines)) <= _LONGEST and all(len(line) <= _LONGEST_LINE for line in lines):
        rows = _lines("\n".join(lines))
        if len(rows) == len(lines):
            return rows
    return [Markup.escape(line) for line in lines]


def coloured(lines: Sequence[str]) -> list[Markup]:
    """The lines as markup, as many as came in. They are sanitised first, and escaped."""
    return _coloured([clean_block(line.expandtabs(4), limit=300, lines=1).replace("\n", " ") for line in lines])


def coloured_text(text: str, lines: int, *, colour: bool = True) -> Markup:
    """A whole text as markup, its first `lines` lines, sanitised and escaped; `colour` it as Python."""
    return Markup("\n").join(_coloured(clean_block(text, limit=_LONGEST, lines=lines).strip("\n").split("\n"), colour=colour))


def _cleaned(text: str, limit: int) -> list[str]:
    return clean_block(text, limit=limit, lines=20_000).split("\n")


def graph_text(text: str, at: Mapping[tuple[str, int], str], limit: int, *, colour: bool = True) -> Iterator[tuple[str | None, Markup]]:
    """The text of a graph cut where its comments name another source line: (the rows of the ladder that led there, the text)."""
    lines = _cleaned(text, limit)
    return _parts((row for row, _ in _rows(lines, at)), _coloured(lines, colour=colour))


def rows_of_names(text: str, at: Mapping[tuple[str, int], str], limit: int) -> dict[str, str]:
    """By name of a node in the text of a graph the row of the source line that its comment names."""
    return {found[1]: row for row, line in _rows(_cleaned(text, limit), at) if row and (found := _DEFINED.match(line))}


def _rows(lines: Iterable[str], at: Mapping[tuple[str, int], str]) -> Iterator[tuple[str | None, str]]:
    row: str | None = None
    for line in lines:
        found = _PLACE.match(line)
        if found is not None:
            place = found[1].split(" in ")[0].split(", code:")[0]
            file, _, number = place.rpartition(":")
            row = at.get((file, int(number))) if number.isdecimal() and len(number) < 10 else None
        yield row, line


def output_code(text: str, rows: Mapping[str, str], limit: int, *, colour: bool = True) -> Iterator[tuple[str | None, Markup]]:
    """Inductor's output code, cut where its comments name other nodes of the graph; `rows` are the source lines of those nodes."""
    lines = _cleaned(text, limit)
    return _parts(_code_rows(lines, rows), _coloured(lines, colour=colour))


def _code_rows(lines: Iterable[str], rows: Mapping[str, str]) -> Iterator[str | None]:
    row: str | None = None
    for line in lines:
        found = _NAMES.match(line)
        if found is not None:
            row = " ".join(dict.fromkeys(row for name in found[1].split(", ") if name in rows for row in rows[name].split())) or None
        elif line.lstrip().startswith(_ENDS):
            row = None
        yield row


def _parts(rows: Iterable[str | None], lines: Iterable[Markup]) -> Iterator[tuple[str | None, Markup]]:
    """Lines that follow each other with the same row, as one piece."""
    last, part = None, list[Markup]()
    for row, line in zip(rows, lines, strict=True):
        if row != last and part:
            yield last, Markup("\n").join([*part, ""])
            part = []
        last = row
        part.append(line)
    yield last, Markup("\n").join(part)
