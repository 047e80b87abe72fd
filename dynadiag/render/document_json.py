"""A document as JSON and back (`form.json`): what a verb said, for `dynadiag bug` to say again without what must stay private."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, make_dataclass, replace
from typing import Any, get_type_hints

from dynadiag.render import finite_json
from dynadiag.render.document import Cell, Document, Part, Section

FORMAT = 1
_LANGUAGES = ("python", "text", "diff", "console")
_MOST = 10_000
# A section with its rows, whatever made them, as cells.
_NAMES = [field.name for field in fields(Section) if field.name != "row"]
_SECTION_TYPES = get_type_hints(Section) | {"items": tuple[tuple[Cell, ...], ...], "points": tuple[str, ...]}
_WrittenSection: Any = make_dataclass("WrittenSection", [(name, _SECTION_TYPES[name]) for name in _NAMES])
_DOCUMENT_TYPES = get_type_hints(Document) | {"sections": list[_WrittenSection]}
_WrittenDocument: Any = make_dataclass("WrittenDocument", [("format", int), *_DOCUMENT_TYPES.items()])


def dumps(told: Document) -> str:
    """The document as JSON: its rows as cells of parts, whatever made them."""
    sections = tuple(
        _WrittenSection(**{**_values(section), "items": tuple(section.row(item) for item in section.items)}) for section in told.sections
    )
    written = _WrittenDocument(format=FORMAT, **{**{field.name: getattr(told, field.name) for field in fields(told)}, "sections": sections})
    return finite_json.dumps(asdict(written), indent=1) + "\n"


def loads(text: str) -> Document:
    """The document; ValueError for what is none. Nothing in it is trusted: each value has the type that it must have."""
    import msgspec

    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError("not a form of this version")
    written = msgspec.convert(value, _WrittenDocument)
    values = {field.name: getattr(written, field.name) for field in fields(Document)}
    return Document(**{**values, "sections": tuple(map(_section, written.sections))})


def _section(written: Any) -> Section:
    """The section; a number or a language that the renderers would not take becomes one that they do."""
    block = written.block
    return Section(
        **{
            **_values(written),
            "items": [
                tuple(tuple(replace(part, limit=_within(part.limit, _MOST)) for part in cell) for cell in row) for row in written.items
            ],
            "block": block if block is None or block.language in _LANGUAGES else replace(block, language="text"),
            "depth": _within(written.depth, 6),
        }
    )


def _part(written: Part) -> Part:
    return replace(written, limit=_within(written.limit, _MOST))


def _values(section: Any) -> dict[str, Any]:
    return {name: getattr(section, name) for name in _NAMES}


def _within(number: int, most: int) -> int:
    return max(1, min(most, number))
