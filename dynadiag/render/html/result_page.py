"""`report.html` of a verb that compares, reduces or times: a document as one page."""

from __future__ import annotations

from typing import Any

import dynadiag
from dynadiag.render.document import Document, Section
from dynadiag.render.html import page
from dynadiag.render.html.code import coloured_text
from dynadiag.render.html.tables import section_table
from dynadiag.render.markdown_text import document
from dynadiag.render.sanitise import clean, slug

_BLOCK_LINES = 2000


def render(told: Document) -> str:
    """The page: verdict, the command, key figures, then the sections; those that have nothing to show are left out."""
    shown = [one for one in told.sections if one.has_text or one.pictures]
    parts = [_section(one, f"{slug(one.title)}-{number}", told.name) for number, one in enumerate(shown)]
    lines = [
        {"word": clean(one.word), "what": clean(one.what), "said": clean(one.said, limit=2000), "tone": one.tone} for one in told.headlines
    ]
    return page(
        "result.html",
        title=clean(told.title),
        version=dynadiag.__version__,
        sections=[("verdict", "Verdict"), *((one["anchor"], one["title"]) for one in parts)],
        first=lines[0] if lines else None,
        others=lines[1:],
        facts=[clean(fact) for fact in told.facts],
        command=clean(told.command, limit=2000),
        figures=[(clean(name), clean(value)) for name, value in told.figures],
        issue=document(told),
        parts_of=parts,
    )


def _section(one: Section, anchor: str, name: str) -> dict[str, Any]:
    made = section_table(one, anchor, name=name)
    for row in made["rows"] if one.as_entries else ():
        row["tone"] = next((part["tone"] for part in row["cells"][1]["parts"] if part["tone"]), "plain")
    return made | {
        "depth": one.depth,
        "as_entries": one.as_entries,
        "points": [clean(point, limit=2000) for point in one.points],
        "block": None if one.block is None else coloured_text(one.block.text, _BLOCK_LINES, colour=one.block.language == "python"),
    }
