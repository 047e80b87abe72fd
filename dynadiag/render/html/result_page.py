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
    shown = [section for section in told.sections if section.has_text or section.pictures]
    parts = [_section(item, f"{slug(item.title)}-{number}", told.name) for number, item in enumerate(shown)]
    lines = [
        {"word": clean(headline.word), "what": clean(headline.what), "said": clean(headline.said, limit=2000), "tone": headline.tone}
        for headline in told.headlines
    ]
    return page(
        "result.html",
        title=clean(told.title),
        version=dynadiag.__version__,
        sections=[("verdict", "Verdict"), *((part["anchor"], part["title"]) for part in parts)],
        first=lines[0] if lines else None,
        others=lines[1:],
        facts=[clean(fact) for fact in told.facts],
        command=clean(told.command, limit=2000),
        figures=[(clean(name), clean(value)) for name, value in told.figures],
        issue=document(told),
        parts_of=parts,
    )


def _section(section: Section, anchor: str, name: str) -> dict[str, Any]:
    made = section_table(section, anchor, name=name)
    for row in made["rows"] if section.as_entries else ():
        row["tone"] = next((part["tone"] for part in row["cells"][1]["parts"] if part["tone"]), "plain")
    return made | {
        "depth": section.depth,
        "as_entries": section.as_entries,
        "points": [clean(point, limit=2000) for point in section.points],
        "block": None
        if section.block is None
        else coloured_text(section.block.text, _BLOCK_LINES, colour=section.block.language == "python"),
    }
