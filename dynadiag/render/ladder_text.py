"""The source ladder in a terminal: one row a line, with a mark at its left and what is said of it at its right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.text import Text

from dynadiag.render import wording
from dynadiag.render.ladder import Fold, Function, Ladder, Rung, State, bars_legend, folded, that_matter
from dynadiag.render.page import Page
from dynadiag.render.sanitise import clean, clean_block

FUNCTIONS_SHOWN = 3
ROWS_SHOWN = 16
_NARROWEST = 60
_MARKS: Mapping[State, tuple[str, str, str]] = {  # in Unicode, in ASCII, its colour
    "graph": ("┃", "|", "green"),
    "break": ("◆", "*", "bold red"),
    "eager": ("╎", ":", "yellow"),
    "unseen": ("┆", ".", "dim"),
    "plain": (" ", " ", "dim"),
}
_THIN: Mapping[State, str] = {"graph": "│", "break": "◇"}
_SAID = {"graph": "", "eager": "runs in Python", "unseen": "runs in Python; not analysed: more breaks may follow", "plain": "", "break": ""}


def print_ladder(
    found: Ladder, page: Page, *, base: Path | None, functions: int | None = FUNCTIONS_SHOWN, rows: int | None = ROWS_SHOWN
) -> bool:
    """Print the functions that matter, at most so many and so many rows in all (None for all); what is left out is counted.

    False where there is none.
    """
    shown = that_matter(found)
    total = len(shown)
    left = rows
    for number, function in enumerate(shown[:functions]):
        lines = list(folded(function.rungs))
        if left is not None and len(lines) > left:
            lines = list(folded(function.rungs, keep=0))
        if left is not None and number and (len(lines) > left or left <= 0):
            functions = number
            break
        _head(function, page, base)
        for row in lines if left is None else lines[:left]:
            _fold(row, function, page) if isinstance(row, Fold) else _row(row, function, page)
        if left is not None:
            _more(len(lines) - left, page)
            left -= len(lines)
    if functions is not None and total > functions:
        page.line(f"{wording.plural(total - functions, 'more function')}: --full", prefix="    ", style="dim")
    if total and (legend := bars_legend(found)):
        page.line(legend, prefix="    ", style="dim")
    if total and found.bars:
        for note in found.notes:
            page.line(note, prefix="    ", style="dim")
    return total > 0


def _bars(state: State, bars: Sequence[State], page: Page) -> Text:
    """The marks at the left of a line: thin ones of ranks that differ, and the wide one."""
    marks = [(_THIN.get(bar, _MARKS[bar][0]) if page.unicode else _MARKS[bar][1], _MARKS[bar][2]) for bar in bars]
    mark, plain, style = _MARKS[state]
    return Text.assemble(*marks, (mark if page.unicode else plain, style))


def _more(count: int, page: Page) -> None:
    if count > 0:
        page.line(f"{wording.plural(count, 'more row')}: --full", prefix="         ", style="dim")


def _head(function: Function, page: Page, base: Path | None) -> None:
    line = "" if function.line is None else f":{function.line}"
    place = f"{wording.path(function.file, base)}{line}"
    head = Text.assemble("  " * function.depth, (clean(function.name, limit=80), "bold"), "  ", (place, "cyan"))
    _two_columns(head, function.said, page, "")


def _row(rung: Rung, function: Function, page: Page) -> None:
    margin = "  " * function.depth
    code = clean_block(rung.code.expandtabs(4), limit=200, lines=1)
    head = Text.assemble(
        margin, (f"{rung.line:>5} ", "dim"), _bars(rung.state, rung.bars, page), " ", (code, "" if rung.state != "plain" else "dim")
    )
    said = "  ".join(part for part in (" ".join(rung.marks), " · ".join(rung.notes)) if part)
    _two_columns(head, said, page, "red" if rung.broke else "dim")


def _fold(fold: Fold, function: Function, page: Page) -> None:
    lines = f"{fold.first}-{fold.last}" if fold.last > fold.first else f"{fold.first}"
    head = Text.assemble("  " * function.depth, (f"{lines:>5} ", "dim"), _bars(fold.state, fold.bars, page), (" ...", "dim"))
    _two_columns(head, _SAID[fold.state], page, "dim")


def _two_columns(head: Text, said: str, page: Page, style: str) -> None:
    """The head, cut where it has no room, and what is said of it: never folded, so that the ladder stays one."""
    room = page.width - 2
    said = clean(said, limit=120) if room >= _NARROWEST else ""
    column, free = max(room * 11 // 20, _NARROWEST // 2), room - len(said) - 2
    width = max(min(column, free), min(head.cell_len, max(column, free))) if said else room
    head = head.copy()
    if head.cell_len > width:
        head.truncate(max(1, width), overflow="ellipsis" if page.unicode else "crop")
    if not said:
        page.whole("", prefix=Text.assemble("  ", head))
        return
    head.pad_right(width - head.cell_len)
    tail = Text(said, style=style)
    tail.truncate(max(1, room - width - 2), overflow="ellipsis" if page.unicode else "crop")
    page.whole("", prefix=Text.assemble("  ", head, "  ", tail))
