"""Pictures as files: SVG drawn by us, laid out by Graphviz or in columns of our own; or text where that was asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from dynadiag.errors import UsageError
from dynadiag.graphs.graphviz_layout import ENGINES, TIMEOUT_S, LayoutError, can_write_dot
from dynadiag.graphs.graphviz_layout import lay_out as lay_out_dot
from dynadiag.render.columns import lay_out_in_columns
from dynadiag.render.dot_text import dot_text
from dynadiag.render.draw import draw_picture
from dynadiag.render.layout import Layout
from dynadiag.render.picture import Picture, describe
from dynadiag.render.ranks import TooWideError, lay_out_in_ranks
from dynadiag.render.sanitise import clean, without_unseen

RENDERERS = ("auto", "graphviz", "dot", "columns", "svg", "text")
"""By whom a picture is laid out: by Graphviz' libraries, the dot program, us; "svg" is "auto" under an older name, "text" draws none."""

HIGHER = 1.5
"""How many times as high as in columns a picture in ranks may be."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """One finished picture and the ending of its file name; `dot` is its DOT text, `note` why another layout than the wanted was taken."""

    text: str
    suffix: str
    dot: str | None = None
    note: str | None = None


def checked_renderer(name: str) -> str:
    """The name; `UsageError` for one that does not exist."""
    if name not in RENDERERS:
        raise UsageError(f"unknown renderer {clean(name, limit=40)!r}: use one of {', '.join(RENDERERS)}")
    return name


def drawn(picture: Picture, renderer: str = "auto") -> Drawing:
    """The picture as SVG, or as text with the renderer "text"."""
    if checked_renderer(renderer) == "text":
        return Drawing(without_unseen(describe(picture)), ".txt")
    falls: list[str] = []
    text = draw_picture(picture, partial(_lay_out, renderer=renderer, falls=falls))
    dot = without_unseen(dot_text(picture)) if can_write_dot() else None
    return Drawing(text, ".svg", dot, f"laid out {'; '.join(dict.fromkeys(falls))}" if falls else None)


def _lay_out(picture: Picture, top: float, *, renderer: str, falls: list[str]) -> Layout:
    """The layout by the first engine that gives one, else in columns; `falls` says what was taken instead of what, and why."""
    columns = lay_out_in_columns(picture, top)
    until = time.monotonic() + TIMEOUT_S
    engines = ENGINES if renderer in ("auto", "svg") else [engine for engine in ENGINES if engine == renderer]
    for at, engine in enumerate(engines):
        try:
            ranks = lay_out_in_ranks(picture, top, partial(lay_out_dot, engine=engine, until=until))
        except LayoutError as error:
            falls.append(f"{'by the dot program' if at + 1 < len(engines) else 'in columns'}: {error.message}")
        except TooWideError as error:
            falls.extend([f"in columns: {error.message}"] if engine == renderer else [])
            break
        else:
            return ranks if engine == renderer or ranks.height * ranks.scale <= HIGHER * columns.height else columns
    return columns
