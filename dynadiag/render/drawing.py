"""Pictures as files: SVG drawn by us, or text where that was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.errors import UsageError
from dynadiag.render.draw import draw_picture
from dynadiag.render.picture import Picture, describe
from dynadiag.render.sanitise import clean, without_unseen

RENDERERS = ("auto", "svg", "text")


@dataclass(frozen=True, slots=True)
class Drawing:
    """One finished picture and the ending of its file name."""

    text: str
    suffix: str


def checked_renderer(name: str) -> str:
    """The name; `UsageError` for one that does not exist."""
    if name not in RENDERERS:
        raise UsageError(f"unknown renderer {clean(name, limit=40)!r}: use one of {', '.join(RENDERERS)}")
    return name


def drawn(picture: Picture, renderer: str = "auto") -> Drawing:
    """The picture as SVG, or as text with the renderer "text"."""
    if checked_renderer(renderer) == "text":
        return Drawing(without_unseen(describe(picture)), ".txt")
    return Drawing(draw_picture(picture), ".svg")
